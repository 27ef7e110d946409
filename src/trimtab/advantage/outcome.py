"""The estimators that give a whole sequence one advantage, from the rewards of its group: a table, one row each.

One number per row, or (GDPO) several that are added up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.advantage.normalise import Moments, Votes, centre, divisor, moments
from trimtab.config.advantages import (
    Gdpo,
    Gpg,
    Grpo,
    LeaveOneOut,
    MaxRl,
    Opo,
    PassK,
    ReinforcePlusPlus,
    Rloo,
    Singleton,
)
from trimtab.core.layout import reverse_scan

ROUNDING = 1e-5
"""Rewards that cancel to less than this share of their sizes cancel: what is left of a float32 reward, centred before it came here."""

AGREE = 1e-12
"""Others whose squares are below this share of the group's agree: what is left is the rounding of a subtraction."""


@dataclass(frozen=True, eq=False)
class Scores:
    """What the rows of a batch scored, and how many voting tokens they have."""

    sample: Votes
    lengths: Float[Tensor, " rows"]  # in voting tokens: 0 for a row without a vote
    columns: Float[Tensor, "rows columns"] | None = None  # several rewards per row (GDPO)
    rounding: float = ROUNDING  # what a sum of them can be by rounding alone, as a share of the sum of their sizes


def rounding_of(kind: torch.dtype) -> float:
    """The share of their sizes that a sum of rewards of this type can be by rounding alone."""
    return max(ROUNDING, torch.finfo(kind).eps / 2) if kind.is_floating_point else ROUNDING


def grpo(config: Grpo | Gdpo, scores: Scores) -> Tensor:
    """(R − mean) / (std + eps)"""
    found = _over_std(config, scores)
    return within_bounds(config, found) if isinstance(config, Grpo) else found


def _over_std(config: Grpo | Gdpo, scores: Scores) -> Tensor:
    found = moments(scores.sample, "group")
    value = centre(scores.sample, found, config.singleton)
    if not config.std:
        return value
    if isinstance(config, Grpo) and config.std_over == "batch":
        found = moments(scores.sample, "batch")
    return value / divisor(found, found.variance(config.unbiased), config.eps, "std", config.singleton)


def within_bounds(config: Grpo | Rloo | ReinforcePlusPlus, value: Tensor) -> Tensor:
    """What the baseline left, within the estimator's bounds."""
    return value if (config.lower, config.upper) == (None, None) else value.clamp(config.lower, config.upper)


def rloo(config: Rloo, scores: Scores) -> Tensor:
    """R − mean of the others"""
    return within_bounds(config, _less_the_others(config.singleton, scores.sample))


def _less_the_others(singleton: Singleton, sample: Votes) -> Tensor:
    return centre(sample, moments(sample, "group"), singleton, leave_one_out=True)


def group_centred(singleton: Singleton, sample: Votes) -> Tensor:
    """R − mean"""
    return centre(sample, moments(sample, "group"), singleton)


def leave_one_out(config: LeaveOneOut | Gdpo, scores: Scores) -> Tensor:
    """(R − mean of the others) / (std of the others + eps)

    With d = R − mean over n votes, the others' squares are Σd² − d²·n/(n − 1): a difference of near-equal numbers where
    the others agree, whose rounding must not become a divisor.
    """
    value = _less_the_others(config.singleton, scores.sample)
    if not config.std:
        return value
    others = moments(scores.sample, "group")
    number = others.number
    squares = others.squares - (scores.sample.value - others.mean).square() * number / (number - 1.0).clamp(min=1.0)
    varies = (squares > AGREE * others.squares) & (number > 2)
    variance = squares / (number - (2.0 if config.unbiased else 1.0)).clamp(min=1.0)
    return value / torch.where(varies, variance.clamp(min=0.0).sqrt() + config.eps, 1.0)


def opo(config: Opo, scores: Scores) -> Tensor:
    """R − Σ length·R / Σ length"""
    sample = scores.sample
    total, tokens = sample.total("group", scores.lengths * sample.value, scores.lengths)
    found = moments(sample, "group")
    return _zero_where_equal(sample.value - total / tokens.clamp(min=1.0), sample, found, config.singleton)


def gpg(config: Gpg, scores: Scores) -> Tensor:
    """(R − mean) · rows / rows of groups that vary (a single vote taken raw among them), or rows with R ≠ 0"""
    sample = scores.sample
    if config.factor == "nonzero":
        counts = (sample.value != 0).double()
    else:
        found = moments(sample, "group")
        alone = found.number == 1 if config.singleton == "raw" else torch.zeros_like(found.number, dtype=torch.bool)
        counts = ((found.varies > 0) | alone).double()
    rows, counted = sample.total("batch", sample.weight, sample.weight * counts)
    return group_centred(config.singleton, sample) * rows / counted.clamp(min=1.0)


