"""What a call in a Python script does: objects of settings made and changed, arguments of parsers, commands started."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from trimtab.dialects.sources.flags import flag_name
from trimtab.dialects.sources.python_flow import GONE, MOST_SIZE, Flow, Made, Parsed, is_command
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
PARSERS = ("parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse_args_and_config", "entrypoint")
"""Methods that return the arguments of a script."""
CASTS: dict[str, Callable[[Any], Any]] = {"float": float, "int": int, "str": str, "bool": bool}
REST = "**"
"""The key of a mapping under which another stands that it takes in and that is not known."""
IN_PLACE = "which the script changes in place"
LONGEST = 100_000


@dataclass(frozen=True)
class PythonCall:
    """A call with the values that it is given, and the names under which the script writes them."""

    name: str
    """The whole dotted name of what is called."""
    line: int
    held: Any
    """What a method is called on, or the function itself."""
    args: list[Any] = field(default_factory=list[Any])
    named: dict[str, Any] = field(default_factory=dict[str, Any])
    rest: list[str] = field(default_factory=list[str])
    """Mappings handed on with ** that are not known."""
    shown: list[str] = field(default_factory=list[str])

    @property
    def last(self) -> str:
        """The name without the modules and objects in front."""
        return self.name.rpartition(".")[2]

    def settings(self, flow: Flow) -> dict[str, Any]:
        """The keywords as settings."""
        return {str(key): settled(value, flow) for key, value in self.named.items() if key != REST}


def result_of(call: PythonCall, flow: Flow) -> Any:
    """What a call comes to that is of no function of the script; NotImplemented where no rule knows."""
    name = call.last
    if name in SECTIONS:
        return call.settings(flow)
    if CONFIGS.search(name) and not ENGINES.search(name):
        if TRAINED.search(name) or "RLHF" in name:
            flow.state |= {("handed", f"the mapping **{each} (line {call.line})"): True for each in call.rest}
        return flow.make(name, call.settings(flow))
    rule = RULES.get(name)
    found = rule(call, flow) if rule is not None else NotImplemented
    if name in CHANGES:
        _change(call, flow)
    if call.name.endswith("Blueprint.apply") and call.args:
        flow.make("Blueprint", call.args[0] if isinstance(call.args[0], dict) else {})
    if TRAINERS.search(call.name):
        for each in (*call.args, *call.named.values()):
            if isinstance(each, Made):
                flow.use(each)
    return found


def settled(value: Any, flow: Flow) -> Any:
    """A value as a setting: a text with a gap in it is unknown as a whole."""
    return flow.holes.of(value) if isinstance(value, str) and HOLE.search(value) else value


def as_text(value: Any, flow: Flow, name: str = "") -> str:
    """A value inside a text: a hole where it is unknown."""
    flow.work.charge(flow.work.size(value))
    if not isinstance(value, Unknown):
        return str(value)
    return flow.holes.hole(name or value.name, value.line, value.why, value.several, value.maybe)


def set_field(held: Any, root: str, path: str, value: Any, flow: Flow) -> None:
    """`config.epsilon = 0.4`: of an object the script makes, of its arguments, or of what is called like settings."""
    value = settled(value, flow)
    if isinstance(held, Made):
        flow.put(held, {path: value})
        return
    if isinstance(held, Parsed):
        flow["parsed", path] = value
    if SETTINGS.search(root) and not path.startswith("_"):
        flow["key", path] = value


def change(held: Any, changed: Any, name: str, flow: Flow) -> None:
    """Put a changed list or mapping in place of what it was, unless it grows out of all measure."""
    large = isinstance(changed, list | dict) and flow.work.size(changed) > MOST_SIZE
    flow.rebind(held, flow.unknown(name, "which is larger than settings are") if large else changed)


# ── lists and mappings ─────────────────────────────────────────────────────────────────────────────────────────────────


def _change(call: PythonCall, flow: Flow) -> None:
    """A method that changes a list or mapping, under every name that it has."""
    held, name = call.held, call.name.rpartition(".")[0]
    if not isinstance(held, list | dict) or flow.name(name) is not held:
        return
    changed: Any = flow.unknown(name, IN_PLACE)
    more = call.args[0] if len(call.args) == 1 else None
    if isinstance(held, dict):
        changed = _changed_mapping(cast("dict[Any, Any]", held), call, flow)
    elif call.last == "append" and len(call.args) == 1:
        changed = [*cast("list[Any]", held), more]
    elif call.last == "extend" and len(call.args) == 1:
        gap = flow.unknown(name, several=True)
        changed = [*cast("list[Any]", held), *(cast("list[Any]", more) if isinstance(more, list) else [gap])]
    change(held, changed, name, flow)


def _changed_mapping(held: Mapping[Any, Any], call: PythonCall, flow: Flow) -> Any:
    method, given = call.last, call.args
    rest = {REST: flow.unknown(f".{method}(…)")}
    if method == "update" and len(given) <= 1:
        more = given[0] if given else {}
        return {**held, **(cast("dict[Any, Any]", more) if isinstance(more, dict) else rest), **call.settings(flow)}
    key = given[0] if given and isinstance(given[0], str) else None
    if key is not None and method == "pop":
        return {name: value for name, value in held.items() if name != key}
    if key is not None and method == "setdefault" and REST not in held:
        return {key: given[1] if len(given) > 1 else None, **held}
    return {} if method == "clear" else {name: flow.unknown(str(name)) for name in held} | rest


def _copy(call: PythonCall, flow: Flow) -> Any:
    """`replace(config, epsilon=0.4)`, `deepcopy(config)`: another object; `mapping.copy()`."""
    if call.args and isinstance(call.args[0], Made):
        config = flow.alike(call.args[0].numbers)
        return flow.make(config.kind, {**config.keys, **call.settings(flow)})
    is_method = not call.args and call.last == "copy" and isinstance(call.held, list | dict)
    return call.held.copy() if is_method else NotImplemented


def _get(call: PythonCall, flow: Flow) -> Any:
    if call.name.endswith("environ.get"):
        return _variable(call, flow)
    if not call.args or not isinstance(call.args[0], str) or not isinstance(call.held, dict) or REST in call.held:
        return NotImplemented
    return cast("dict[str, Any]", call.held).get(call.args[0], call.args[1] if len(call.args) > 1 else None)


def _join(call: PythonCall, flow: Flow) -> Any:
    if len(call.args) != 1 or not isinstance(call.held, str) or not isinstance(call.args[0], list):
        return NotImplemented
    return call.held.join(as_text(each, flow) for each in cast("list[Any]", call.args[0]))[:LONGEST]


def _mapping(call: PythonCall, flow: Flow) -> Any:
    del flow
    if call.name != "dict" or len(call.args) > 1:
        return NotImplemented
    first = call.args[0] if call.args else {}
    return {**(cast("dict[str, Any]", first) if isinstance(first, dict) else {REST: first}), **call.named}


def _cast(call: PythonCall, flow: Flow) -> Any:
    if call.name not in CASTS or len(call.args) != 1 or call.named:
        return NotImplemented
    value = call.args[0]
    gaps = cast("list[Any]", value) if isinstance(value, list) else [value]
    if any(isinstance(each, Unknown) for each in gaps) or (isinstance(value, str) and HOLE.search(value)):
        return value
    flow.work.charge(flow.work.size(value))
    try:
        return CASTS[call.name](value)
    except (TypeError, ValueError, OverflowError):
        return NotImplemented


def _variable(call: PythonCall, flow: Flow) -> Any:
    return flow.unknown(f"the environment variable {call.shown[0]}" if call.args else call.name)


# ── parsers, commands and requests ─────────────────────────────────────────────────────────────────────────────────────


def _argument(call: PythonCall, flow: Flow) -> Any:
    """An argument of the script's parser, with its default."""
    long = next((each for each in call.args if isinstance(each, str) and each.startswith("--")), "")
    if long and not HOLE.search(long):
        said = call.settings(flow)
        value = said.get("default", {"store_true": False, "store_false": True}.get(str(said.get("action"))))
        name = said["dest"] if isinstance(said.get("dest"), str) else flag_name(long)
        if not said.get("required"):
            flow["parsed", name] = value
        if "default" in said and value is not None and flow["default", flag_name(long)] is GONE:
            flow["default", flag_name(long)] = value
    return NotImplemented


