"""A baseline of its own for every step of a group, of least variance: the optimal token baseline."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.advantage.episodes import Episodes
from trimtab.config.advantages import OptimalToken
from trimtab.core.prefix import prefix_sums
from trimtab.core.ratio import zero_outside


def optimal_token(config: OptimalToken, batch: Episodes, returns: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """The reward to come less the group's weighted mean of it at the same step. A step is the t-th trained token of a row.

    W of a token is the sum up to it of w²·‖∇log π‖², of which 1 − 2π + Σπ² is the square with respect to the logits. The host reads once
    how many steps the longest row has.
    """
    trained, groups = batch.trained, batch.levels["group"]
    path = prefix_sums(batch.layout, _energy(batch)) * trained
    step = (prefix_sums(batch.layout, trained) - 1.0).long().clamp(min=0)
    longest = step.amax() + 1 if step.numel() else torch.ones((), dtype=torch.int64, device=step.device)
    steps = int(groups.ranks.greatest(longest))  # asked on every rank, also on one without rows
    place = batch.layout.spread(groups.index.double()).expand(trained.shape).long() * steps + step
    place = torch.where(batch.voting > 0, place, groups.count * steps).flatten()  # whoever does not vote is apart

    worth, weight, votes = (each.double().flatten() for each in (returns, path, batch.voting))
    sums = worth.new_zeros(groups.count * steps + 1, 3)
    local = torch.stack([worth * weight, weight, votes], -1) * votes.unsqueeze(-1)
    gained, total, number = groups.ranks.total(sums.index_add_(0, place, local)).unbind(-1)

    at = (batch.layout.spread(groups.index.double()).expand(trained.shape).long() * steps + step).flatten()
    baseline = gained[at] / (total[at] + config.eps).clamp(min=1e-300)
    if config.tail == "raw":
        baseline = torch.where(number[at] > 1, baseline, 0.0)
    alone = batch.spread((groups.spread(groups.total(batch.votes)) <= 1).double()).expand(trained.shape).flatten()
    found = worth - torch.where(alone > 0, 0.0 if config.singleton == "raw" else worth, baseline)
    return found.view(trained.shape).to(trained.dtype) * trained


def _energy(batch: Episodes) -> Float[Tensor, "*tokens"]:
    """w²·(1 − 2π + Σπ²) of the trained tokens, never negative."""
    given, trained = batch.given, batch.trained
    assert given.student is not None
    assert given.squares is not None
    own = zero_outside(given.student.detach(), trained).exp()
    square = (1.0 - 2.0 * own + zero_outside(given.squares.detach(), trained)).clamp(min=0.0) * trained
    return square if given.weight is None else square * zero_outside(given.weight.detach(), trained).square()
