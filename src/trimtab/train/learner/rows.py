"""Finished groups as tensors: one row per response, prompts and responses padded to the right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.train.messages import Answer, Sample, Score


@dataclass(frozen=True, eq=False)
class Rows:
    """A batch of responses. `width` counts response tokens, `length` prompt and response together."""

    ids: Int[Tensor, "rows length"]
    prompts: Int[Tensor, " rows"]  # tokens of each prompt
    lengths: Int[Tensor, " rows"]  # tokens of each response, trained or not
    tokens: Int[Tensor, "rows width"]  # response tokens, 0 beyond the end
    mask: Bool[Tensor, "rows width"]  # True on response tokens that can be trained
    behavior: Float[Tensor, "rows width"]
    versions: Int[Tensor, "rows width"]  # −1 beyond the end
    group: Int[Tensor, " rows"]
    reward: Float[Tensor, " rows"]
    correct: Bool[Tensor, " rows"]
    ended: Bool[Tensor, " rows"]  # by a stop token

    def __len__(self) -> int:
        return len(self.ids)

    def part(self, index: Tensor) -> Rows:
        """Some of the rows; the padding that none of them needs goes."""
        few = Rows(**{field.name: getattr(self, field.name)[index] for field in fields(self)})
        width = max(int(few.lengths.max()), 1) if len(few) else 1
        total = max(int(few.sizes.max()), 1) if len(few) else 1
        narrow = {name: getattr(few, name)[:, :width] for name in ("tokens", "mask", "behavior", "versions")}
        return Rows(
            ids=few.ids[:, :total],
            prompts=few.prompts,
            lengths=few.lengths,
            group=few.group,
            reward=few.reward,
            correct=few.correct,
            ended=few.ended,
            **narrow,
        )

    @classmethod
    def bare(cls, ids: Tensor, prompts: Tensor, lengths: Tensor, group: Tensor) -> Rows:
        """Rows of nothing but tokens: every response token counts, nobody sampled or scored them."""
        steps = torch.arange(max(int(lengths.max()), 1), device=ids.device)
        mask = steps < lengths.unsqueeze(1)
        places = (prompts.unsqueeze(1) + steps).clamp(max=ids.shape[1] - 1)
        nothing = torch.zeros(len(ids), device=ids.device)
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
        )

    @property
    def sizes(self) -> Int[Tensor, " rows"]:
        """Tokens of each row, prompt included."""
        return self.prompts + self.lengths


def _is_scored(sample: Sample, score: Score) -> bool:
    return sample.finish != "error" and score.failed is None


def _reward(sample: Sample, score: Score) -> float:
    """What a response is worth; NaN where nobody could say, so that it has no vote, whoever else has one."""
    return score.reward if _is_scored(sample, score) else float("nan")


def batch_rows(answers: Sequence[Answer], device: torch.device | str = "cpu") -> Rows:
    """The batch of these answers. A response that ended in an error, could not be scored, or holds no token, has an empty mask.

    The first two have no reward either.
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
        mask[row, :count] = _is_scored(sample, answer.score)
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
    return Rows(**{name: torch.from_numpy(value).to(device) for name, value in plain.items()})


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
