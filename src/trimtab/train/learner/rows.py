"""Finished groups as tensors: one row per response, prompts and responses padded to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.train.devices import to_device
from trimtab.train.learner.row_heads import RowHeads
from trimtab.train.messages import Answer, Sample, Score


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


def micro_batches(sizes: Int[Tensor, " rows"], most: int) -> list[Int[Tensor, " some"]]:
    """Row indices in batches of at most `most` tokens, padding counted; rows of like length share one. A longer row goes alone."""
    order = torch.argsort(sizes, descending=True, stable=True)
    found: list[Tensor] = []
    begin, ordered = 0, sizes[order].tolist()
    while begin < len(ordered):
        room = max(most // max(ordered[begin], 1), 1)
        found.append(order[begin : begin + room])
        begin += room
    return found


def group_batches(
    prompts: Int[Tensor, " rows"], lengths: Int[Tensor, " rows"], group: Int[Tensor, " rows"], most: int
) -> list[Int[Tensor, " some"]]:
    """Row indices in batches of at most `most` tokens, padding counted and the prompt of a group once; groups stay whole if they fit."""
    if len(group) and len(group.unique()) * int(prompts.max()) + len(group) * int(lengths.max()) <= most:
        return [torch.arange(len(group), device=group.device)]
    found: list[list[int]] = []
    wide = long = prefixes = 0
    for rows, prompt, length in _pieces(prompts.tolist(), lengths.tolist(), group.tolist(), most):
        wider, longer = max(wide, prompt), max(long, length)
        if found and (prefixes + 1) * wider + (len(found[-1]) + len(rows)) * longer <= most:
            found[-1] += rows
            wide, long, prefixes = wider, longer, prefixes + 1
        else:
            found.append(rows)
            wide, long, prefixes = prompt, length, 1
    return [torch.tensor(rows, device=group.device) for rows in found]


def _pieces(prompts: list[int], lengths: list[int], group: list[int], most: int) -> list[tuple[list[int], int, int]]:
    """Rows that share a prompt, its length and that of their longest response; longest first, so that neighbours are alike."""
    members: dict[int, list[int]] = {}
    for row in sorted(range(len(group)), key=lambda row: -lengths[row]):
        members.setdefault(group[row], []).append(row)
    found: list[tuple[list[int], int, int]] = []
    for rows in members.values():
        prompt = max(prompts[row] for row in rows)
        begin = 0
        while begin < len(rows):
            room = max((most - prompt) // max(lengths[rows[begin]], 1), 1)
            found.append((rows[begin : begin + room], prompt, lengths[rows[begin]]))
            begin += room
    return sorted(found, key=lambda piece: -piece[1] - piece[2])


def token_shares(extents: Extents, index: Int[Tensor, " some"], number: int) -> list[Int[Tensor, " few"]]:
    """The rows in `number` shares of whole groups, the next largest always to the share with the fewest tokens."""
    if number == 1:
        return [index]
    sizes = extents.sizes.tolist()
    members: dict[int, list[int]] = {}
    for row in index.tolist():
        members.setdefault(int(extents.group[row]), []).append(row)
    shares: list[list[int]] = [[] for _ in range(number)]
    loads = [0] * number
    for rows in sorted(members.values(), key=lambda rows: -sum(sizes[row] for row in rows)):
        least = loads.index(min(loads))
        shares[least] += rows
        loads[least] += sum(sizes[row] for row in rows)
    return [torch.tensor(rows, dtype=torch.long) for rows in shares]


def whole_groups(group: Int[Tensor, " rows"], number: int, generator: torch.Generator) -> list[Int[Tensor, " some"]]:
    """Row indices in `number` parts of whole groups drawn at random, as equal in rows as these allow.

    With fewer groups than parts, parts are equal runs of rows, group after group.
    """
    names = group.tolist()
    members: dict[int, list[int]] = {}
    for row, name in enumerate(names):
        members.setdefault(name, []).append(row)
    groups = list(members.values())
    drawn = [groups[place] for place in torch.randperm(len(groups), generator=generator).tolist()]
    if len(drawn) < number:
        order = torch.tensor([row for rows in drawn for row in rows], dtype=torch.long, device=group.device)
        return list(order.tensor_split(number))
    parts: list[list[int]] = [[] for _ in range(number)]
    for rows in sorted(drawn, key=len, reverse=True):  # the largest first; among equals, as drawn
        min(parts, key=len).extend(rows)
    return [torch.tensor(rows, dtype=torch.long, device=group.device) for rows in parts]
