"""Small batches in numbers a person can read: one decimal, few rows, awkward masks."""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor

Inputs = dict[str, Tensor]
"""Tensors by name: the first axis is rows, the second tokens."""

DELTAS = (0.0, 0.1, -0.1, 0.3, -0.3, 0.8, -0.8)
JUNK = (7.0, -9.0, 0.0)
NOT_FINITE = (float("nan"), float("inf"), float("-inf"))


def token_batch(random: Random) -> Inputs:
    """Two to four rows of up to five tokens, each with one at least; log-ratios from none to large."""
    rows, width = random.randint(2, 4), random.randint(2, 5)

    def each(draw: object) -> Tensor:
        assert callable(draw)
        return torch.tensor([[draw() for _ in range(width)] for _ in range(rows)], dtype=torch.float32)

    behavior = each(lambda: -random.randint(1, 30) / 10)
    proximal = (behavior + each(lambda: random.choice(DELTAS))).clamp(max=-0.1)
    current = (proximal + each(lambda: random.choice(DELTAS))).clamp(max=-0.1)
    per_row = torch.tensor([[random.choice((-2.0, -1.0, -0.5, 0.5, 1.0, 2.0))] for _ in range(rows)])
    lengths = torch.tensor([random.randint(1, width) for _ in range(rows)])
    mask = torch.arange(width) < lengths[:, None]
    for row in range(rows):
        if lengths[row] > 2 and random.random() < 0.4:
            mask[row, random.randrange(1, int(lengths[row]) - 1)] = False  # tool output inside a response
    return {
        "behavior": _tenths(behavior),
        "proximal": _tenths(proximal),
        "current": _tenths(current),
        "advantages": per_row.expand(rows, width).contiguous(),
        "mask": mask,
    }


def _tenths(value: Tensor) -> Tensor:
    return (value * 10).round() / 10


def with_junk(values: tuple[float, ...], random: Random) -> Inputs:
    """A batch, and values to stand where the mask is False."""
    drawn = token_batch(random)
    drawn["mask"][random.randrange(len(drawn["mask"])), -1] = False
    junk = [random.choice(values) for _ in range(drawn["mask"].numel())]
    return drawn | {"junk": torch.tensor(junk).reshape(drawn["mask"].shape)}


def reward_batch(random: Random, by_place: bool) -> Inputs:
    """Rewards, groups and masks of up to seven rows; groups of any size and order, or pairs that follow each other."""
    if by_place:
        group = [index // 2 for index in range(2 * random.randint(2, 3))]
    else:
        group = [random.randint(0, 2) for _ in range(random.randint(3, 7))]
    rows = len(group)
    mask = torch.arange(3) < torch.tensor([[random.randint(1, 3)] for _ in range(rows)])
    return {
        "rewards": torch.tensor([float(random.choice((0, 0, 1, 1, 2, -1))) for _ in range(rows)]),
        "group": torch.tensor(group),
        "mask": mask,
    }


def version_batch(random: Random) -> Inputs:
    """Versions that only grow along a row, some not known (−1), and the learner's."""
    rows, width, learner = random.randint(2, 4), random.randint(2, 4), random.randint(6, 9)
    versions = torch.tensor([sorted(random.randint(0, learner) for _ in range(width)) for _ in range(rows)])
    mask = torch.arange(width) < torch.tensor([[random.randint(1, width)] for _ in range(rows)])
    return {"versions": versions, "mask": mask, "learner": torch.tensor(learner)}
