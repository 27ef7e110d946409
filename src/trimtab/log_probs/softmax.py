"""The softmax of many tokens seen a tile of logits at a time: running sums going forward, gradients coming back.

A tile is `[tokens, entries]`, some tokens by some of the vocabulary. Nothing here knows where its logits come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.log_probs.picked_logits import HeadGradient, HeadLogits

LOG_ZERO = -1e4
"""A log-prob whose exponential is 0 in every type; stands for −inf where 0 × −inf would be NaN."""


class RunningSoftmax:
    """The softmax of each token over the vocabulary entries seen so far: peak, Σe, Σe·x and the chosen logit."""

    def __init__(
        self, places: Int[Tensor, " tokens"], dtype: torch.dtype, spare: Float[Tensor, " tile"] | None
    ) -> None:
        self.places = places
        self.spare = spare  # scratch for a second tile, which the entropy needs
        self.sum_exp = torch.zeros_like(places, dtype=dtype)
        self.sum_exp_x = torch.zeros_like(self.sum_exp)
        # Finite, so that a tile of nothing but −inf gives exp(−inf) and not exp(−inf + inf).
        self.peak = torch.full_like(self.sum_exp, torch.finfo(dtype).min / 4)
        self.chosen = torch.full_like(self.sum_exp, -torch.inf)

    def take(self, rows: slice, first: int, logits: Tensor, tile: Float[Tensor, "tokens entries"]) -> None:
        """Add the logits whose leading entry is `first`. Overwrites `tile`, which may be the logits themselves."""
        inside, column = _column(self.places[rows], first, logits.shape[-1])
        chosen = logits.gather(-1, column).squeeze(-1).to(tile.dtype)
        self.chosen[rows] = torch.where(inside, chosen, self.chosen[rows])
        peak = torch.maximum(self.peak[rows], logits.amax(-1))
        drop = self.peak[rows] - peak
        shrink = drop.exp()
        torch.sub(logits, peak.unsqueeze(-1), out=tile)
        if self.spare is None:
            power = tile.exp_()
        else:
            power = torch.exp(tile, out=_like(self.spare, tile))
            moved = (self.sum_exp_x[rows] + drop * self.sum_exp[rows]) * shrink
            self.sum_exp_x[rows] = moved + tile.clamp_(min=LOG_ZERO).mul_(power).sum(-1)
        self.sum_exp[rows] = self.sum_exp[rows] * shrink + power.sum(-1)
        self.peak[rows] = peak

    def log_probs(self, counted: Bool[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
        """The log-prob of each chosen entry, −inf if it was never seen, 0 where not counted.

        The peak is subtracted first: near probability 1, log Σe must not be rounded against a large logit.
        """
        return torch.where(counted, (self.chosen - self.peak) - self.sum_exp.log(), 0.0)

    def entropy(self, counted: Bool[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
        """The entropy of each token's distribution, 0 where not counted."""
        return torch.where(counted, self.sum_exp.log() - self.sum_exp_x / self.sum_exp, 0.0)

    def head_log_probs(self, head: HeadLogits | None) -> Float[Tensor, " entries"] | None:
        """The log-probs of a head's entries."""
        return None if head is None else head.log_probs(self.peak, self.sum_exp)

    def logsumexp(self) -> Float[Tensor, " tokens"]:
        """log Σ exp(logit)."""
        return self.peak + self.sum_exp.log()


