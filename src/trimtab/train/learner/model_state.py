"""A model and its optimiser in a folder, and back, bit for bit.

model/                  Hugging Face layout: `AutoModelForCausalLM.from_pretrained` loads it
optimizer.safetensors   the optimiser's tensors, by group, parameter and name
optimizer.json          its hyper-parameters and the names of its parameters
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from trimtab.errors import CheckpointError
from trimtab.train.learner.optimizer_state import optimizer_values, restore_optimizer
from trimtab.train.learner.state_files import (
    TensorsByName,
    from_json,
    read_tensors,
    save_json,
    save_tensors,
    without_progress_bars,
)


def save_model_state(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer) -> None:
    """Write both into a folder that is there."""
    with without_progress_bars():
        model.save_pretrained(folder / "model")
    tensors, facts = optimizer_values(model, optimizer)
    save_tensors(folder / "optimizer.safetensors", tensors)
    save_json(folder / "optimizer.json", facts)


def load_model_state(folder: Path, model: PreTrainedModel, optimizer: torch.optim.Optimizer | None = None) -> None:
    """Weights into the model and state into the optimiser, in place; nothing is changed before all of it could be read."""
    facts = from_json(json.loads((folder / "optimizer.json").read_bytes()))
    moments = None if optimizer is None else read_tensors(folder / "optimizer.safetensors")
    _load_weights(folder / "model", model)
    if optimizer is not None and moments is not None:
        restore_optimizer(folder, model, optimizer, facts, moments)


def _load_weights(folder: Path, model: PreTrainedModel) -> None:
    """Copy the saved weights into the model's own; all are compared with the model before any is changed."""
    saved: TensorsByName = {}
    for path in sorted(folder.glob("*.safetensors")):
        saved |= read_tensors(path)
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
    loaded = {own[name].data_ptr() for name in saved if name in own}
    # a weight tied to another is saved once, under the other's name
    absent = sorted(name for name in own if name not in saved and own[name].data_ptr() not in loaded)
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
    with torch.no_grad():
        for name, tensor in saved.items():
            own[name].copy_(tensor)


def _kind(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype
