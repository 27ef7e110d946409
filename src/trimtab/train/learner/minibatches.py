"""Which rows a step trains on together: minibatches, an optimiser update each, and the micro-batches they are worked out in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from trimtab.config.training import Train
from trimtab.train.learner.rows import Rows, token_shares, whole_groups
from trimtab.train.learner.scoring import Scorer


@dataclass(frozen=True, eq=False)
class MicroBatch:
    """One micro-batch, by row indices on the host."""

    rows: Int[Tensor, " rows"] | None
    """What the loss looks at; None: other ranks have one more than this."""
    own: Int[Tensor, " own"] | None
    """What this rank works out."""

    @property
    def is_own(self) -> bool:
        """Whether no other rank has a part in it."""
        return self.rows is self.own


def minibatches(config: Train, rows: Rows, version: int) -> Sequence[Int[Tensor, " some"]]:
    """The rows of each minibatch, drawn by the seed and the version alone; on the host."""
    settings = config.learner
    seed = torch.Generator().manual_seed(config.seed * 1_000_003 + version)
    if settings.minibatch_of == "groups":
        return whole_groups(rows.extents.group, settings.minibatches, seed)
    return torch.randperm(len(rows), generator=seed).tensor_split(settings.minibatches)


def micro_calls(config: Train, scorer: Scorer, rows: Rows, index: Int[Tensor, " some"]) -> list[MicroBatch]:
    """The micro-batches of this rank, as many as every other rank has."""
    most, ranks = config.learner.micro_tokens, scorer.ranks
    if not config.loss.looks_at_call:
        return [MicroBatch(few, few) for few in scorer.turns(rows, most, index)]
    # A loss that compares the tokens of a micro-batch has one of all ranks, of which each works out its share.
    calls = [call.sort().values for call in scorer.batches(rows, most * ranks.size, index)]
    if ranks.size == 1:
        return [MicroBatch(call, call) for call in calls]
    shares = [token_shares(rows.extents, call, ranks.size)[ranks.rank] for call in calls]
    return [MicroBatch(call, own if len(own) else None) for call, own in zip(calls, shares, strict=True)]
