"""What one statement of a Python script says: objects of settings made and changed, arguments of parsers, commands in texts."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trimtab.dialects.sources.flags import flag_name
from trimtab.dialects.sources.python_flow import GONE, MOST_SIZE, Flow, Made, is_command
from trimtab.dialects.sources.python_values import REST, TOO_LARGE, Parsed, as_text, dotted_name, value_of
from trimtab.dialects.sources.unknown import HOLE, Unknown

CONFIGS = re.compile(r"(\w*(Config|Arguments|Args))$")
ENGINES = re.compile(r"Lora|Peft|BitsAndBytes|Quant|Dataset|Script|Model|Generation|Sampling|Wandb|Logging|Kernel")
SETTINGS = re.compile(r"args|config|cfg|conf|opts", re.IGNORECASE)
"""What people call the object that holds settings."""
TRAINED = re.compile(r"(GRPO|RLOO|PPO)(?!.*Critic)")
OTHER_TRAINING = re.compile(r"(SFT|DPO|KTO|ORPO|CPO|GKD|Reward|PRM|BCO|XPO|NashMD|OnlineDPO)Config")
"""Settings of training without a sampler to correct for, beside those of one with it."""
TRAINERS = re.compile(r"(Trainer|Learner|Exp|\btrain|\btrain\.main|\.fit)$")
"""What is handed the settings that count."""
SECTIONS = {"AsyncConfig"}
"""Classes whose object is a section of another's settings, which has keys of the same names."""
REQUESTS = ("forward_backward", "forward_backward_async")
"""Calls that hand a batch to a training service with the name of its loss."""
RUNS = {
    "run", "Popen", "check_call", "call", "system", "exec_command", "execute_train", "check_output", "run_command",
}  # fmt: skip
"""Calls that start a command."""
CHANGES = {"clear", "popitem", "insert", "remove", "sort", "reverse", "pop", "setdefault", "extend", "append", "update"}
"""Methods that change a list or mapping."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class PythonFunction(Unknown):
    """A function of the script, and the scopes that it looks names up in."""

    node: Any = None
    scopes: tuple[int, ...] = ()
    is_generator: bool = False


@dataclass
class PythonScript:
    """A script on the way through it."""

    flow: Flow
    follow: Callable[[ast.Call, PythonFunction, PythonScript], Any]
    """What a call of a function of the script comes to."""
    texts: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    """Commands that it starts, with the line."""
    classes: set[str] = field(default_factory=set[str])
    """Classes of the script whose fields are its settings."""


def take(node: ast.stmt, script: PythonScript) -> None:
    """What the expressions of one statement do, not those of statements inside it; and what it assigns."""
    flow = script.flow
    for each, shadowed in reversed(list(_expressions(node))):
        flow.work.charge()
        if isinstance(each, ast.NamedExpr):
            bind(each.target, value_of(each.value, flow, each.lineno), script)
            continue
        before = flow.scopes
        if shadowed:
            flow.scopes = (flow.number(), *before)
            for name in shadowed:
                flow.bind(name, Unknown(name, each.lineno))
        _call(each, script)
        flow.scopes = before
    if isinstance(node, ast.Assign):
        value = value_of(node.value, flow, node.lineno)
        for target in node.targets:
            bind(target, value, script)
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        bind(node.target, value_of(node.value, flow, node.lineno), script)
    elif isinstance(node, ast.AugAssign):
        _augment(node, script)


def _augment(node: ast.AugAssign, script: PythonScript) -> None:
    """`x += y`: a list or mapping is changed under all its names."""
    value = value_of(ast.BinOp(node.target, node.op, node.value), script.flow, node.lineno)
    held = value_of(node.target, script.flow, node.lineno)
    if isinstance(node.target, ast.Name) and isinstance(held, list | dict):
        script.flow.rebind(held, value)
    bind(node.target, value, script)


def _expressions(node: ast.stmt) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Calls and `:=` of one statement, the outer before the inner and the last before the first; with names that are bound round them."""
    pending: list[tuple[ast.AST, tuple[str, ...]]] = [(node, ())]
    while pending:
        each, shadowed = pending.pop()
        if isinstance(each, ast.Call | ast.NamedExpr):
            yield each, shadowed
        if isinstance(each, ast.Lambda):
            shadowed = (*shadowed, *(one.arg for one in _parameters(each.args)))
        elif isinstance(each, COMPREHENSIONS):
            shadowed = (*shadowed, *(name for one in each.generators for name in stored(one.target)))
        pending += [(inner, shadowed) for inner in ast.iter_child_nodes(each) if not isinstance(inner, ast.stmt)]


