"""Finds verifiers that run the text they are given as code, by reading their source.

score_answer(answer) ─► names that hold the answer or come of it ─► calls that are given one ─► eval, exec, sympy … or the next function
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

EVALUATORS = frozenset({"builtins.eval", "builtins.exec", "builtins.compile", "builtins.__import__", "os.system"})
RUNNING = frozenset({"sympy", "numexpr", "asteval", "pickle", "marshal", "subprocess", "importlib", "runpy", "code"})
"""Packages whose functions may run the text they are given; nearly all of sympy's do, through sympify."""
HARMLESS = frozenset({"sympy.core.symbol.Symbol", "sympy.core.symbol.symbols", "sympy.core.symbol.Dummy"})
CLEAN = frozenset({"int", "float", "bool", "len", "ord", "isinstance", "hash", "complex"})
"""Builtins whose result holds no text."""
_DEPTH = 12


@dataclass(frozen=True, eq=False)
class _Function:
    """A function in its source: where names in it point to, and which of its parameters hold the answer."""

    body: ast.FunctionDef | ast.Lambda | ast.AsyncFunctionDef
    first: int
    file: str
    names: Mapping[str, Any]
    owner: type | None
    tainted: frozenset[str]

    def at(self, node: ast.expr) -> str:
        return f"{Path(self.file).name}, line {self.first + node.lineno - 1}"

    @cached_property
    def locals(self) -> set[str]:
        given = self.body.args
        parameters = {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
        targets = [each for node in ast.walk(self.body) for bound, _ in _bound(node) for each in bound]
        return parameters.union(*(_stored(each) for each in targets))


def evaluator(owner: type, method: str) -> str | None:
    """Where a method runs text of its first argument as code, as far as its source tells; None: nowhere."""
    function = getattr(owner, method)
    parameters = list(inspect.signature(function).parameters)
    return _Search().found(function, owner, frozenset(parameters[1:2]), 0)


@dataclass
class _Search:
    """Looks at each function once for each set of tainted parameters."""

    seen: set[tuple[object, frozenset[str]]] = field(default_factory=set[tuple[object, frozenset[str]]])

    def found(self, function: Any, owner: type | None, tainted: frozenset[str], depth: int) -> str | None:
        function = inspect.unwrap(function.__func__ if isinstance(function, MethodType) else function)
        if not tainted or (function, tainted) in self.seen:
            return None
        self.seen.add((function, tainted))
        if depth > _DEPTH:
            return f"calls deeper than {_DEPTH}"
        try:
            here = _read(function, owner, tainted)
        except (OSError, TypeError, SyntaxError):
            return f"{function.__qualname__}, whose source cannot be read"
        aliased = next((each for each in _mentioned(here) if _name_of(_resolved(each, here)) in EVALUATORS), None)
        if aliased is not None:  # run = eval: what it is called by later is anyone's guess
            return f"{ast.unparse(aliased)} in {here.at(aliased)}"
        names = _tainted_names(here)
        for call in _calls(here.body):
            given = [each for each in _arguments(call) if _is_tainted(each, names)]
            if given or (isinstance(call.func, ast.Attribute) and _is_tainted(call.func.value, names)):
                where = self._called(call, here, names, bool(given), depth)
                if where is not None:
                    return where
        return None

    def _called(self, call: ast.Call, here: _Function, names: set[str], given: bool, depth: int) -> str | None:
        """Where a call with a tainted argument, or of a tainted object's method, ends in an evaluator."""
        target = _resolved(call.func, here)
        candidates = [target] if target is not None else list(_methods(call.func, here))
        for each in (*candidates, *(_resolved(argument, here) for argument in _arguments(call))):
            if given and _runs_text(each):
                return f"{_name_of(each).removeprefix('builtins.')} in {here.at(call)}"
        for each in candidates:
            function = each.__init__ if isinstance(each, type) else each
            if not isinstance(function, FunctionType | MethodType) or _is_passed_over(function):
                continue
            owner = each if isinstance(each, type) else _owner(call.func, here, each)
            where = self.found(function, owner, _tainted_parameters(function, call, names), depth + 1)
            if where is not None:
                return where
        return None


def _read(function: Any, owner: type | None, tainted: frozenset[str]) -> _Function:
    lines, first = inspect.getsourcelines(function)
    (body,) = ast.parse(textwrap.dedent("".join(lines))).body
    if not isinstance(body, ast.FunctionDef | ast.AsyncFunctionDef):
        raise SyntaxError("no plain function")
    names = {**vars(builtins), **function.__globals__, **inspect.getclosurevars(function).nonlocals}
    return _Function(body, first, inspect.getfile(function), names, owner, tainted)


def _calls(body: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(body) if isinstance(node, ast.Call))


def _mentioned(here: _Function) -> Iterator[ast.Name]:
    """Names that are read but not called."""
    called = {id(call.func) for call in _calls(here.body)}
    return (node for node in ast.walk(here.body) if isinstance(node, ast.Name) and id(node) not in called)


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(each.value for each in call.keywords)]


