"""Low-rank adapters (peft's LoRA) on a frozen model: put in, merged for whoever samples, and in a folder that peft loads.

W' = W + alpha / rank · B·A. Only A and B are trained; everybody else sees W', under the names the model had without adapters.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from transformers import PreTrainedModel

from trimtab.config.training import Lora
from trimtab.errors import CheckpointError, ConfigError
from trimtab.installed import install_command
from trimtab.train.learner.state_files import TensorsByName, read_tensors, save_tensors

ADAPTER = "default"
_BASE, _LOW_RANK = ".base_layer.", ".lora_"
_PEFT = "base_model.model."
CLOSE = 1e-4
"""How far merged weights may lie from those a checkpoint holds, as a part of their size: the same sum on another machine."""


def add_adapters(model: PreTrainedModel, lora: Lora, seed: int) -> None:
    """Put adapters into the model, drawn from the seed, and freeze the rest."""
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError:
        raise ConfigError(
            f"learner.lora needs peft, got none. Install the extra [lora]: {install_command('lora')}"
        ) from None
    targets = lora.targets if isinstance(lora.targets, str) else list(lora.targets)
    settings = LoraConfig(r=lora.rank, lora_alpha=cast("Any", lora.alpha), target_modules=targets, lora_dropout=0.0)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            inject_adapter_in_model(settings, model, ADAPTER)
        except ValueError as error:
            raise ConfigError(f"learner.lora needs targets that the model has, got {lora.targets}: {error}.") from None


def has_adapters(model: PreTrainedModel) -> bool:
    """Whether `add_adapters` was here."""
    return any(_LOW_RANK in name for name, _ in model.named_parameters())


def adapter_weights(model: PreTrainedModel) -> TensorsByName:
    """A and B of every adapter, by name."""
    return {name: each for name, each in model.named_parameters() if _LOW_RANK in name}


@torch.no_grad()
def merged_weights(model: PreTrainedModel, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Weights of a model with adapters as those of one without: each W' under W's name."""
    for name, tensor in weights:
        if _LOW_RANK in name:
            continue
        if name.endswith(f"{_BASE}weight"):
            layer = cast("Any", model.get_submodule(name.removesuffix(f"{_BASE}weight")))
            tensor = tensor + layer.get_delta_weight(ADAPTER).to(tensor.dtype)
        yield name.replace(_BASE, "."), tensor


def save_adapters(folder: Path, model: PreTrainedModel, adapters: TensorsByName) -> None:
    """As peft saves them: `PeftModel.from_pretrained(base, folder)` has the same policy."""
    folder.mkdir()
    settings = cast("Any", model).peft_config[ADAPTER]
    settings.save_pretrained(str(folder))
    named = {_PEFT + name.replace(f".{ADAPTER}.", "."): tensor for name, tensor in adapters.items()}
    save_tensors(folder / "adapter_model.safetensors", named)


def read_adapters(folder: Path, model: PreTrainedModel) -> TensorsByName:
    """What was saved, by the model's own names; nothing is changed."""
    own = adapter_weights(model)
    saved = read_tensors(folder / "adapter_model.safetensors") if folder.is_dir() else {}
    names = {_PEFT + name.replace(f".{ADAPTER}.", "."): name for name in own}
    if saved.keys() != names.keys() or any(saved[key].shape != own[name].shape for key, name in names.items()):
        raise CheckpointError(f"{folder} needs the adapters of this model, got others or none. Load it elsewhere.")
    return {name: saved[key] for key, name in names.items()}


def check_base(folder: Path, model: PreTrainedModel, adapters: TensorsByName, saved: TensorsByName) -> None:
    """Refuse adapters whose frozen weights are no longer those they were trained on: merged, they have to give what was saved."""
    for name, tensor in adapters.items():
        if ".lora_A." not in name:
            continue
        layer, other = name.partition(".lora_A.")[0], adapters[name.replace(".lora_A.", ".lora_B.")]
        base = cast("Any", model.get_submodule(layer))
        merged = base.base_layer.weight.detach().cpu() + base.scaling[ADAPTER] * (other @ tensor)
        wanted = saved[f"{layer}.weight"]
        if float((merged - wanted).norm()) > CLOSE * float(wanted.norm()):
            raise CheckpointError(
                f"{folder} needs the frozen weights its adapters were trained on, got others in {layer}. "
                "Take the model the run began with."
            )
