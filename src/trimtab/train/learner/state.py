"""A model and its optimiser in a folder, and back, bit for bit.

model/                  Hugging Face layout: `AutoModelForCausalLM.from_pretrained` loads it
optimizer.safetensors   the optimiser's tensors, by group, parameter and name
optimizer.json          its hyper-parameters and the names of its parameters
adapter/                with learner.lora, as peft saves it; model/ is then merged
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trimtab.errors import CheckpointError
from trimtab.train.learner.lora import (
    adapter_weights,
    check_base,
    has_adapters,
    merged_weights,
    read_adapters,
    save_adapters,
)
from trimtab.train.learner.ranks import LearnerRanks, as_part, is_sharded, put_whole, whole_tensor
from trimtab.train.learner.state_files import (
    TensorsByName,
    from_json,
    read_tensors,
    save_json,
    save_tensors,
    without_progress_bars,
)


@dataclass(frozen=True, eq=False)
class ModelState:
    """Model and optimiser as whole tensors on the host, whatever they are sharded over."""

    weights: TensorsByName
    """By state-dict name; a weight of two names is one tensor under both."""
    moments: TensorsByName
    facts: dict[str, Any]
    """What the optimiser has beside tensors."""
    adapters: TensorsByName
    """Those that are trained in place of the weights, which are then the merged ones; none elsewhere."""

    @classmethod
    def of(cls, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> ModelState:
        """As they are now. Of what is sharded, all ranks have to ask together; one tensor at a time is whole on a device."""
        moments, facts = optimizer_values(model, optimizer)
        on_host = {name: whole_tensor(tensor).cpu() for name, tensor in moments.items()}
        if has_adapters(model):
            weights = {name: tensor.cpu() for name, tensor in merged_weights(model, once_each(model))}
            adapters = {name: tensor.detach().cpu() for name, tensor in adapter_weights(model).items()}
            return cls(weights, on_host, facts, adapters)
        found = {name: whole_tensor(tensor.detach()).cpu() for name, tensor in once_each(model)}
        first: dict[object, str] = {}
        weights = {name: found[first.setdefault(place, name)] for name, place in _places(model).items()}
        return cls(weights, on_host, facts, {})

    def save(self, folder: Path, model: PreTrainedModel) -> None:
        """Write both into a folder that is there."""
        with without_progress_bars():
            model.save_pretrained(folder / "model", state_dict=self.weights)
        if self.adapters:
            save_adapters(folder / "adapter", model, self.adapters)
        save_tensors(folder / "optimizer.safetensors", self.moments)
        save_json(folder / "optimizer.json", self.facts)

    @classmethod
    def read(cls, folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> ModelState:
        """What was saved, compared with the model and the optimiser it is for; neither is changed."""
        facts = from_json(json.loads((folder / "optimizer.json").read_bytes()))
        moments = read_tensors(folder / "optimizer.safetensors")
        check_optimizer(folder, model, optimizer, facts, moments)
        if has_adapters(model):
            adapters, merged = read_adapters(folder / "adapter", model), _files(folder / "model")
            check_base(folder, model, adapters, merged)
            return cls(merged, moments, facts, adapters)
        return cls(_saved_weights(folder / "model", model), moments, facts, {})

    def put(self, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> None:
        """Into a model and an optimiser, in place; each rank has all of it and keeps its own part."""
        _put_weights(model, self.adapters or self.weights)  # frozen weights are as they were
        put_optimizer(optimizer, self.facts, self.moments)


def share_state(state: ModelState | None, ranks: LearnerRanks) -> ModelState:
    """What rank 0 has, on every rank; the others pass None."""
    parts = None if state is None else (state.weights, state.moments, state.adapters)
    kinds = parts and [{name: (each.shape, each.dtype) for name, each in part.items()} for part in parts]
    heard = ranks.tell(None if state is None else (kinds, state.facts))
    found: list[TensorsByName] = []
    for place, part in enumerate(heard[0]):
        found.append({name: ranks.share(parts and parts[place][name], *kind) for name, kind in part.items()})
    return ModelState(found[0], found[1], heard[1], found[2])


def once_each(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Every weight by state-dict name; a tensor of two names once, under its first."""
    seen: set[object] = set()
    own = model.state_dict()
    for name, place in _places(model).items():
        if place not in seen:
            seen.add(place)
            yield name, own[name]


def _places(model: PreTrainedModel) -> dict[str, object]:
    """What tells one tensor of the state dict from another: its memory; of a sharded one, which may have none here, itself."""
    parameters = model.named_parameters(remove_duplicate=False)
    sharded = {name: id(each) for name, each in parameters if is_sharded(each) or not each.data_ptr()}
    return {
        name: sharded.get(name) or ((each.data_ptr(), each.shape, each.stride()) if each.numel() else name)
        for name, each in model.state_dict().items()
    }


def _put_weights(model: PreTrainedModel, weights: TensorsByName) -> None:
    own = model.state_dict()
    with torch.no_grad():
        for name, tensor in weights.items():
            put_whole(own[name], tensor)


def _saved_weights(folder: Path, model: PreTrainedModel) -> TensorsByName:
    """The saved weights; all are compared with the model's own."""
    saved = _files(folder)
    own = cast("TensorsByName", model.state_dict())
    if not set(saved) <= set(own):  # some architectures are saved under other names than they train with
        with without_progress_bars():
            whole, info = cast(
                "tuple[PreTrainedModel, dict[str, Any]]",
                type(model).from_pretrained(
                    folder,
                    dtype=model.dtype,
                    use_safetensors=True,
                    local_files_only=True,
                    trust_remote_code=False,
                    output_loading_info=True,
                ),
            )
        for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):  # it would begin those from random weights
            if info[kind]:
                name = min(str(each) for each in info[kind])
                raise CheckpointError(
                    f"{folder} needs the weights of this model, got {kind.replace('_', ' ')} such as {name}. "
                    "Load it elsewhere."
                )
        saved = cast("TensorsByName", whole.state_dict())
    places = _places(model)
    loaded = {places[name] for name in saved if name in own}
    # a weight tied to another is saved once, under the other's name
    absent = sorted(name for name in own if name not in saved and places[name] not in loaded)
    foreign = sorted(set(saved) - set(own))
    other = [name for name in saved if name in own and _kind(saved[name]) != _kind(own[name])]
    for names, rule in (
        (absent, "has no"),
        (foreign, "has a foreign"),
        (other, "has another shape or number type for"),
    ):
        if names:
            raise CheckpointError(
                f"{folder} needs the weights of this model, but {rule} {names[0]}. Load it elsewhere."
            )
    return saved


def _files(folder: Path) -> TensorsByName:
    saved: TensorsByName = {}
    for path in sorted(folder.glob("*.safetensors")):
        saved |= read_tensors(path)
    return saved


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


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
