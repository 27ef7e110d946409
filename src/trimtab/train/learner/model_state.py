"""A model and its optimiser in a folder, and back, bit for bit.

model/                  Hugging Face layout: `AutoModelForCausalLM.from_pretrained` loads it
optimizer.safetensors   the optimiser's tensors, by group, parameter and name
optimizer.json          its hyper-parameters and the names of its parameters
adapter/                with learner.lora, as peft saves it; model/ is then merged
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from trimtab.errors import CheckpointError
from trimtab.train.learner.adapters import (
    adapter_weights,
    check_base,
    has_adapters,
    merged_weights,
    read_adapters,
    save_adapters,
)
from trimtab.train.learner.optimizer_state import check_optimizer, optimizer_values, put_optimizer
from trimtab.train.learner.ranks import LearnerRanks, is_sharded, put_whole, whole_tensor
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
