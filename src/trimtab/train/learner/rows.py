"""Finished groups as tensors: one row per response, prompts and responses padded to the right, with the heads that samplers recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.head import Head, HeadLogProbs
from trimtab.train.devices import to_device
from trimtab.train.messages import Answer, Sample, SampledHead, Score


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


@dataclass(frozen=True, eq=False)
class Extents:
    """How long each row is and what it shares, on the host: batches are planned from it without a look at the device."""

    prompts: Int[Tensor, " rows"]
    lengths: Int[Tensor, " rows"]
    group: Int[Tensor, " rows"]
    prefix: Int[Tensor, " rows"]
    """The same number where rows of one group have the same prompt; in the order of the groups."""

    def part(self, index: Int[Tensor, " some"]) -> Extents:
        """Those of some rows."""
        return Extents(self.prompts[index], self.lengths[index], self.group[index], self.prefix[index])

    @property
    def sizes(self) -> Int[Tensor, " rows"]:
        """Tokens of each row, prompt included."""
        return self.prompts + self.lengths

    @classmethod
    def of(cls, prompts: Tensor, lengths: Tensor, group: Tensor, texts: Sequence[bytes]) -> Extents:
        """`texts` are the prompts themselves, to be compared."""
        keys = list(zip(group.tolist(), texts, strict=True))
        first: dict[tuple[int, bytes], int] = {}
        for row, key in enumerate(keys):
            first.setdefault(key, row)
        numbers = {key: number for number, key in enumerate(sorted(first, key=lambda key: (key[0], first[key])))}
        prefix = torch.tensor([numbers[key] for key in keys], dtype=torch.long)
        return cls(prompts, lengths, group, prefix)


@dataclass(frozen=True, eq=False)
class Rows:
    """A batch of responses. `width` counts response tokens, `length` prompt and response together."""

    ids: Int[Tensor, "rows length"]
    prompts: Int[Tensor, " rows"]  # tokens of each prompt
    lengths: Int[Tensor, " rows"]  # tokens of each response, trained or not
    tokens: Int[Tensor, "rows width"]  # response tokens, 0 beyond the end
    mask: Bool[Tensor, "rows width"]  # True on response tokens that can be trained
    behavior: Float[Tensor, "rows width"]
    versions: Int[Tensor, "rows width"]  # −1 beyond the end, and where the environment wrote
    group: Int[Tensor, " rows"]
    reward: Float[Tensor, " rows"]
    correct: Bool[Tensor, " rows"]
    ended: Bool[Tensor, " rows"]  # by a stop token
    extents: Extents
    heads: RowHeads | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, index: Tensor) -> Rows:
        """Some of the rows, by indices on the host; the padding that none of them needs goes."""
        extents = self.extents.part(index)
        width = max(int(extents.lengths.max()), 1) if len(index) else 1
        total = max(int(extents.sizes.max()), 1) if len(index) else 1
        ends = {"ids": total} | dict.fromkeys(("tokens", "mask", "behavior", "versions"), width)
        there = to_device(index, self.ids.device)
        few = {name: value[there] for name, value in self._tensors().items()}
        heads = None if self.heads is None else self.heads.part(index)
        cut = {name: value[:, : ends[name]] if name in ends else value for name, value in few.items()}
        return Rows(extents=extents, heads=heads, **cut)

    def to(self, device: torch.device | str) -> Rows:
        """The same there; what is planned on the host stays there."""
        there = {name: to_device(value, device) for name, value in self._tensors().items()}
        return Rows(extents=self.extents, heads=self.heads, **there)

    def without_missing(self, proximal: Float[Tensor, "rows width"] | None) -> Rows:
        """The rows with tokens whose log-probs are missing out of the mask, as if they had never been trained."""
        known = self.behavior.isfinite()
        return replace(self, mask=self.mask & (known if proximal is None else known & proximal.isfinite()))

    @property
    def sizes(self) -> Int[Tensor, " rows"]:
        """Tokens of each row, prompt included."""
        return self.prompts + self.lengths

    def age(self, learner: int) -> Int[Tensor, "rows width"]:
        """How many versions ago each token was sampled; −1 where that is not known."""
        return torch.where(self.versions >= 0, learner - self.versions, -1)

    @property
    def drawn(self) -> Int[Tensor, " rows"]:
        """Tokens of each response that the policy drew."""
        return (self.versions >= 0).sum(-1)

    def _tensors(self) -> dict[str, Tensor]:
        return {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("extents", "heads")
        }

    @classmethod
    def bare(cls, ids: Tensor, prompts: Tensor, lengths: Tensor, group: Tensor) -> Rows:
        """Rows of nothing but tokens: every response token counts, nobody sampled or scored them."""
        steps = torch.arange(max(int(lengths.max()), 1), device=ids.device)
        mask = steps < lengths.unsqueeze(1)
        places = (prompts.unsqueeze(1) + steps).clamp(max=ids.shape[1] - 1)
        nothing = torch.zeros(len(ids), device=ids.device)
        host = [each.cpu() for each in (prompts, lengths, group)]
        texts = [row[:end].numpy().tobytes() for row, end in zip(ids.cpu(), host[0].tolist(), strict=True)]
        return cls(
            ids=ids,
            prompts=prompts,
            lengths=lengths,
            tokens=torch.where(mask, ids.gather(1, places), 0),
            mask=mask,
            behavior=torch.zeros(mask.shape, device=ids.device),
            versions=torch.where(mask, 0, -1),
            group=group,
            reward=nothing,
            correct=nothing.bool(),
            ended=nothing.bool(),
            extents=Extents.of(host[0], host[1], host[2], texts),
        )


def _is_scored(sample: Sample, score: Score) -> bool:
    return sample.finish != "error" and score.failed is None


def _reward(sample: Sample, score: Score) -> float:
    """What a response is worth; NaN where nobody could say, so that it has no vote, whoever else has one."""
    return score.reward if _is_scored(sample, score) else float("nan")


def batch_rows(answers: Sequence[Answer], device: torch.device | str = "cpu", *, replayed: bool = True) -> Rows:
    """The batch of these answers. A response that ended in an error, could not be scored, or holds no token, has an empty mask.

    The first two have no reward either. `replayed`: whether heads are all that could be drawn.
    """
    prompts = np.array([len(each.prompt) for each in answers], dtype=np.int64)
    lengths = np.array([len(each.sample.tokens) for each in answers], dtype=np.int64)
    number, width = len(answers), int(max(lengths.max(initial=0), 1))
    ids = np.zeros((number, int((prompts + lengths).max(initial=1))), dtype=np.int64)
    tokens = np.zeros((number, width), dtype=np.int64)
    mask = np.zeros((number, width), dtype=bool)
    behavior = np.zeros((number, width), dtype=np.float32)
    versions = np.full((number, width), -1, dtype=np.int64)
    for row, answer in enumerate(answers):
        sample, begin, count = answer.sample, len(answer.prompt), len(answer.sample.tokens)
        ids[row, :begin] = answer.prompt
        ids[row, begin : begin + count] = sample.tokens
        tokens[row, :count] = sample.tokens
        mask[row, :count] = sample.own & _is_scored(sample, answer.score)
        behavior[row, :count] = sample.behavior
        versions[row, :count] = sample.versions
    plain = {
        "ids": ids,
        "prompts": prompts,
        "lengths": lengths,
        "tokens": tokens,
        "mask": mask,
        "behavior": behavior,
        "versions": versions,
        "group": np.array([each.group for each in answers], dtype=np.int64),
        "reward": np.array([_reward(each.sample, each.score) for each in answers], dtype=np.float32),
        "correct": np.array([each.score.correct for each in answers], dtype=bool),
        "ended": np.array([each.sample.finish == "stop" for each in answers], dtype=bool),
    }
    host = {name: torch.from_numpy(value) for name, value in plain.items()}
    texts = [each.prompt.tobytes() for each in answers]
    extents = Extents.of(host["prompts"], host["lengths"], host["group"], texts)
    heads = RowHeads.of([each.sample for each in answers], replayed=replayed)
    return Rows(extents=extents, heads=heads, **host).to(device)
