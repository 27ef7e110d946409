"""What a batch of rewards looked like: counts of rows and of groups, and how far the student is from its teacher."""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.advantage.episodes import Episodes
from trimtab.advantage.normalise import moments
from trimtab.advantage.teacher import log_gap, teacher_sums
from trimtab.core.decisions import as_metric
from trimtab.core.ratio import indicator


def reward_metrics(batch: Episodes, *, rewarded: bool) -> dict[str, Tensor]:
    """Counts over the whole batch: of rows, and of groups with no, one, or agreeing votes; how far the student is from its teacher."""
    reward = batch.reward if batch.reward.ndim == 1 else batch.reward.sum(-1)
    truncated = torch.zeros_like(batch.votes) if batch.truncated is None else batch.truncated.double()
    local = [torch.ones_like(batch.votes), batch.votes, batch.failed, truncated, batch.votes * reward]
    counts = batch.levels["batch"].total(torch.stack(local, -1))[0]
    rows, votes, failed, unended, total = counts.unbind()
    found = {"rows": rows, "nonvoting_rows": rows - votes, "failed_rows": failed, "truncated_rows": unended}
    if rewarded:
        found["reward_mean"] = total / votes.clamp(min=1.0)
    if rewarded and "group" in batch.levels:
        found |= _group_metrics(batch)
    if batch.unknown is not None:
        found |= _token_metrics(batch, batch.unknown)
    return {name: as_metric(value) for name, value in found.items()}


def _token_metrics(batch: Episodes, unknown: Tensor) -> dict[str, Tensor]:
    """What share of the tokens could not be read, and two estimates of the KL to a teacher."""
    teacher, student = batch.given.teacher, batch.given.student
    masked = indicator(batch.given.mask.detach(), torch.float64)
    local = [batch.trained.double().sum(), masked.sum(), unknown.double().sum()]
    if teacher is not None and student is not None:
        local += teacher_sums(log_gap(teacher, student, batch.trained), batch.trained)
    trained, number, missing, *distances = batch.levels["batch"].ranks.total(torch.stack(local)).unbind()
    found = {"unknown_fraction": missing / number.clamp(min=1.0)}
    names = ("teacher_k1", "teacher_k3") if distances else ()
    return found | {name: each / trained.clamp(min=1.0) for name, each in zip(names, distances, strict=True)}


def _group_metrics(batch: Episodes) -> dict[str, Tensor]:
    groups = batch.levels["group"]
    columns = batch.reward.unsqueeze(-1) if batch.reward.ndim == 1 else batch.reward
    varies = torch.stack([moments(batch.sample(column), "group").varies for column in columns.unbind(-1)]).amax(0)
    members, varied = groups.total(torch.stack([batch.votes, batch.votes * varies], -1)).unbind(-1)
    return {
        "groups": (members > 0).double().sum(),
        "singleton_groups": (members == 1).double().sum(),
        "zero_variance_groups": ((members > 1) & (varied == 0)).double().sum(),
        "silent_groups": (members == 0).double().sum(),
    }
