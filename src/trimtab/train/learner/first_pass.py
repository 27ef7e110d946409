"""The pass that two parts of a step share: until the first update nothing has moved, so its log-probs are the proximal ones.

proximal pass ─► rows of the first minibatch, their graph kept ─► the first update goes backward through it
             └─► all other rows, without gradient
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from trimtab.config.training import Train
from trimtab.log_probs.public import SelectedLogProbs
from trimtab.train.devices import to_device
from trimtab.train.learner.minibatches import micro_calls, minibatches
from trimtab.train.learner.rows import Rows
from trimtab.train.learner.scoring import Scorer


@dataclass(frozen=True, eq=False)
class FirstPass:
    """Log-probs of some rows with their graph, by weights that have not moved since."""

    index: Int[Tensor, " some"]
    """On the host."""
    scored: SelectedLogProbs

    @classmethod
    def of(cls, config: Train, scorer: Scorer, rows: Rows, version: int, valued: Tensor) -> FirstPass | None:
        """Of the rows of the first minibatch that are `valued`; None where it is not one pass of the model here, or not the same."""
        if scorer.fast is None or scorer.ranks.size > 1 or config.loss.looks_at_call:
            return None
        first = minibatches(config, rows, version)[0]
        index = first[valued.cpu()[first]]
        if not len(index) or len(micro_calls(config, scorer, rows, index)) > 1:
            return None
        with torch.enable_grad():
            return cls(index, scorer(rows.part(index), entropy=True))

    def all(self, config: Train, scorer: Scorer, rows: Rows) -> SelectedLogProbs:
        """Log-probs and entropies of the whole batch, without gradient: these, and the others worked out now."""
        others = torch.ones(len(rows), dtype=torch.bool)
        others[self.index] = False
        result = scorer.all(rows, config.learner.micro_tokens, others.nonzero().squeeze(1), entropy=True)
        there = to_device(self.index, rows.ids.device)
        for whole, own in ((result.log_probs, self.scored.log_probs), (result.entropy, self.scored.entropy)):
            assert whole is not None
            assert own is not None
            whole[there, : own.shape[1]] = own.detach().float()
        return result

    def part(self, index: Int[Tensor, " few"], *, width: int, entropy: bool) -> SelectedLogProbs | None:
        """Those of rows among them, cut to a width; None where one is not."""
        place = {row: number for number, row in enumerate(self.index.tolist())}
        asked = index.tolist()
        if not place.keys() >= set(asked):
            return None
        parts = (self.scored.log_probs, self.scored.entropy if entropy else None)
        if asked != self.index.tolist():
            some = torch.tensor([place[row] for row in asked], device=self.scored.log_probs.device)
            parts = tuple(each if each is None else each.index_select(0, some)[:, :width] for each in parts)
        log_probs, spread = parts
        assert log_probs is not None
        return SelectedLogProbs(log_probs, spread)