def _parameters(given: ast.arguments) -> Iterator[ast.arg]:
    yield from (*given.posonlyargs, *given.args, *given.kwonlyargs)
    yield from (each for each in (given.vararg, given.kwarg) if each is not None)


def stored(*nodes: ast.AST) -> Iterator[str]:
    """The names that are bound somewhere inside."""
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                yield each.id


# ── what is assigned ───────────────────────────────────────────────────────────────────────────────────────────────────


def bind(target: ast.expr, value: Any, script: PythonScript) -> None:
    """Put a value where a target says."""
    flow = script.flow
    if isinstance(target, ast.Name):
        flow.bind(target.id, value)
    elif isinstance(target, ast.Starred):
        bind(target.value, Unknown(dotted_name(target.value), target.lineno), script)
    elif isinstance(target, ast.Tuple | ast.List):
        for each, inner in zip(target.elts, _unpacked(target, value), strict=True):
            bind(each, inner, script)
    elif isinstance(target, ast.Attribute):
        root, _, path = dotted_name(target).partition(".")
        if path:
            set_field(flow.name(root), root, path, value, script)
    elif isinstance(target, ast.Subscript):
        _set_item(target, value, script)


def _unpacked(target: ast.Tuple | ast.List, value: Any) -> list[Any]:
    """A value for each part of a target: the arguments of a parser, items one by one, else unknown."""
    count = len(target.elts)
    if isinstance(value, Parsed):
        return [value] * count
    known = isinstance(value, list) and not any(isinstance(each, ast.Starred) for each in target.elts)
    items = cast("list[Any]", value) if known else []
    if len(items) == count and not any(isinstance(each, Unknown) and each.several for each in items):
        return items
    return [Unknown(dotted_name(each), target.lineno) for each in target.elts]


def set_field(held: Any, root: str, path: str, value: Any, script: PythonScript) -> None:
    """`config.epsilon = 0.4`: of an object the script makes, of its arguments, or of what is called like settings."""
    value = settled(value, script.flow)
    if isinstance(held, Made):
        script.flow.put(held.number, {path: value})
        return
    if isinstance(held, Parsed):
        script.flow["parsed", path] = value
    if SETTINGS.search(root) and not path.startswith("_"):
        script.flow["key", path] = value


def _set_item(target: ast.Subscript, value: Any, script: PythonScript) -> None:
    """`settings["epsilon"] = 0.4`, under every name that the mapping has."""
    flow, path = script.flow, list[Any]()
    node: ast.expr = target
    while isinstance(node, ast.Subscript):
        path.insert(0, value_of(node.slice, flow, target.lineno))
        node = node.value
    held = flow.name(node.id) if isinstance(node, ast.Name) else GONE
    if isinstance(held, list | dict):
        changed = _with_item(held, path, value, dotted_name(node), target.lineno)
        _replace(held, changed, dotted_name(node), target.lineno, script)


def _with_item(held: Any, path: list[Any], value: Any, name: str, line: int) -> Any:
    """A copy of a list or mapping with one item set; with an unknown rest where it is not known which."""
    key, *rest = path
    if isinstance(held, dict):
        known = cast("dict[Any, Any]", held)
        if not isinstance(key, str):
            return {**known, REST: Unknown(f"{name}[…]", line)}
        inner = known.get(key, Unknown(name, line))
        return {**known, key: _with_item(inner, rest, value, name, line) if rest else value}
    if (
        isinstance(held, list)
        and isinstance(key, int)
        and -len(cast("list[Any]", held)) <= key < len(cast("list[Any]", held))
    ):
        items = cast("list[Any]", held).copy()
        items[key] = _with_item(items[key], rest, value, name, line) if rest else value
        return items
    return Unknown(name, line, "which the script changes in place")