def maxrl(config: MaxRl, scores: Scores) -> Tensor:
    """(R − mean) / (mean + eps), 0 where the mean is not positive: dividing by it would turn the sign or explode

    A mean that is only the rounding of rewards of both signs is not positive.
    """
    sample = scores.sample
    found, value = moments(sample, "group"), group_centred("zero", sample)
    total, size = sample.total("group", sample.weight * sample.value, sample.weight * sample.value.abs())
    positive = total > scores.rounding * size
    return torch.where(positive, value / (found.mean.clamp(min=0.0) + config.eps).clamp(min=1e-300), 0.0)


def gdpo(config: Gdpo, scores: Scores) -> Tensor:
    """weight · (R_k − mean_k) / (std_k + eps) of each reward, to be added up"""
    assert scores.columns is not None
    each = leave_one_out if config.leave_one_out else grpo
    parts = [
        weight * each(config, replace(scores, sample=replace(scores.sample, value=column)))
        for weight, column in zip(config.weights, scores.columns.unbind(-1), strict=True)
    ]
    return torch.stack(parts, -1)


def pass_k(config: PassK, scores: Scores) -> Tensor:
    """The mean, over the k-subsets of the group with this row, of max − max without it; over (std + eps)"""
    sample = scores.sample
    groups = sample.levels["group"]
    index = torch.where(sample.weight > 0, groups.index, groups.count)  # whoever does not vote is apart
    (both,), chance = groups.ranks.gather(torch.stack([sample.value, index.double()], -1))
    gain = _gain(both[:, 0], both[:, 1].long(), groups.count + 1, config.k)[chance]
    found = moments(sample, "group")
    if config.std:
        gain = gain / (found.variance(config.unbiased).sqrt() + config.eps).clamp(min=1e-300)
    return torch.where((found.varies > 0) & (found.number > 1), gain, 0.0)


def _gain(reward: Tensor, index: Tensor, count: int, k: int | None) -> Tensor:
    """Ranked from the bottom, row i adds Σ_{j<i} (R_i − R_j) · C(j, k − 2) / C(n − 1, k − 1): j is then the next best.

    Added up over the steps R_m − R_{m−1}, each as often as a next best lies below it: nothing is subtracted, so that who gains nothing
    gets exactly 0, and equal rewards exactly the same.
    """
    order = torch.argsort(reward, stable=True)
    order = order[torch.argsort(index[order], stable=True)]
    ranked, group = reward[order], index[order]
    number = index.new_zeros(count).index_add_(0, index, torch.ones_like(index))
    start = (number.cumsum(0) - number)[group]
    n, place = number[group].double(), torch.arange(len(order), device=order.device) - start
    picks = n if k is None else n.clamp(max=k)
    share = torch.exp(_log_choose(place.double(), picks - 2) - _log_choose(n - 1, picks - 1))
    share = torch.where((place >= picks - 2) & (picks >= 2), share, 0.0)
    step = torch.where(place > 0, ranked.diff(prepend=ranked[:1]), 0.0)
    below = _up_to(share, place).roll(1)
    gain = _up_to(step * below, place)
    return torch.empty_like(gain).index_copy_(0, order, gain)


def _up_to(value: Tensor, place: Tensor) -> Tensor:
    """The sum over the ranks of a group up to each, itself included; no other group's numbers enter it."""
    return reverse_scan((place > 0).to(value.dtype).flip(0), value.flip(0)).flip(0)


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    k = k.clamp(min=0.0).minimum(n)
    return torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma(n - k + 1)


def _zero_where_equal(advantage: Tensor, sample: Votes, found: Moments, singleton: Singleton) -> Tensor:
    """Exactly 0 where a group agrees; a single vote as asked."""
    settled = torch.where(found.varies > 0, advantage, 0.0)
    return torch.where(found.number == 1, sample.value, settled) if singleton == "raw" else settled


OUTCOMES: dict[type, Callable[[Any, Scores], Tensor]] = {
    Grpo: grpo,
    Rloo: rloo,
    LeaveOneOut: leave_one_out,
    Opo: opo,
    Gpg: gpg,
    MaxRl: maxrl,
    Gdpo: gdpo,
    PassK: pass_k,
}
