"""Weights as a sampler of lower precision holds them: really rounded, so that its mismatch is real."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from trimtab.config.training import KvCache, Precision
from trimtab.errors import InputError, nearest


def _scaled(top: float, to_grid: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Rounding on a symmetric grid that reaches from -top to top, stretched to the largest entry of each row."""

    def result(rows: Tensor) -> Tensor:
        peak = rows.abs().amax(-1, keepdim=True)
        scale = torch.where(peak == 0, 1.0, peak / top)
        return to_grid(rows / scale) * scale

    return result


def _e4m3(values: Tensor) -> Tensor:
    return values.clamp(-448.0, 448.0).to(torch.float8_e4m3fn).to(values.dtype)


ROUNDING: dict[Precision, Callable[[Tensor], Tensor]] = {
    "fp32": lambda rows: rows,
    "bf16": lambda rows: rows,  # every tensor is cast where it is copied
    "fp8": _scaled(448.0, _e4m3),
    "int8": _scaled(127.0, lambda rows: rows.round().clamp(-127.0, 127.0)),
    "int4": _scaled(7.0, lambda rows: rows.round().clamp(-7.0, 7.0)),
}

STATES: dict[KvCache, Callable[[Tensor], Tensor]] = {"auto": lambda states: states, "fp8": _e4m3}
"""Keys or values as a cache keeps them; no scale, which is what vLLM's fp8 cache has unless it is given one."""


def round_weight(weight: Float[Tensor, "*shape"], precision: Precision, *, out: int = 0) -> Float[Tensor, "*shape"]:
    """A linear's weight after quantising and dequantising: symmetric, one scale per output channel (axis `out`)."""
    rows = weight.float().movedim(out, 0)
    return ROUNDING[precision](rows.flatten(1)).view_as(rows).movedim(0, out)


class Quantizer:
    """What a model's weights are called, their shapes, and which of them are rounded."""

    def __init__(self, model: PreTrainedModel, precision: Precision) -> None:
        self.precision: Precision = precision
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.shapes = {name: value.shape for name, value in model.state_dict().items()}
        self.needed = {name for name, _ in model.named_parameters()}
        self.axes = output_axes(model)
        embedding: Any = model.get_input_embeddings()
        self.vocabulary = int(embedding.weight.shape[0])

    def __call__(self, weights: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Each weight as this precision holds it; all are checked before the first is given."""
        self.check(weights)
        for name, weight in weights.items():
            axis = self.axes.get(name)
            yield name, weight.detach() if axis is None else round_weight(weight.detach(), self.precision, out=axis)

    def check(self, weights: Mapping[str, Tensor]) -> None:
        """Refuse weights that are not the model's."""
        for name, weight in weights.items():
            if name not in self.shapes:
                raise InputError(f"Weights need names of the model, got {name!r}. {nearest(name, self.shapes)}")
            if weight.shape != self.shapes[name]:
                raise InputError(
                    f"Weight {name} needs shape {list(self.shapes[name])}, got {list(weight.shape)}. "
                    "Load the weights of the same model."
                )
        missing = sorted(self.needed - weights.keys())
        if missing:
            raise InputError(
                f"Weights need every parameter, got none for {', '.join(missing[:3])}. Load them together."
            )


def output_axes(model: PreTrainedModel) -> dict[str, int]:
    """Axis of the output channels in every linear's weight, by name; embedding and head, tied or not, are left out."""
    whole: list[Any] = [model.get_input_embeddings(), model.get_output_embeddings()]
    kept = {id(module.weight) for module in whole if module is not None}
    kinds: tuple[tuple[type[nn.Module], int], ...] = ((nn.Linear, 0), (Conv1D, 1))
    return {
        f"{name}.weight": axis
        for name, module in model.named_modules()
        for kind, axis in kinds
        if isinstance(module, kind) and id(module.weight) not in kept
    }
