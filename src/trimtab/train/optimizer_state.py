"""An optimiser's state as named tensors and plain values, and back, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from trimtab.errors import CheckpointError

Values = dict[str, Tensor]


def optimizer_values(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[Values, dict[str, Any]]:
    """Its tensors by `state.parameter.name` or `group.number.name`, and the rest as plain values."""
    whole = optimizer.state_dict()
    tensors: Values = {}
    state: dict[str, dict[str, Any]] = {}
    for index, values in whole["state"].items():
        state[str(index)] = _sorted_out(f"state.{index}", values, tensors)
    groups = [_sorted_out(f"group.{index}", group, tensors) for index, group in enumerate(whole["param_groups"])]
    kind = type(optimizer).__name__
    return tensors, {"kind": kind, "parameters": _names(model, optimizer), "state": state, "groups": groups}


def restore_optimizer(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, facts: Mapping[str, Any], tensors: Values
) -> None:
    """Put saved values into the optimiser of the same kind over the same parameters."""
    here = {"kind": type(optimizer).__name__, "parameters": _names(model, optimizer)}
    for name, value in here.items():
        if facts[name] != value:
            raise CheckpointError(f"{path} needs an optimiser of the same {name}, got another. It was {facts['kind']}.")
    state = {int(index): dict[str, Any](values) for index, values in facts["state"].items()}
    groups = [dict[str, Any](group) for group in facts["groups"]]
    for name, tensor in tensors.items():
        place, index, key = name.split(".", 2)
        (state.setdefault(int(index), {}) if place == "state" else groups[int(index)])[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    _make_exact(optimizer, state)


def encoded(value: object) -> Any:
    """The value as strict JSON, told apart where JSON has one form for two: tuples, numbers that are not finite."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, tuple):
        return {"tuple": [encoded(item) for item in cast("tuple[object, ...]", value)]}
    if isinstance(value, list):
        return [encoded(item) for item in cast("list[object]", value)]
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value)
        if all(isinstance(key, str) for key in pairs):
            inner = {str(key): encoded(item) for key, item in pairs.items()}
            return {"dict": inner} if set(inner) in ({"float"}, {"tuple"}, {"dict"}) else inner
    raise CheckpointError(
        f"A checkpoint needs plain values (numbers, text, lists, dicts with text keys), got {type(value).__name__}. "
        "Put arrays and tensors into `arrays`."
    )


def decoded(value: Any) -> Any:
    """What `encoded` was given."""
    if isinstance(value, list):
        return [decoded(item) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    pairs = cast("dict[str, Any]", value)
    if set(pairs) == {"float"}:
        return float(pairs["float"])
    if set(pairs) == {"tuple"}:
        return tuple(decoded(item) for item in pairs["tuple"])
    inner = cast("dict[str, Any]", pairs["dict"]) if set(pairs) == {"dict"} else pairs
    return {key: decoded(item) for key, item in inner.items()}


def _sorted_out(prefix: str, values: Mapping[str, Any], tensors: Values) -> dict[str, Any]:
    """The plain values; the tensors go to `tensors`."""
    tensors |= {f"{prefix}.{key}": value for key, value in values.items() if isinstance(value, Tensor)}
    return {key: value for key, value in values.items() if not isinstance(value, Tensor)}


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[list[str]]:
    """The parameters of each group, by name: a state moved to the wrong weight would train on, badly."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[names.get(id(parameter), "?") for parameter in group["params"]] for group in optimizer.param_groups]


def _make_exact(optimizer: torch.optim.Optimizer, state: Mapping[int, Mapping[str, Any]]) -> None:
    """Undo the cast to the parameter's number type that `load_state_dict` makes (float32 moments of bfloat16 weights)."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, values in state.items():
        present = cast("dict[str, Any]", optimizer.state[parameters[index]])
        for key, value in values.items():
            if isinstance(value, Tensor):
                present[key] = value.to(present[key].device, copy=True)
