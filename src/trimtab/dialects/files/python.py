"""The settings of a Python script, by its syntax alone: calls of `…Config`, assigned fields, parsers, commands in texts."""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, cast

from trimtab.dialects.files.launch import Launch, NamedFile, keys_of, launches
from trimtab.dialects.files.python_values import PARSERS, Names, Parsed, dotted_name, value_of
from trimtab.dialects.files.shell_error import ShellError
from trimtab.dialects.files.unknown import Holes, Unknown
from trimtab.dialects.frameworks import SIGNATURES, keys_of_framework
from trimtab.dialects.reading import Finding
from trimtab.dialects.settings import flag_name
from trimtab.errors import ConfigFileError

Scalar = Callable[[str], Any]
CONFIGS = re.compile(r"(\w*(Config|Arguments|Args))$")
ENGINES = re.compile(r"Lora|Peft|BitsAndBytes|Quant|Dataset|Script|Model|Generation|Sampling|Wandb|Logging|Kernel")
LINE = re.compile(
    r"\s*(?:\$ )?((?:[A-Z_]+=\S+ )*)(accelerate launch|python3? |torchrun |deepspeed |trl \w+|uv run |swift |CUDA_VISIBLE_DEVICES)"
)
SETTINGS = re.compile(r"args|config|cfg|conf|opts", re.IGNORECASE)
"""What people call the object that holds settings."""
TRAINED = re.compile(r"GRPO|RLOO|PPO")
SECTIONS = {"AsyncConfig": "async_config"}
"""Classes whose keywords another's settings hold in a section, where its own have the same names."""
REQUESTS = ("forward_backward", "forward_backward_async")
"""Calls that hand a batch to a training service with the name of its loss."""
STARTS = (
    "run",
    "Popen",
    "check_call",
    "call",
    "system",
    "exec_command",
    "execute_train",
    "check_output",
    "run_command",
)
"""Calls that start a command."""
MOST_NODES = 100_000


def from_python(text: str, path: str, scalar: Scalar) -> tuple[list[Launch], tuple[Finding, ...]]:
    """Every way in which the script says settings, each as a command would; and the modules it imports as programs."""
    try:
        module = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise ConfigFileError(
            f"{path} needs to be Python, got a problem{f' at line {line}' if line else ''}: {_reason(error)}."
        ) from None
    try:
        return _launches(module, scalar)
    except RecursionError:
        raise ConfigFileError(f"{path} needs to be Python, got a problem: nested too deeply.") from None


def _launches(module: ast.Module, scalar: Scalar) -> tuple[list[Launch], tuple[Finding, ...]]:
    names = Names(Holes())
    own: dict[str, Any] = {}
    texts: list[tuple[str, int]] = []
    for node in _statements(module):
        _take(node, names, own, texts, scalar)
    imports = _imports(module)
    first = module.body[0].lineno if module.body else 1
    said = _commands(ast.get_docstring(module, clean=False) or "", first, scalar)
    program = next((each for each in imports if each.partition(".")[0] in KNOWN), imports[0] if imports else "")
    handed = tuple(NamedFile("**", each) for each in dict.fromkeys(names.elsewhere))
    found: list[Launch] = []
    for each in said:
        keys = {**own, **each.keys} if own else each.keys
        said_there = (Finding("docstring", "note", IN_TEXT),) if _ours() & {_last(key) for key in each.keys} else ()
        found.append(Launch(keys, each.line, each.program, (*each.findings, *said_there), handed))
    if own and not said:
        found.append(Launch(own, 1, program, parents=handed))
    for command, line in texts:
        found += [
            Launch({**own, **each.keys}, line, each.program or program, each.findings)
            for each in _run(command, names.holes, line, scalar)
        ]
    if not found and any(TRAINED.search(each) for each in imports):
        found.append(Launch({}, 1, program))
    rest = [Launch({}, 1, each) for each in imports if each.partition(".")[0] in KNOWN]
    return [*found, *rest] if found else [], ()


IN_TEXT = "The settings are those of the command in the script's own text, with what the script sets."
KNOWN = {package for each in SIGNATURES.values() for package in each.packages}


@cache
def _ours() -> frozenset[str]:
    """The names, without their sections, of every key that some framework reads."""
    return frozenset(_last(path) for each in SIGNATURES for key in keys_of_framework(each) for path in key.paths)


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _imports(module: ast.Module) -> list[str]:
    found: list[str] = []
    for node in ast.walk(module):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.append(".".join([node.module, *(alias.name for alias in node.names[:1])]))
            found += [f"{node.module}.{alias.name}" for alias in node.names[1:]]
        elif isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
    return found


