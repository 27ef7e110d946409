"""What samplers told of their distributions, row by row on the host, and as a `Head` for the tokens of a call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.head import Head, HeadLogProbs
from trimtab.train.devices import to_device
from trimtab.train.messages import Sample, SampledHead


@dataclass(frozen=True, eq=False)
class RowHeads:
    """One head per row, each as long as its response. Ragged: one flat distribution does not make the others as wide."""

    rows: tuple[SampledHead, ...]
    replayed: bool
    """Whether the ids are all that could be drawn, so that the softmax has to run over them."""

    @classmethod
    def of(cls, samples: Sequence[Sample], *, replayed: bool) -> RowHeads | None:
        """Those of some responses; None where none has any."""
        if all(sample.head is None for sample in samples):
            return None
        return cls(tuple(sample.head or _nothing(len(sample.tokens)) for sample in samples), replayed)

    def part(self, index: Int[Tensor, " some"]) -> RowHeads:
        """Those of some rows, by indices on the host."""
        return RowHeads(tuple(self.rows[row] for row in index.tolist()), self.replayed)

    def support(self, targets: Int[Tensor, "*tokens"]) -> Head | None:
        """What the softmax of each target runs over; None: the whole vocabulary, everywhere."""
        return self.head(targets) if self.replayed else None

    def head(self, targets: Int[Tensor, "*tokens"]) -> Head:
        """The head of each target: of all tokens one after the other, or of rows padded to a width, where padding has no ids."""
        if targets.ndim == 1:
            return self._head(np.concatenate([row.counts for row in self.rows]), targets.device)
        counts = np.zeros(tuple(targets.shape), np.int32)
        for row, head in enumerate(self.rows):
            counts[row, : len(head.counts)] = head.counts
        return self._head(counts.reshape(-1), targets.device)

    def said(self, rows: Tensor, mask: Tensor, current: Tensor | None, proximal: Tensor | None) -> HeadLogProbs:
        """What the policies say of these ids, of padded rows; log-probs one entry after the other."""
        return HeadLogProbs(
            self.head(rows), torch.where(mask, rows, -1), current=current, proximal=proximal, complete=self.replayed
        )

    @property
    def sizes(self) -> list[int]:
        """How many ids each row has."""
        return [len(row.ids) for row in self.rows]

    def places(self, index: Int[Tensor, " some"]) -> Int[Tensor, " entries"]:
        """Where the entries of some rows stand among those of all, in their order."""
        ends = np.cumsum([0, *self.sizes])
        spans = [np.arange(ends[row], ends[row + 1]) for row in index.tolist()]
        return torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *spans]))

    def metrics(self, tokens: Int[Tensor, "rows width"], mask: Bool[Tensor, "rows width"]) -> dict[str, Tensor]:
        """How many ids were recorded; for a cut, what it left, which ratios would stand at, and ids drawn from outside it (never)."""
        head, number = self.head(tokens), mask.sum().clamp(min=1)
        assert head.offsets is not None
        counts = head.offsets.diff().view(mask.shape)
        found = {"head/size": (counts * mask).sum() / number}
        if not self.replayed:
            return found
        outside = mask & ~head.contains(tokens)
        mass = to_device(self._log_mass(mask.shape[1]), mask.device)
        known = mask & mass.isfinite()
        kept = torch.where(known, mass.exp(), 0.0).sum() / known.sum()
        return found | {"head/outside_fraction": outside.sum() / number, "head/kept_mass": kept}

    def _log_mass(self, width: int) -> Float[Tensor, "rows width"]:
        """Log of what the cut left of each token's distribution; NaN where it is not known, and in the padding."""
        found = np.full((len(self.rows), width), np.nan, np.float32)
        for row, head in enumerate(self.rows):
            if head.log_mass is not None:
                found[row, : len(head.log_mass)] = np.where(head.counts > 0, head.log_mass, np.nan)
        return torch.from_numpy(found)

    def _head(self, counts: np.ndarray, device: torch.device) -> Head:
        offsets = np.zeros(len(counts) + 1, np.int64)
        counts.cumsum(out=offsets[1:])
        ids = np.concatenate([row.ids for row in self.rows])
        log_probs = np.concatenate([_log_probs(row) for row in self.rows])
        host = [torch.from_numpy(each) for each in (ids, log_probs, offsets)]
        there = [to_device(each, device) for each in host]
        return Head(there[0], there[1], there[2])


def _nothing(tokens: int) -> SampledHead:
    return SampledHead(np.zeros(tokens, np.int32), np.zeros(0, np.int32), None, None)


def _log_probs(head: SampledHead) -> np.ndarray:
    """Log-probs of the ids; NaN where the engine did not tell them."""
    return np.full(len(head.ids), np.nan, np.float32) if head.log_probs is None else head.log_probs