def _replace(held: Any, changed: Any, name: str, line: int, script: PythonScript) -> None:
    """Put a changed list or mapping in place of what it was, unless it grows out of all measure."""
    large = isinstance(changed, list | dict) and script.flow.work.size(changed) > MOST_SIZE
    script.flow.rebind(held, Unknown(name, line, TOO_LARGE) if large else changed)


def settled(value: Any, flow: Flow) -> Any:
    """A value as a setting: a text with a gap in it is unknown as a whole."""
    return flow.holes.of(value) if isinstance(value, str) and HOLE.search(value) else value


# ── calls ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _call(call: ast.Call, script: PythonScript) -> None:
    flow = script.flow
    whole = dotted_name(call.func)
    name = whole.rpartition(".")[2]
    function = flow.name(whole)
    if isinstance(function, PythonFunction):
        flow.results[id(call)] = script.follow(call, function, script)
    elif name in SECTIONS:
        flow.results[id(call)] = keywords(call, flow)
    elif CONFIGS.search(name) and not ENGINES.search(name):
        flow.results[id(call)] = flow.make(name, call.lineno, keywords(call, flow, is_trained=_is_trained(name)))
    elif name in ("replace", "copy", "deepcopy") and call.args:
        _copy(call, flow)
    elif isinstance(call.func, ast.Attribute) and name in CHANGES:
        _change(call, call.func, script)
    else:
        rule = RULES.get(name)
        if rule is not None:
            rule(call, script)
        elif name in RUNS:
            _run(call, script)
        if whole.endswith("Blueprint.apply") and call.args:
            held = value_of(call.args[0], flow, call.lineno)
            flow.make("Blueprint", call.lineno, cast("dict[str, Any]", held) if isinstance(held, dict) else {})
        if TRAINERS.search(whole):
            _use(call, flow)


def _run(call: ast.Call, script: PythonScript) -> None:
    """The commands among what a call is given, and the program that it names beside their flags."""
    flow = script.flow
    script.texts += [(text, call.lineno) for each in _given(call) if (text := _command(each, call.lineno, flow))]
    for word in call.keywords:
        program = value_of(word.value, flow, call.lineno) if word.arg == "train_script" else None
        if isinstance(program, str) and not HOLE.search(program):
            flow["default", "train_script"] = program


def _is_trained(name: str) -> bool:
    return bool(TRAINED.search(name)) or "RLHF" in name


def _given(call: ast.Call) -> Iterator[ast.expr]:
    yield from (*call.args, *(word.value for word in call.keywords))


def _use(call: ast.Call, flow: Flow) -> None:
    """Objects of settings that are handed to a trainer."""
    for each in _given(call):
        value = value_of(each, flow, call.lineno)
        if isinstance(value, Made):
            flow["used", value.number] = True


def _copy(call: ast.Call, flow: Flow) -> None:
    """`replace(config, epsilon=0.4)`, `deepcopy(config)`: another object."""
    held = value_of(call.args[0], flow, call.lineno)
    if isinstance(held, Made):
        config = flow.config(held.number)
        flow.results[id(call)] = flow.make(config.kind, call.lineno, {**config.keys, **keywords(call, flow)})


def _command(node: ast.expr, line: int, flow: Flow) -> str:
    """A command as one text, what is unknown in it as gaps; nothing where it is none."""
    value = value_of(node, flow, line)
    if isinstance(value, list) and all(isinstance(each, str | Unknown) for each in cast("list[Any]", value)):
        words = [as_text(each, flow) for each in cast("list[Any]", value)]
        value = " ".join(each if not re.search(r"[\s'\"]", each) else f"'{each}'" for each in words)
    return value if isinstance(value, str) and is_command(value) else ""


def keywords(call: ast.Call, flow: Flow, *, is_trained: bool = False) -> dict[str, Any]:
    """The keywords of a call, mappings handed on with ** among them."""
    found: dict[str, Any] = {}
    for word in call.keywords:
        value = value_of(word.value, flow, call.lineno)
        if word.arg is not None:
            found[word.arg] = settled(value, flow)
            continue
        held = cast("dict[Any, Any]", value) if isinstance(value, dict) else {REST: value}
        found |= {str(key): settled(inner, flow) for key, inner in held.items() if key != REST}
        if REST in held and is_trained:
            flow["handed", f"the mapping **{dotted_name(word.value) or '…'} (line {call.lineno})"] = True
    return found


