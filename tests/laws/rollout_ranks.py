"""The same rollouts held by several real processes, and each compared with the whole."""

from __future__ import annotations

import os
import random
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.laws.rollouts import Rollouts, Way
from trimtab.advantage.estimate import Advantages
from trimtab.advantage.normalise import normalised
from trimtab.config.advantages import (
    ESTIMATORS,
    Gae,
    Gdpo,
    Grpo,
    LeaveOneOut,
    Normalise,
    Overlong,
    PassK,
    ReinforcePlusPlus,
    Rloo,
    Shaping,
)

NORMS = [
    Normalise(),
    Normalise(mean="group", std="group", eps=1e-4, eps_at="std"),
    Normalise(mean="group", std="batch", leave_one_out=True, about="subtracted", unbiased=False),
    Normalise(mean=None, std="group", eps_at="floor"),
]


def _ways() -> list[Way]:
    shaped = Shaping(
        no_eos="zero", bias=-1.0, overlong=Overlong(max_length=4, buffer=2), normalise=Normalise(mean="group")
    )
    needs = {"gdpo": {"weights": (1.0, 0.5)}, "distillation": {"base": Grpo(), "normalise": Normalise()}}
    found = [Way(each(**needs.get(kind, {})), Shaping()) for kind, each in ESTIMATORS.items()]
    found += [Way(each, shaped, extra=True) for each in (Gae(), Grpo(), ReinforcePlusPlus(group_mean=True))]
    found += [Way(LeaveOneOut(baseline="all"), Shaping(), dense=True), Way(PassK(k=2, std=False), Shaping())]
    found += [Way(Gdpo(weights=(1.0, 0.5), leave_one_out=True), Shaping()), Way(Rloo(lower=-0.2, upper=0.3), Shaping())]
    found += [Way(Grpo(normalise=norm), Shaping(no_eos="drop")) for norm in NORMS]
    return found


def _batch(rows: int) -> Rollouts:
    generator = torch.Generator().manual_seed(5)
    mask = torch.rand(rows, 5, generator=generator) < 0.7
    rewards = torch.randint(0, 3, (rows,), generator=generator).float()
    draw = lambda *shape: torch.randn(*shape, generator=generator)  # noqa: E731
    return Rollouts(
        mask=mask,
        kept=mask & (torch.rand(rows, 1, generator=generator) < 0.8),
        values=draw(rows, 5),
        token_rewards=0.1 * draw(rows, 5),
        teacher=-draw(rows, 5).abs(),
        proximal=-draw(rows, 5).abs(),
        squares=draw(rows, 5).sigmoid(),
        weight=draw(rows, 5).exp(),
        dense_rewards=draw(rows, 5),
        rewards=rewards,
        columns=torch.stack([rewards, draw(rows)], -1),
        group=torch.tensor([40, -2, 7])[torch.randint(0, 3, (rows,), generator=generator)],
        bootstrap=draw(rows),
        baselines=draw(rows),
        ended=torch.rand(rows, generator=generator) < 0.8,
        lengths=(5,) * rows,
    )


def _agrees(whole: Advantages, part: Advantages, own: list[int], way: Way) -> None:
    for name in ("advantages", "returns", "rows", "rewards", "votes", "trained"):
        ours = getattr(part, name)
        if ours is not None:
            torch.testing.assert_close(ours, getattr(whole, name)[own], msg=lambda text, n=name: f"{way} {n}: {text}")
    for name, value in whole.metrics.items():
        torch.testing.assert_close(part.metrics[name], value, msg=lambda text, n=name: f"{way} {n}: {text}")


def _worker(rank: int, ranks: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    group = dist.group.WORLD
    rows = 11
    holder = [random.Random(row).randrange(min(ranks, 2)) for row in range(rows)]  # a third rank holds nothing
    own = [row for row in range(rows) if holder[row] == rank]
    it = _batch(rows)
    for way in _ways():
        _agrees(way(it), way(it.rows(own), process_group=group), own, way)
        index = torch.unique(it.group, return_inverse=True)[1]
        dense = it.but(group=index)
        _agrees(way(it), way(dense.rows(own), groups=3, process_group=group), own, way)
    for norm in NORMS:
        for values, mask in ((it.rewards, it.mask.any(-1)), (it.values, it.mask)):
            whole = normalised(norm, values, mask=mask, group=it.group)
            part = normalised(norm, values[own], mask=mask[own], group=it.group[own], process_group=group)
            torch.testing.assert_close(part, whole[own])
    dist.destroy_process_group()


def in_ranks(ranks: int, folder: Path) -> None:
    """Run the comparison in so many processes; any failure is raised here."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    mp.spawn(_worker, args=(ranks, str(folder / "store")), nprocs=ranks)
