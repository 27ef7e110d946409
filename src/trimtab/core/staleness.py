"""How old a batch is: the learner's version less the versions that sampled its tokens.

A sequence is as old as its oldest token. A version that is not known is not known: it is counted, and never read as 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.core.inputs import layout_of, takes_arrays
from trimtab.core.ranks import Ranks, groups
from trimtab.core.ratio import indicator
from trimtab.errors import InputError


@dataclass(frozen=True, eq=False)
class Staleness:
    """The age of each token and each sequence, in learner steps."""

    tokens: Float[Tensor, "*tokens"]
    """learner − version; 0 where the token is not trained or its version is not known: see `known`."""
    known: Bool[Tensor, "*tokens"]
    """Trained tokens that carry a version."""
    rows: Float[Tensor, " rows"]
    """The age of the oldest known token; 0 for a sequence without one: see `dated`."""
    dated: Bool[Tensor, " rows"]
    """Sequences with a known token."""
    metrics: Mapping[str, Float[Tensor, ""]]
    """oldest_mean and oldest_max over sequences, token_mean over tokens, spans (mean number of steps between the newest and
    the oldest token of a sequence), and coverage, the fraction of trained tokens that carry a version."""


@takes_arrays()
@torch.no_grad()
def staleness(
    versions: Tensor,
    mask: Tensor,
    *,
    learner: int,
    cu_seqlens: Int[Tensor, " bounds"] | None = None,
    process_group: ProcessGroup | None = None,
) -> Staleness:
    """The age of a batch. `versions` holds the learner's step count of the weights that sampled each token, −1 where not known."""
    if versions.shape != mask.shape:
        raise InputError(
            f"versions need the shape of mask {tuple(mask.shape)}, got {tuple(versions.shape)}. One per token."
        )
    if versions.is_floating_point() or versions.dtype == torch.bool:
        raise InputError(
            f"versions need whole numbers, got {versions.dtype}. Pass the step count, −1 where it is not known."
        )
    ranks = groups(process_group, None)
    layout = layout_of(mask, cu_seqlens, ranks)
    trained = indicator(mask, torch.float32)
    known = trained * (versions >= 0)
    age = (learner - versions).to(torch.float32) * known
    dated = (layout.total(known) > 0).to(torch.float32)
    unknown = (known - 1.0) * torch.finfo(torch.float32).max
    oldest = torch.where(dated > 0, layout.peak(age + unknown), 0.0)
    newest = torch.where(dated > 0, layout.dip(age - unknown), 0.0)
    return Staleness(
        tokens=age,
        known=known.bool(),
        rows=oldest,
        dated=dated.bool(),
        metrics=_metrics(trained, known, age, dated, oldest, oldest - newest, ranks),
    )


def _metrics(
    trained: Tensor, known: Tensor, age: Tensor, dated: Tensor, oldest: Tensor, span: Tensor, ranks: Ranks
) -> dict[str, Tensor]:
    parts = (trained, known, age, dated, oldest, span)
    sums = ranks.total(torch.stack([each.sum(dtype=torch.float64) for each in parts]))
    tokens, dates, ages, rows, eldest, spans = sums.unbind()
    peak = torch.where(dated > 0, oldest, -torch.inf).amax() if len(oldest) else oldest.new_full((), -torch.inf)
    peak = ranks.greatest(peak)
    values = {
        "staleness/oldest_mean": eldest / rows.clamp(min=1),
        "staleness/oldest_max": torch.where(rows > 0, peak, 0.0),
        "staleness/token_mean": ages / dates.clamp(min=1),
        "staleness/spans": spans / rows.clamp(min=1),
        "staleness/coverage": dates / tokens.clamp(min=1),
    }
    return {name: value.float() for name, value in values.items()}
