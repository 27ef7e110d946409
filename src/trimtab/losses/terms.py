"""What an objective reads and returns, and the two places where gradients pass: in at `attach`, out at `total`.

Between them every number is finite and everything is plain autograd. A token that does not count holds log-ratio 0,
ratio 1 and advantage 0, and its gradient is cut off where it would reach the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.base import of_kind
from trimtab.config.losses import EntropyBonus, KlPenalty
from trimtab.core.batch import Batch
from trimtab.core.cached import cached
from trimtab.core.layout import Layout
from trimtab.core.ratio import zero_outside

Term = TypeVar("Term", KlPenalty, EntropyBonus)


def term_and_coefficient(unit: Term, asked: Term | float, thing: str) -> tuple[Term, float]:
    """A term and its coefficient. A bare number weighs the unit; it is not validated while it is compiled, which torch cannot."""
    if isinstance(asked, int | float):
        if not torch.compiler.is_compiling():
            type(unit)(coefficient=asked)
        return unit, asked
    article = "an" if isinstance(unit, EntropyBonus) else "a"
    term = of_kind(type(unit), asked, f"{thing} needs to be {article} {type(unit).__name__} or its coefficient", "0.01")
    return term, term.coefficient


def _no_marks() -> dict[str, Callable[[], Tensor]]:
    return {}


@dataclass(frozen=True, eq=False)
class Terms:
    """The tokens of one call, after the correction. `kept` and `weight` are its verdict, everything but `current` detached."""

    batch: Batch
    anchor: str
    """The policy ρ divides by."""
    current: Tensor
    """Log-probs as given, with gradient, in the working type: what several terms send back is added up there."""
    kept: Float[Tensor, "*tokens"]
    weight: Float[Tensor, "*tokens"]
    lengths: Float[Tensor, " rows"]
    """Tokens of each sequence, as the denominator counts them."""
    generator: torch.Generator | None = None
    centered: Float[Tensor, "*tokens"] | None = None
    """1 on the tokens whose gradient is centered; None without centering."""

    @property
    def layout(self) -> Layout:
        """Where sequences lie."""
        return self.batch.layout

    @property
    def advantages(self) -> Float[Tensor, "*tokens"]:
        """Of each token; 0 outside the trained ones."""
        assert self.batch.advantages is not None
        return self.batch.advantages

    def tokens(self, scope: str) -> Float[Tensor, "*tokens"]:
        """1 on the tokens of a scope."""
        if scope == "centered" and self.centered is not None:
            return self.centered
        return self.kept if scope == "kept" else self.batch.valid

    @cached
    def log_ratio(self) -> Float[Tensor, "*tokens"]:
        """log ρ of the kept tokens, with gradient."""
        return self.log_ratio_over("kept")

    def log_ratio_over(self, scope: str) -> Float[Tensor, "*tokens"]:
        """log ρ of the tokens of a scope, with gradient; 0 elsewhere."""
        log_r, tokens = self.batch.log_r[f"current/{self.anchor}"], self.tokens(scope)
        return attach(self.current, log_r * tokens, tokens)

    @cached
    def log_prob(self) -> Float[Tensor, "*tokens"]:
        """log current of the kept tokens, with gradient."""
        return attach(self.current, zero_outside(self.current.detach(), self.kept), self.kept)

    def sequence_mean(self, value: Float[Tensor, "*tokens"], scope: str, units: Layout | None = None) -> Tensor:
        """The mean of each sequence (or other unit) over the tokens of a scope; `value` is 0 elsewhere."""
        units = units or self.layout
        return units.total(value) / units.total(self.tokens(scope)).clamp(min=1.0)


@dataclass(frozen=True, eq=False)
class Surrogate:
    """The loss of each token before the correction's weight."""

    value: Float[Tensor, "*#tokens"]
    marks: Mapping[str, Callable[[], Tensor]] = field(default_factory=_no_marks)
    """Indicators by name, worked out when a metric is read: the fraction of kept tokens they hold for."""
    weight: Float[Tensor, "*#tokens"] | None = None
    """What to multiply by in place of the correction's weight, where an objective uses the weight in its own way."""


class _Attached(torch.autograd.Function):
    """A value worked out beforehand, as a function of `leaf` with slope 1 on the counted tokens and 0 elsewhere."""

    @staticmethod
    def forward(leaf: Tensor, value: Tensor, counted: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[2])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (counted,) = ctx.saved_tensors
        # 0 · inf, from a token whose weight is 0 and whose ratio left the number type, is 0
        return torch.nan_to_num(gradients[0], nan=0.0).mul_(counted), None, None


def attach(leaf: Tensor, value: Float[Tensor, "*tokens"], counted: Float[Tensor, "*tokens"]) -> Tensor:
    """`value`, whose gradient goes to `leaf` where counted and nowhere else, whatever `leaf` holds there. One dtype."""
    return _Attached.apply(leaf, value, counted)  # pyright: ignore[reportReturnType]


class _Gathered(torch.autograd.Function):
    """A tensor as it is, whose gradient is the largest number where what several terms send back adds up to more."""

    @staticmethod
    def forward(leaf: Tensor) -> Tensor:
        return leaf.view_as(leaf)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return torch.nan_to_num(gradients[0])


def gathered(leaf: Tensor) -> Tensor:
    """`leaf`, for terms each of which sends back a finite gradient: their sum is finite too."""
    return _Gathered.apply(leaf)  # pyright: ignore[reportReturnType]


class _Total(torch.autograd.Function):
    """Σ value · scale that is always finite: 0 · inf counts as 0, and no term as more than its part of the largest number."""

    @staticmethod
    def forward(value: Tensor, scale: Tensor) -> Tensor:
        most = torch.finfo(value.dtype).max / max(scale.numel(), 1)
        return (value * scale).nan_to_num_(nan=0.0).clamp_(-most, most).sum()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (scale,) = ctx.saved_tensors
        return gradients[0] * scale, None


def total(value: Float[Tensor, "*#tokens"], scale: Float[Tensor, "*tokens"]) -> Float[Tensor, ""]:
    """The sum of values times scale."""
    return _Total.apply(value.expand_as(scale), scale)  # pyright: ignore[reportReturnType]


def largest_log(kind: torch.dtype) -> float:
    """The largest logarithm whose exponential is a finite number."""
    return math.log(torch.finfo(kind).max) - 1e-5


class _Exp(torch.autograd.Function):
    """e^x, at most the largest finite number; its own slope even there, so that an overflow is large and neither NaN nor 0."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(max=largest_log(x.dtype)).exp_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (found,) = ctx.saved_tensors
        return gradients[0] * found


def ratio(log_ratio: Tensor, limit: float | None = None, upper: float | None = None) -> Tensor:
    """e^log_ratio; where asked for, log_ratio is first held within ±limit or below upper, and beyond it has no slope."""
    if limit is not None or upper is not None:
        log_ratio = log_ratio.clamp(min=None if limit is None else -limit, max=upper if limit is None else limit)
    return _Exp.apply(log_ratio)  # pyright: ignore[reportReturnType]