@dataclass(frozen=True, eq=False)
class LogitGradient:
    """What the loss asks of each token. A token it asks nothing of is out: its logsumexp is ∞, so its softmax is 0.

    With d log p = 1[chosen] − p and d entropy = −p (log p + entropy), the gradient of the loss in a logit is
    factor × (p (level + by_entropy log p) − at_chosen 1[chosen] − head), the factor with the division by the temperature in it and
    `head` what is asked of single entries. Their sum is in the level.

    Two logits (0, 0), so p = ½ each, the first one chosen, and a loss of −log p: grad_log_prob = −1, factor = 1, level = 1, at_chosen = 1,
    and the gradient is 1 × (½ − 1, ½) = (−½, ½): a step against it raises the chosen logit.
    """

    active: Bool[Tensor, " tokens"]
    places: Int[Tensor, " tokens"]
    logsumexp: Float[Tensor, " tokens"]
    scale: Float[Tensor, " tokens"] | None  # 1 / temperature; None: 1 throughout
    factor: Float[Tensor, " tokens"]
    at_chosen: Float[Tensor, " tokens"]
    level: Float[Tensor, " tokens"] | None  # None: 1 throughout
    by_entropy: Float[Tensor, " tokens"] | None  # None: the loss does not look at the entropy
    head: HeadGradient | None = None

    def grad(self, rows: slice, first: int, logits: Tensor, tile: Tensor, spare: Tensor | None) -> Tensor:
        """The gradient in these logits, but for each token's factor. Overwrites `tile`, which may be the logits themselves."""
        inside, column = _column(self.places[rows], first, logits.shape[-1])
        torch.sub(logits, self.logsumexp[rows].unsqueeze(-1), out=tile)
        if self.level is None:
            tile.exp_()
        elif self.by_entropy is None or spare is None:
            tile.exp_().mul_(self.level[rows].unsqueeze(-1))
        else:
            power = torch.exp(tile, out=_like(spare, tile))
            tile.clamp_(min=LOG_ZERO).mul_(self.by_entropy[rows].unsqueeze(-1)).add_(
                self.level[rows].unsqueeze(-1)
            ).mul_(power)
        if self.head is not None:
            self.head.subtract(rows.start, first, tile)
        at_chosen = torch.where(inside, -self.at_chosen[rows], 0.0)
        return tile.scatter_add_(-1, column, at_chosen.unsqueeze(-1))


def logit_gradient(
    grad_log_probs: Float[Tensor, " tokens"] | None,
    grad_entropy: Float[Tensor, " tokens"] | None,
    *,
    places: Int[Tensor, " tokens"],
    counted: Bool[Tensor, " tokens"],
    temperature: Float[Tensor, " tokens"] | None,
    logsumexp: Float[Tensor, " tokens"],
    entropy: Float[Tensor, " tokens"] | None,
    head: HeadGradient | None = None,
) -> LogitGradient:
    """What the gradients of log-probs and entropy mean for the logits; `entropy` is the one that was found.

    A target that is ignored has no place; one outside the vocabulary has none either: it is −inf whatever the logits are.
    """
    by_log_prob = (
        torch.zeros_like(logsumexp) if grad_log_probs is None else torch.where(places >= 0, grad_log_probs, 0.0)
    )
    active, by_entropy = by_log_prob != 0, None
    if (grad_entropy is None or entropy is None) and head is None:
        factor, level, at_chosen = -by_log_prob, None, active.to(by_log_prob.dtype)
    else:
        level, factor, at_chosen = by_log_prob, torch.full_like(by_log_prob, -1.0), by_log_prob
        if head is not None:
            active = active | head.touched(len(places))
            level = level + head.per_token(len(places))
        if grad_entropy is not None and entropy is not None:
            by_entropy = torch.where(counted, grad_entropy, 0.0)
            active = active | (by_entropy != 0)
            level = level + by_entropy * torch.where(active, entropy, 0.0)
    scale = None if temperature is None else torch.where(active, scaling(temperature, by_log_prob.dtype), 1.0)
    return LogitGradient(
        active=active,
        places=places,
        logsumexp=torch.where(active, logsumexp, torch.inf),
        scale=scale,
        factor=factor if scale is None else factor * scale,
        at_chosen=at_chosen,
        level=level,
        by_entropy=by_entropy,
        head=head,
    )


def scaling(temperature: Float[Tensor, " tokens"], dtype: torch.dtype) -> Float[Tensor, " tokens"]:
    """What logits are multiplied by at a temperature."""
    return temperature.to(dtype).reciprocal()


def _column(places: Tensor, first: int, width: int) -> tuple[Bool[Tensor, " tokens"], Int[Tensor, "tokens 1"]]:
    """Whether each token's place lies in the tile that begins at `first`, and its column there (0 if it does not)."""
    local = places - first
    inside = (local >= 0) & (local < width)
    return inside, torch.where(inside, local, 0).unsqueeze(-1)


def _like(scratch: Tensor, tile: Tensor) -> Tensor:
    return scratch[: tile.numel()].view_as(tile)