def _statements(module: ast.Module) -> Iterator[ast.stmt]:
    """Every statement in the order it stands, the bodies of functions, branches and `with` included."""
    pending: list[ast.stmt] = list(reversed(module.body))
    count = 0
    while pending and count < MOST_NODES:
        node = pending.pop()
        count += 1
        yield node
        pending += reversed(list(_inner(node)))


def _inner(node: ast.stmt) -> Iterator[ast.stmt]:
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, name, []) or []:
            if isinstance(each, ast.ExceptHandler | ast.match_case):
                yield from each.body
            elif isinstance(each, ast.stmt):
                yield each


# ── what a statement says ──────────────────────────────────────────────────────────────────────────────────────────────


def _take(node: ast.stmt, names: Names, own: dict[str, Any], texts: list[tuple[str, int]], scalar: Scalar) -> None:
    if isinstance(node, ast.ClassDef) and _is_settings(node):
        fields = _fields(node, names)
        own.update({key: value for key, value in fields.items() if key not in own})
        names.parsed.update(fields)
        names.classes.add(node.name)
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        _take_arguments(node, names)
    if isinstance(node, ast.FunctionDef) and any(_parses(call) for each in node.body for call in _calls(each)):
        names.parsers.add(node.name)
    for call in _calls(node):
        _call(call, names, own, texts, scalar)
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        _assign(node.targets[0], node.value, names, own)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        _assign(node.target, node.value, names, own)
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        names.add(node.target.id, value_of(ast.BinOp(node.target, node.op, node.value), names, node.lineno))


def _take_arguments(node: ast.FunctionDef | ast.AsyncFunctionDef, names: Names) -> None:
    """Arguments that are settings of the script's own class: known by their defaults, as if it were launched without any."""
    for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        if each.annotation is not None and _annotated(each.annotation) in names.classes:
            names.add(each.arg, Parsed(each.arg, each.lineno))


