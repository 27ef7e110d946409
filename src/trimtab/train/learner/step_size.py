"""How far an update goes and where: a step scaled by the effective share of its tokens, and the cosine with the gradient before."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trimtab.train.learner.ranks import LearnerRanks


def ess_sums(weight: Float[Tensor, "*tokens"], trained: Bool[Tensor, "*tokens"]) -> Float[Tensor, "3"]:
    """Σw, Σw² and the number of trained tokens; those of the parts of a minibatch add up."""
    held = torch.where(trained, weight, 0.0).double()
    return torch.stack([held.sum(), held.square().sum(), trained.sum(dtype=torch.float64)])


def effective_share(sums: Float[Tensor, "3"]) -> float:
    """(Σw)² / (n·Σw²), read on the host; 1 where nothing was trained."""
    total, squares, number = sums.tolist()
    return total * total / (number * squares) if number * squares > 0 else 1.0


@contextmanager
def scaled_rate(optimizer: torch.optim.Optimizer, scale: float) -> Generator[None]:
    """Inside, every learning rate is multiplied by `scale`: AdamW divides a gradient by its own size, so that scaling that does nothing."""
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * scale
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


class GradientMemory:
    """The gradient of the last update, of which each rank keeps the part that it holds."""

    def __init__(self, ranks: LearnerRanks) -> None:
        self.ranks = ranks
        self.last: list[Tensor] | None = None

    @torch.no_grad()
    def cosine(self, parameters: Iterable[nn.Parameter]) -> Float[Tensor, ""] | None:
        """The cosine of this gradient with the last, which it then replaces; None for the first. Nothing is read on the host."""
        now = [_own_part(each.grad) for each in parameters if each.grad is not None]
        last, self.last = self.last, [each.clone() for each in now]
        if last is None or [each.shape for each in last] != [each.shape for each in now]:
            return None
        pairs = (zip(now, last, strict=True), zip(now, now, strict=True), zip(last, last, strict=True))
        sums = torch.stack([_dots(each) for each in pairs])
        if self.ranks.shard == "fsdp":
            sums = self.ranks.sum(sums)
        return sums[0] / (sums[1] * sums[2]).sqrt().clamp(min=torch.finfo(torch.float64).tiny)


def _own_part(gradient: Tensor) -> Tensor:
    return (gradient.to_local() if isinstance(gradient, DTensor) else gradient).detach()


def _dots(pairs: Iterable[tuple[Tensor, Tensor]]) -> Float[Tensor, ""]:
    return torch.stack([(a.float() * b.float()).sum(dtype=torch.float64) for a, b in pairs]).sum()
