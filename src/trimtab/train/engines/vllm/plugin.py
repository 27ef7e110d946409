"""Inside vLLM's own processes: how a worker takes over the learner's weights.

vLLM calls `register` in each process it starts, through the entry point `vllm.general_plugins`: the engine in this process,
and the workers of a server on which trimtab is installed. From then on `weight_transfer_config.backend: trimtab` names the
transfer below, behind the same four calls as vLLM's own `nccl` and `ipc`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

NAME = "trimtab"
"""What vLLM calls the transfer."""


@dataclass
class NoSetUp:
    """What the transfer needs to begin: nothing."""


@dataclass
class WeightUpdate:
    """One version of the weights, or a part of it: tensors of the same process, or a safetensors file."""

    path: str | None = None
    tensors: Mapping[str, Tensor] = field(default_factory=dict[str, Tensor])
    ties: Mapping[str, str] = field(default_factory=dict[str, str])
    """Second names of tied weights, each with the name it comes under. vLLM keeps the head it has where none is named."""

    def pairs(self) -> Iterator[tuple[str, Tensor]]:
        """Names of the checkpoint and their tensors, one at a time."""
        for name, tensor in self._given():
            yield name, tensor
            for second, first in self.ties.items():
                if first == name:
                    yield second, tensor

    def _given(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.tensors.items()
        if self.path is not None:
            with safe_open(self.path, framework="pt") as file:  # pyright: ignore[reportUnknownVariableType]
                for name in file.keys():  # noqa: SIM118
                    yield name, file.get_tensor(name)


def register() -> None:
    """Make the transfer known to vLLM; a second call changes nothing."""
    factory: Any = importlib.import_module("vllm.distributed.weight_transfer.factory")
    if NAME not in factory.WeightTransferEngineFactory._registry:
        factory.WeightTransferEngineFactory.register_engine(NAME, transfer_class())
    _believe_the_limit()


@cache
def transfer_class() -> type[Any]:
    """The transfer: a class of vLLM's, so it exists only where vLLM does."""
    base: Any = importlib.import_module("vllm.distributed.weight_transfer.base")
    reload: Any = importlib.import_module("vllm.model_executor.model_loader.reload")

    class Transfer(base.WeightTransferEngine):
        """Loads what a checkpoint would hold, layer by layer, into a model that goes on serving."""

        init_info_cls = NoSetUp
        update_info_cls = WeightUpdate

        def init_transfer_engine(self, init_info: NoSetUp) -> None:
            """Nothing to set up."""

        def start_weight_update(self) -> None:
            """Weights are on no device from here to the finish."""
            reload.initialize_layerwise_reload(self.model)

        def receive_weights(self, update_info: WeightUpdate) -> None:
            """Load one part."""
            self.model.load_weights(update_info.pairs())

        def finish_weight_update(self) -> None:
            """Pack what the kernels want packed."""
            reload.finalize_layerwise_reload(self.model, self.model_config)

        def shutdown(self) -> None:
            """Nothing is held."""

    return Transfer


def _believe_the_limit() -> None:
    """Where oneDNN was told to leave AMX alone, vLLM leaves it alone too; it asks the processor, which may lie."""
    limit = os.environ.get("ONEDNN_MAX_CPU_ISA", "")
    if limit and "AMX" not in limit.upper():
        asked: Any = torch.cpu
        asked._is_amx_tile_supported = lambda: False