def _request(call: ast.Call, script: PythonScript) -> None:
    """The loss of one request and its settings, by name or by place behind the batch."""
    said = zip(("loss_fn", "loss_fn_config"), call.args[1:3], strict=False)
    placed = {name: settled(value_of(each, script.flow, call.lineno), script.flow) for name, each in said}
    keys = {**placed, **keywords(call, script.flow)}
    keys = {key: value for key, value in keys.items() if key.startswith("loss_fn")}
    if keys:
        script.flow.make(REQUESTS[0], call.lineno, keys)


def _argument(call: ast.Call, script: PythonScript) -> None:
    """An argument of the script's parser, with its default."""
    flow = script.flow
    flags = [each.value for each in call.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    long = next((each for each in flags if each.startswith("--")), None)
    if long is None:
        return
    said = {word.arg: settled(value_of(word.value, flow, call.lineno), flow) for word in call.keywords if word.arg}
    value = said.get("default", {"store_true": False, "store_false": True}.get(str(said.get("action"))))
    name = said["dest"] if isinstance(said.get("dest"), str) else flag_name(long)
    if not said.get("required"):
        flow["parsed", name] = value
    if "default" in said and value is not None and flow["default", flag_name(long)] is GONE:
        flow["default", flag_name(long)] = value


def _defaults(call: ast.Call, script: PythonScript) -> None:
    for key, value in keywords(call, script.flow).items():
        script.flow["default", key] = script.flow["parsed", key] = value


def _set_attribute(call: ast.Call, script: PythonScript) -> None:
    """`setattr(config, "epsilon", 0.4)`; one whose name is not known may set any key."""
    if len(call.args) != 3:
        return
    flow, root = script.flow, dotted_name(call.args[0])
    held, name, value = (value_of(each, flow, call.lineno) for each in call.args)
    if isinstance(name, str) and not HOLE.search(name):
        set_field(held, root, name, value, script)
    elif isinstance(held, Made | Parsed) or SETTINGS.search(root):
        flow["handed", f"what setattr names (line {call.lineno})"] = True


def _change(call: ast.Call, method: ast.Attribute, script: PythonScript) -> None:
    """A method that changes a list or mapping, under every name that it has."""
    flow, name = script.flow, dotted_name(method.value)
    held = value_of(method.value, flow, call.lineno)
    if not isinstance(held, list | dict) or flow.name(name) is not held:
        return
    changed: Any = Unknown(name, call.lineno, "which the script changes in place")
    given = [value_of(each, flow, call.lineno) for each in call.args]
    if isinstance(held, dict):
        changed = _changed_mapping(cast("dict[Any, Any]", held), method.attr, given, call, flow)
    elif method.attr == "append" and len(given) == 1:
        changed = [*cast("list[Any]", held), given[0]]
    elif method.attr == "extend" and len(given) == 1:
        more = given[0]
        gap = Unknown(name, call.lineno, several=True)
        changed = [*cast("list[Any]", held), *(cast("list[Any]", more) if isinstance(more, list) else [gap])]
    _replace(held, changed, name, call.lineno, script)


def _changed_mapping(held: Mapping[Any, Any], method: str, given: list[Any], call: ast.Call, flow: Flow) -> Any:
    rest = {REST: Unknown(f".{method}(…)", call.lineno)}
    if method == "update" and len(given) <= 1:
        more = given[0] if given else {}
        return {**held, **(cast("dict[Any, Any]", more) if isinstance(more, dict) else rest), **keywords(call, flow)}
    key = given[0] if given and isinstance(given[0], str) else None
    if key is not None and method == "pop":
        return {name: value for name, value in held.items() if name != key}
    if key is not None and method == "setdefault" and REST not in held:
        return {key: given[1] if len(given) > 1 else None, **held}
    return {} if method == "clear" else {name: Unknown(str(name), call.lineno) for name in held} | rest


RULES: dict[str, Callable[[ast.Call, PythonScript], None]] = {
    "add_argument": _argument,
    "set_defaults": _defaults,
    "setattr": _set_attribute,
    **dict.fromkeys(REQUESTS, _request),
}