def _annotated(node: ast.expr) -> str:
    """The class an annotation names, also where it stands in quotes."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else dotted_name(node)


def _parses(call: ast.Call) -> bool:
    return dotted_name(call.func).rpartition(".")[2] in PARSERS


def _is_settings(node: ast.ClassDef) -> bool:
    made = [dotted_name(each.func if isinstance(each, ast.Call) else each) for each in node.decorator_list]
    bases = [dotted_name(each) for each in node.bases]
    return any("dataclass" in each or each.startswith("chz") for each in made) and bool(
        CONFIGS.search(node.name) or any(CONFIGS.search(each) for each in bases)
    )


def _fields(node: ast.ClassDef, names: Names) -> dict[str, Any]:
    """Fields with their defaults, also where `field(default=…)` says them."""
    found: dict[str, Any] = {}
    for each in node.body:
        if not isinstance(each, ast.AnnAssign) or not isinstance(each.target, ast.Name) or each.value is None:
            continue
        value = each.value
        if isinstance(value, ast.Call) and dotted_name(value.func).endswith(("field", "Field")):
            value = next((word.value for word in value.keywords if word.arg == "default"), None)
        if value is not None:
            found[each.target.id] = value_of(value, names, each.lineno)
    return found


def _calls(node: ast.stmt) -> Iterator[ast.Call]:
    """The calls of one statement, not those of statements inside it."""
    pending: list[ast.AST] = [node]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.Call):
            yield each
        pending += [inner for inner in ast.iter_child_nodes(each) if not isinstance(inner, ast.stmt)]


def _call(call: ast.Call, names: Names, own: dict[str, Any], texts: list[tuple[str, int]], scalar: Scalar) -> None:
    name = _class(call)
    if name in SECTIONS:
        own.update({f"{SECTIONS[name]}.{key}": value for key, value in _keywords(call, names).items()})
    elif CONFIGS.search(name) and not ENGINES.search(name):
        own.update(_keywords(call, names))
        names.elsewhere += _handed_on(call, names) if TRAINED.search(name) or "RLHF" in name else ()
    elif name == "add_argument" and call.args and isinstance(call.args[0], ast.Constant):
        _argument(call, names, own)
    elif name == "set_defaults":
        own.update(_keywords(call, names))
    elif name in REQUESTS:
        own.update(_loss_of_request(call, names))
    elif dotted_name(call.func).endswith("Blueprint.apply") and call.args:
        held = value_of(call.args[0], names, call.lineno)
        own.update(cast("dict[str, Any]", held) if isinstance(held, dict) else {})
    elif name in STARTS:
        _started(call, names, own, texts)
    del scalar


def _started(call: ast.Call, names: Names, own: dict[str, Any], texts: list[tuple[str, int]]) -> None:
    """The commands among what a call is given, and the program that it names beside their flags."""
    said = [*((None, each) for each in call.args), *((word.arg, word.value) for word in call.keywords)]
    for name, each in said:
        value = value_of(each, names, call.lineno)
        if name == "train_script" and isinstance(value, str):
            own[name] = value
        elif text := _command_text(value):
            texts.append((text, call.lineno))


def _class(call: ast.Call) -> str:
    """The name of what is called, without its module."""
    return dotted_name(call.func).rpartition(".")[2]


def _command_text(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = " ".join(each if not re.search(r"[\s'\"]", each) else f"'{each}'" for each in value)
    return value if isinstance(value, str) and ("--" in value or re.search(r"\w\.\w+=", value)) else ""


def _keywords(call: ast.Call, names: Names) -> dict[str, Any]:
    """The keywords of a call, dictionaries handed on with ** among them."""
    found: dict[str, Any] = {}
    for word in call.keywords:
        if any(isinstance(each, ast.Call) and _class(each) in SECTIONS for each in ast.walk(word.value)):
            continue  # read where the call itself is
        value = value_of(word.value, names, call.lineno)
        if word.arg is not None:
            found[word.arg] = value
        elif isinstance(value, dict):
            found |= {str(key): inner for key, inner in value.items()}
    return found


def _loss_of_request(call: ast.Call, names: Names) -> dict[str, Any]:
    """The loss of one request and its settings, by name or by place behind the batch."""
    said = zip(("loss_fn", "loss_fn_config"), call.args[1:3], strict=False)
    placed = {name: value_of(each, names, call.lineno) for name, each in said}
    return {key: value for key, value in {**placed, **_keywords(call, names)}.items() if key.startswith("loss_fn")}


def _handed_on(call: ast.Call, names: Names) -> Iterator[str]:
    """Mappings handed on with ** of which the script does not say what they hold."""
    for word in call.keywords:
        if word.arg is None and isinstance(value_of(word.value, names, call.lineno), Unknown):
            yield f"the mapping **{dotted_name(word.value) or '…'} (line {call.lineno})"


def _argument(call: ast.Call, names: Names, own: dict[str, Any]) -> None:
    flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    long = next((each for each in flags if each.startswith("--")), None)
    if long is None:
        return
    said = {word.arg: value_of(word.value, names, call.lineno) for word in call.keywords if word.arg}
    value = said.get("default", {"store_true": False, "store_false": True}.get(str(said.get("action"))))
    name = said["dest"] if isinstance(said.get("dest"), str) else flag_name(long)
    if not said.get("required"):
        names.parsed[name] = value
    if "default" in said and value is not None:
        own.setdefault(flag_name(long), value)


def _assign(target: ast.expr, value: ast.expr, names: Names, own: dict[str, Any]) -> None:
    found = value_of(value, names, target.lineno)
    if isinstance(target, ast.Name):
        names.add(target.id, found)
    elif isinstance(target, ast.Tuple) and isinstance(found, Parsed):
        names.known.update({each.id: found for each in target.elts if isinstance(each, ast.Name)})
    elif isinstance(target, ast.Attribute):
        root, _, path = dotted_name(target).partition(".")
        if path and SETTINGS.search(root) and not path.startswith("_"):
            own[path] = found
    elif (
        isinstance(target, ast.Subscript)
        and isinstance(target.value, ast.Name)
        and isinstance(target.slice, ast.Constant)
    ):
        held = names.known.get(target.value.id)
        if isinstance(held, dict):
            held[target.slice.value] = found


# ── commands in texts ──────────────────────────────────────────────────────────────────────────────────────────────────


def _commands(text: str, first: int, scalar: Scalar) -> list[Launch]:
    """Launch lines in a docstring, each with the lines it is continued on."""
    lines = text.splitlines()
    found: list[Launch] = []
    place = 0
    while place < len(lines):
        start = place
        if LINE.match(lines[place]):
            while lines[place].rstrip().endswith("\\") and place + 1 < len(lines):
                place += 1
            source = "\n".join(line.strip() for line in lines[start : place + 1]).removeprefix("$ ")
            with contextlib.suppress(ShellError):
                found += [replace(each, line=first + start) for each in launches(source, scalar) if each.keys]
        place += 1
    return found


def _run(command: str, holes: Holes, line: int, scalar: Scalar) -> list[Launch]:
    """A text that is a command, or only its flags, as settings."""
    try:
        found = [each for each in launches(holes.with_names(command), scalar) if each.keys and each.program]
    except ShellError:
        found = []
    flags = keys_of(command.split(), holes, scalar)
    return found or ([Launch(flags, line, "")] if flags else [])


def _reason(error: BaseException) -> str:
    return "nested too deeply" if isinstance(error, RecursionError | MemoryError) else str(error).partition(" (")[0]
