"""The softmax of many tokens seen a tile of logits at a time: running sums going forward, slopes coming back.

A tile is `[tokens, entries]`, some tokens by some of the vocabulary. Nothing here knows where its logits come from.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

FAR = -1e4
"""A log-prob whose exponential is 0 in every type; stands for −inf where 0 × −inf would be NaN."""


class Running:
    """The softmax of each token over the vocabulary entries seen so far: peak, Σe, Σe·x and the chosen logit."""

    def __init__(
        self, places: Int[Tensor, " tokens"], dtype: torch.dtype, spare: Float[Tensor, " tile"] | None
    ) -> None:
        self.places = places
        self.spare = spare  # room for a second tile, which the entropy needs
        self.total = torch.zeros_like(places, dtype=dtype)
        self.tilt = torch.zeros_like(self.total)
        # Finite, so that a tile of nothing but −inf gives exp(−inf) and not exp(−inf + inf).
        self.peak = torch.full_like(self.total, torch.finfo(dtype).min / 4)
        self.chosen = torch.full_like(self.total, -torch.inf)

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
            moved = (self.tilt[rows] + drop * self.total[rows]) * shrink
            self.tilt[rows] = moved + tile.clamp_(min=FAR).mul_(power).sum(-1)
        self.total[rows] = self.total[rows] * shrink + power.sum(-1)
        self.peak[rows] = peak

    def log_probs(self, counted: Bool[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
        """The log-prob of each chosen entry, −inf if it was never seen, 0 where not counted.

        The peak is subtracted first: near probability 1, log Σe must not be rounded against a large logit.
        """
        return torch.where(counted, (self.chosen - self.peak) - self.total.log(), 0.0)

    def entropy(self, counted: Bool[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
        """The entropy of each token's distribution, 0 where not counted."""
        return torch.where(counted, self.total.log() - self.tilt / self.total, 0.0)

    def normaliser(self) -> Float[Tensor, " tokens"]:
        """log Σ exp(logit)."""
        return self.peak + self.total.log()


@dataclass(frozen=True, eq=False)
class Pull:
    """What the loss asks of each token. A token it asks nothing of is out: its normaliser is ∞, so its softmax is 0.

    With d log p = 1[chosen] − p and d entropy = −p (log p + entropy), the slope of the loss in a logit is
    factor × (p (level + steep log p) − spike 1[chosen]), the factor with the division by the temperature in it.
    """

    active: Bool[Tensor, " tokens"]
    places: Int[Tensor, " tokens"]
    normaliser: Float[Tensor, " tokens"]
    scale: Float[Tensor, " tokens"] | None  # 1 / temperature; None: 1 throughout
    factor: Float[Tensor, " tokens"]
    spike: Float[Tensor, " tokens"]
    level: Float[Tensor, " tokens"]  # 1 without steep
    steep: Float[Tensor, " tokens"] | None  # None: the loss does not look at the entropy

    def slope(self, rows: slice, first: int, logits: Tensor, tile: Tensor, spare: Tensor | None) -> Tensor:
        """The slope in these logits, but for each token's factor. Overwrites `tile`, which may be the logits themselves."""
        inside, column = _column(self.places[rows], first, logits.shape[-1])
        torch.sub(logits, self.normaliser[rows].unsqueeze(-1), out=tile)
        if self.steep is None or spare is None:
            tile.exp_()
        else:
            power = torch.exp(tile, out=_like(spare, tile))
            tile.clamp_(min=FAR).mul_(self.steep[rows].unsqueeze(-1)).add_(self.level[rows].unsqueeze(-1)).mul_(power)
        spike = torch.where(inside, -self.spike[rows], 0.0)
        return tile.scatter_add_(-1, column, spike.unsqueeze(-1))


def pull(
    log_probs: Float[Tensor, " tokens"] | None,
    entropy: Float[Tensor, " tokens"] | None,
    *,
    places: Int[Tensor, " tokens"],
    counted: Bool[Tensor, " tokens"],
    warmth: Float[Tensor, " tokens"] | None,
    normaliser: Float[Tensor, " tokens"],
    spread: Float[Tensor, " tokens"] | None,
) -> Pull:
    """The gradients of log-probs and entropy as slopes need them; `spread` is the entropy that was found.

    A target that is ignored has no place; one outside the vocabulary has none either: it is −inf whatever the logits are.
    """
    asked = torch.zeros_like(normaliser) if log_probs is None else torch.where(places >= 0, log_probs, 0.0)
    if entropy is None or spread is None:
        active = asked != 0
        level = active.to(asked.dtype)
        factor, spike, steep = -asked, level, None
    else:
        steep = torch.where(counted, entropy, 0.0)
        active = (asked != 0) | (steep != 0)
        level = asked + steep * torch.where(active, spread, 0.0)
        factor, spike = torch.full_like(asked, -1.0), asked
    scale = None if warmth is None else torch.where(active, scaling(warmth, asked.dtype), 1.0)
    return Pull(
        active=active,
        places=places,
        normaliser=torch.where(active, normaliser, torch.inf),
        scale=scale,
        factor=factor if scale is None else factor * scale,
        spike=spike,
        level=level,
        steep=steep,
    )


def scaling(warmth: Float[Tensor, " tokens"], dtype: torch.dtype) -> Float[Tensor, " tokens"]:
    """What logits are multiplied by at a temperature."""
    return warmth.to(dtype).reciprocal()


def _column(places: Tensor, first: int, width: int) -> tuple[Bool[Tensor, " tokens"], Int[Tensor, "tokens 1"]]:
    """Whether each token's place lies in the tile that begins at `first`, and its column there (0 if it does not)."""
    local = places - first
    inside = (local >= 0) & (local < width)
    return inside, torch.where(inside, local, 0).unsqueeze(-1)


def _like(room: Tensor, tile: Tensor) -> Tensor:
    return room[: tile.numel()].view_as(tile)
