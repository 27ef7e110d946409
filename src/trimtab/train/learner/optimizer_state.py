"""An optimiser's state as named tensors and plain values, and back, bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from trimtab.errors import CheckpointError
from trimtab.train.learner.ranks import as_part
from trimtab.train.learner.state_files import TensorsByName


def optimizer_values(model: nn.Module, optimizer: torch.optim.Optimizer) -> tuple[TensorsByName, dict[str, Any]]:
    """Its tensors by `state.parameter.name` or `group.number.name`, and the rest as plain values."""
    whole = optimizer.state_dict()
    tensors: TensorsByName = {}
    state: dict[str, dict[str, Any]] = {}
    for index, values in whole["state"].items():
        state[str(index)] = _plain_values(f"state.{index}", values, tensors)
    groups = [_plain_values(f"group.{index}", group, tensors) for index, group in enumerate(whole["param_groups"])]
    kind = type(optimizer).__name__
    return tensors, {"kind": kind, "parameters": _names(model, optimizer), "state": state, "groups": groups}


def check_optimizer(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, facts: Mapping[str, Any], tensors: TensorsByName
) -> None:
    """Refuse saved values that are not those of an optimiser of the same kind over the same parameters; nothing is changed."""
    here = {"kind": type(optimizer).__name__, "parameters": _names(model, optimizer)}
    for name, value in here.items():
        if facts[name] != value:
            raise CheckpointError(f"{path} needs an optimiser of the same {name}, got another. It was {facts['kind']}.")
    state, groups = _put_together(facts, tensors)
    flaw = _state_flaw(optimizer, state) or _group_flaw(optimizer, groups)
    if flaw is not None:
        raise CheckpointError(
            f"{path} needs an optimiser's state that fits the model, got {flaw}. "
            "Move it away to go on from the one before it."
        )


def put_optimizer(optimizer: torch.optim.Optimizer, facts: Mapping[str, Any], tensors: TensorsByName) -> None:
    """Put saved values, which are whole, into the optimiser; of what is sharded each rank takes its own part."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state, groups = _put_together(facts, tensors)
    for index, values in state.items():
        for key, value in values.items():
            if isinstance(value, Tensor) and value.shape == parameters[index].shape:
                values[key] = as_part(value, parameters[index])
    optimizer.load_state_dict({"state": state, "param_groups": groups})
    _make_exact(optimizer, state)


def _put_together(
    facts: Mapping[str, Any], tensors: TensorsByName
) -> tuple[dict[int, dict[str, Any]], list[dict[str, Any]]]:
    """State by parameter and groups, plain values and tensors together."""
    state = {int(index): dict[str, Any](values) for index, values in facts["state"].items()}
    groups = [dict[str, Any](group) for group in facts["groups"]]
    for name, tensor in tensors.items():
        place, index, key = name.split(".", 2)
        (state.setdefault(int(index), {}) if place == "state" else groups[int(index)])[key] = tensor
    return state, groups


def _plain_values(prefix: str, values: Mapping[str, Any], tensors: TensorsByName) -> dict[str, Any]:
    """The plain values; the tensors go to `tensors`."""
    tensors |= {f"{prefix}.{key}": value for key, value in values.items() if isinstance(value, Tensor)}
    return {key: value for key, value in values.items() if not isinstance(value, Tensor)}


def _names(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[list[str]]:
    """The parameters of each group, by name: a state moved to the wrong weight would train on, badly."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [[names.get(id(parameter), "?") for parameter in group["params"]] for group in optimizer.param_groups]


def _state_flaw(optimizer: torch.optim.Optimizer, state: Mapping[int, Mapping[str, Any]]) -> str | None:
    """A tensor that is neither one number nor of its parameter's shape: it would fail in the middle of a step."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, values in state.items():
        if not 0 <= index < len(parameters):
            return f"values of parameter {index} of {len(parameters)}"
        for key, value in values.items():
            if isinstance(value, Tensor) and value.numel() != 1 and value.shape != parameters[index].shape:
                return f"{key} of shape {tuple(value.shape)} for a parameter of {tuple(parameters[index].shape)}"
    return None


def _group_flaw(optimizer: torch.optim.Optimizer, groups: list[dict[str, Any]]) -> str | None:
    """A hyper-parameter of another kind than the optimiser has."""
    for here, saved in zip(optimizer.param_groups, groups, strict=True):
        for key, value in here.items():
            if key == "params":
                continue
            if key not in saved:
                return f"no {key}"
            if not _alike(value, saved[key]):
                return f"{key} = {saved[key]!r}"[:100]
    return None


def _alike(value: object, other: object) -> bool:
    """Whether two hyper-parameters are of one kind: numbers, one-number tensors, flags, tuples of as many."""
    if isinstance(value, tuple) and isinstance(other, tuple):
        pairs = zip(cast("tuple[object, ...]", value), cast("tuple[object, ...]", other), strict=False)
        return len(value) == len(other) and all(_alike(one, two) for one, two in pairs)
    if isinstance(value, bool) or value is None or isinstance(other, bool) or other is None:
        return {type(value), type(other)} <= {bool, type(None)}
    if isinstance(value, int | float | Tensor):
        return isinstance(other, int | float | Tensor) and math.isfinite(other)
    return type(value) is type(other)


def _make_exact(optimizer: torch.optim.Optimizer, state: Mapping[int, Mapping[str, Any]]) -> None:
    """Undo the cast to the parameter's number type that `load_state_dict` makes (float32 moments of bfloat16 weights)."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, values in state.items():
        present = cast("dict[str, Any]", optimizer.state[parameters[index]])
        for key, value in values.items():
            if isinstance(value, Tensor):
                present[key] = value.to(present[key].device, copy=True)
