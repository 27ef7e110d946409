"""Batches for two implementations of one formula, and how their answers are compared."""

from __future__ import annotations

from dataclasses import dataclass

import hypothesis
import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.closeness import same_differences, same_products
from tests.parity.tally import count

torch.set_num_threads(1)
few = hypothesis.settings(
    max_examples=100, deadline=None, suppress_health_check=list(hypothesis.HealthCheck), derandomize=True
)


@dataclass(frozen=True)
class Batch:
    behavior: Tensor
    proximal: Tensor
    current: Tensor
    reference: Tensor
    advantages: Tensor  # one per row
    mask: Tensor
    group: Tensor

    def leaf(self) -> Tensor:
        return self.current.clone().requires_grad_()

    @property
    def per_token(self) -> Tensor:
        return self.advantages[:, None].expand(self.mask.shape).contiguous()


@st.composite
def batches(draw: st.DrawFn, empty: bool = False) -> Batch:
    """Padded rows of different lengths, gaps inside, if asked for one without tokens; log-ratios from tiny to large."""
    make = torch.Generator().manual_seed(draw(st.integers(0, 2**31)))
    rows, width = 2 * draw(st.integers(2, 3)), draw(st.integers(4, 12))
    spread = draw(st.sampled_from([0.02, 0.2, 0.8]))
    behavior = -torch.rand(rows, width, generator=make) * 4 - 0.05

    def moved(log_probs: Tensor, by: float) -> Tensor:
        return (log_probs + by * torch.randn(rows, width, generator=make)).clamp(max=-1e-3)

    proximal = moved(behavior, spread)
    lengths = torch.randint(1, width + 1, (rows,), generator=make)
    mask = torch.arange(width) < lengths[:, None]
    if draw(st.booleans()):
        mask = mask & (torch.rand(rows, width, generator=make) > 0.2)
    mask[:, 0] = True
    if empty and draw(st.booleans()):
        mask[draw(st.integers(0, rows - 1))] = False
    return Batch(
        behavior=behavior,
        proximal=proximal,
        current=moved(proximal, 0.3),
        reference=moved(proximal, 0.2),
        advantages=torch.randn(rows, generator=make),
        mask=mask,
        group=torch.arange(rows) // 2,
    )


def numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high, allow_nan=False).map(lambda value: round(value, 3))


def same_weights(ours: Tensor, theirs: Tensor | None, kept: Tensor) -> None:
    """Equal where a framework's weight (1 where it has none) meets the tokens it keeps."""
    expected = torch.ones(kept.shape) if theirs is None else theirs.float().expand(kept.shape)
    same_products(ours, torch.where(kept, expected, 0.0))


def same_descent(framework: str, ours: Tensor, leaf: Tensor, theirs: Tensor, their_leaf: Tensor, mask: Tensor) -> None:
    """Equal losses, and equal gradients on trained tokens."""
    (mine,) = torch.autograd.grad(ours, leaf)
    (other,) = torch.autograd.grad(theirs, their_leaf)
    same_differences(ours.detach(), theirs.detach().reshape(()), scale=float(other.abs().sum()))
    count(framework, "loss", "live")
    other = torch.where(mask, other, 0.0)
    same_differences(mine, other)  # of the loss and of its KL term, which may point apart
    count(framework, "gradient", "live")