def _defaults(call: PythonCall, flow: Flow) -> Any:
    for key, value in call.settings(flow).items():
        flow["default", key] = flow["parsed", key] = value
    return NotImplemented


def _field(call: PythonCall, flow: Flow) -> Any:
    del flow
    return call.named.get("default", NotImplemented)


def _set_attribute(call: PythonCall, flow: Flow) -> Any:
    """`setattr(config, "epsilon", 0.4)`; one whose name is not known may set any key."""
    if len(call.args) == 3:
        held, name, value = call.args
        if isinstance(name, str) and not HOLE.search(name):
            set_field(held, call.shown[0], name, value, flow)
        elif isinstance(held, Made | Parsed) or SETTINGS.search(call.shown[0]):
            flow["handed", f"what setattr names (line {call.line})"] = True
    return NotImplemented


def _run(call: PythonCall, flow: Flow) -> Any:
    """The commands among what a call is given, and the program that it names beside their flags."""
    given = (*call.args, *call.named.values())
    flow.texts += [(text, call.line) for each in given if (text := _command(each, flow))]
    program = call.named.get("train_script")
    if isinstance(program, str) and not HOLE.search(program):
        flow["default", "train_script"] = program
    return NotImplemented


def _command(value: Any, flow: Flow) -> str:
    """A command as one text, what is unknown in it as gaps; nothing where it is none."""
    if isinstance(value, list) and all(isinstance(each, str | Unknown) for each in cast("list[Any]", value)):
        words = [as_text(each, flow) for each in cast("list[Any]", value)]
        value = " ".join(each if not re.search(r"[\s'\"]", each) else f"'{each}'" for each in words)
    return value if isinstance(value, str) and is_command(value) else ""


def _request(call: PythonCall, flow: Flow) -> Any:
    """The loss of one request and its settings, by name or by place behind the batch."""
    placed = dict(zip(("loss_fn", "loss_fn_config"), call.args[1:3], strict=False))
    keys = {key: settled(value, flow) for key, value in placed.items()} | call.settings(flow)
    keys = {key: value for key, value in keys.items() if key.startswith("loss_fn")}
    if keys:
        flow.make(REQUESTS[0], keys)
    return NotImplemented


RULES: dict[str, Callable[[PythonCall, Flow], Any]] = {
    "add_argument": _argument,
    "set_defaults": _defaults,
    "setattr": _set_attribute,
    "dict": _mapping,
    "get": _get,
    "getenv": _variable,
    "join": _join,
    "strip": lambda call, flow: call.held.strip() if isinstance(call.held, str) and not call.args else NotImplemented,
    **dict.fromkeys(("field", "Field"), _field),
    **dict.fromkeys(("replace", "copy", "deepcopy"), _copy),
    **dict.fromkeys(PARSERS, lambda call, flow: Parsed(f"{call.name}()", flow.line)),
    **dict.fromkeys(CASTS, _cast),
    **dict.fromkeys(REQUESTS, _request),
    **dict.fromkeys(RUNS, _run),
}