def _is_tainted(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression may hold text of the answer."""
    if isinstance(node, ast.Compare):
        return False
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CLEAN:
        return False
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Attribute) and ast.unparse(node) in names:
        return True
    return any(_is_tainted(each, names) for each in ast.iter_child_nodes(node))


def _tainted_names(here: _Function) -> set[str]:
    """Every name that may hold the answer or something made of it, wherever in the function."""
    names, before = set(here.tainted), -1
    inner = {node.name: node for node in ast.walk(here.body) if isinstance(node, ast.FunctionDef)}
    while len(names) != before:
        before = len(names)
        for node in ast.walk(here.body):
            for targets, value in _bound(node):
                if _is_tainted(value, names):
                    names.update(each for target in targets for each in _stored(target))
            if isinstance(node, ast.Call) and any(_is_tainted(each, names) for each in _arguments(node)):
                if isinstance(node.func, ast.Attribute):  # answers.append(answer)
                    names.update(_stored(node.func.value) & here.locals)
                elif isinstance(node.func, ast.Name) and node.func.id in inner:
                    names.update(each.arg for each in inner[node.func.id].args.args)
    return names


def _bound(node: ast.AST) -> Iterator[tuple[list[ast.expr], ast.expr]]:
    """What a statement or comprehension binds, and to what."""
    if isinstance(node, ast.Assign):
        yield node.targets, node.value
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.NamedExpr) and node.value is not None:
        yield [node.target], node.value
    elif isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
        yield [node.target], node.iter
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield [node.optional_vars], node.context_expr
    elif isinstance(node, ast.Match):
        yield (
            [
                ast.Name(each.name)
                for each in ast.walk(node)
                if isinstance(each, ast.MatchAs | ast.MatchStar) and each.name
            ],
            node.subject,
        )


def _stored(target: ast.expr) -> set[str]:
    """The names a target holds on to: a, (a, b), a[0] and self.a, not the index and not the whole of self."""
    if isinstance(target, ast.Name):
        return {target.id}
    if isinstance(target, ast.Attribute):
        return {ast.unparse(target)}
    if isinstance(target, ast.Subscript | ast.Starred):
        return _stored(target.value)
    if isinstance(target, ast.Tuple | ast.List):
        return {name for each in target.elts for name in _stored(each)}
    return set()


def _resolved(node: ast.expr, here: _Function) -> Any:
    """The object that a name, or an attribute of a module, of a class or of self, stands for; None: not known."""
    if isinstance(node, ast.Name):
        return None if node.id in here.locals else here.names.get(node.id)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super":
        return None if here.owner is None else here.owner.__mro__[1]
    if not isinstance(node, ast.Attribute):
        return None
    if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls") and here.owner is not None:
        return getattr(here.owner, node.attr, None)
    base = _resolved(node.value, here)
    return getattr(base, node.attr, None) if isinstance(base, ModuleType | type) else None


def _methods(node: ast.expr, here: _Function) -> Iterator[Any]:
    """Methods of that name of any class the function's module knows: what an object is, source alone does not tell."""
    if isinstance(node, ast.Attribute):
        for each in here.names.values():
            if isinstance(each, type) and isinstance(each.__dict__.get(node.attr), FunctionType):
                yield each.__dict__[node.attr]


def _owner(node: ast.expr, here: _Function, function: Any) -> type | None:
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
        return here.owner
    name = getattr(function, "__qualname__", "").rpartition(".")[0]
    found = here.names.get(name)
    return found if isinstance(found, type) else None


def _tainted_parameters(function: FunctionType | MethodType, call: ast.Call, names: set[str]) -> frozenset[str]:
    """Which parameters are given something tainted; all, where stars hide which."""
    parameters = list(inspect.signature(function).parameters)
    if any(isinstance(each, ast.Starred) for each in call.args) or any(each.arg is None for each in call.keywords):
        return frozenset(parameters)
    bound = bool(parameters) and parameters[0] in ("self", "cls")
    found = {
        parameters[min(place + bound, len(parameters) - 1)]
        for place, each in enumerate(call.args)
        if _is_tainted(each, names) and parameters
    }
    found |= {str(each.arg) for each in call.keywords if _is_tainted(each.value, names)}
    if bound and isinstance(call.func, ast.Attribute) and _is_tainted(call.func.value, names):
        found.add(parameters[0])
    return frozenset(found)


def _name_of(value: Any) -> str:
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', '')}"


def _runs_text(value: Any) -> bool:
    name = _name_of(value)
    if name.replace("posix.", "os.") in EVALUATORS:
        return True
    return callable(value) and name.partition(".")[0] in RUNNING and name not in HARMLESS


def _is_passed_over(function: Callable[..., Any]) -> bool:
    """The standard library and numpy, but for what is named above, run nothing they are given."""
    package = function.__module__.partition(".")[0]
    return package in sys.stdlib_module_names or package == "numpy"
