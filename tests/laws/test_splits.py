"""Split invariance: micro-batches, packing, ranks, DDP and context parallel give the gradient of the whole step.

The rank tests run real gloo processes, two and three of them; every check of a world runs in one start of it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.laws.objectives import (
    CORRECTIONS,
    COVARIANCE,
    LOSSES,
    OF_THE_BATCH,
    REDUCTIONS,
    WHOLE,
    Setup,
    gradients,
    same,
)
from tests.waiting import LIMIT
from trimtab.config import losses as config
from trimtab.config.losses import Objective
from trimtab.core.correct import Corrected, correct
from trimtab.core.reduce import Denominator
from trimtab.errors import InputError
from trimtab.losses.policy import policy_loss

pytestmark = [  # what is probably not meant still has to hold the laws
    pytest.mark.filterwarnings("ignore:.* under a bypass rule with a weight"),
    pytest.mark.filterwarnings("ignore:Luspo with reduction"),
]

Tensors = dict[str, Tensor]
POLICIES = ("behavior", "proximal", "current", "advantages", "mask")
ROWS, WIDTH = 7, 6
PROMPTS = (4, 9, 4, -1, 9, 4, 3)
TO = 1e-6
"""The promise: the same gradient to this. Rounding in float64 is far below it."""


def step(kind: torch.dtype = torch.float64) -> Tensors:
    """One optimiser step: rows of uneven length, one without tokens, holes, prompts whose rows lie apart."""
    draw = torch.Generator().manual_seed(11)

    def noise(scale: float) -> Tensor:
        return torch.randn(ROWS, WIDTH, generator=draw, dtype=torch.float64) * scale

    behavior = -noise(1.0).abs() - 0.1
    proximal = behavior + noise(0.15)
    mask = torch.arange(WIDTH) < torch.tensor([6, 1, 0, 4, 5, 2, 6])[:, None]
    mask[0, 2] = mask[4, 0] = False
    found = {
        "behavior": behavior,
        "proximal": proximal,
        "current": proximal + noise(0.3),
        "reference": proximal - 0.3,
        "entropy": behavior.abs() + 0.1,
        "advantages": noise(1.0),
    }
    return {name: each.to(kind) for name, each in found.items()} | {"mask": mask, "group": torch.tensor(PROMPTS)}


def packed(data: Tensors) -> Tensors:
    """Rows end to end, masked tokens left out where a row ends."""
    lengths = [int(row.nonzero().max()) + 1 if row.any() else 0 for row in data["mask"]]
    there = torch.arange(data["mask"].shape[1]) < torch.tensor(lengths)[:, None]
    bounds = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()])
    return {name: each if name == "group" else each[there] for name, each in data.items()} | {"cu_seqlens": bounds}


def counted_masks(setup: Setup, data: Tensors) -> tuple[Tensor, Corrected | None]:
    """What the denominator counts, and the correction over the whole step."""
    if setup.correction is None:
        return data["mask"], None
    whole = correct(setup.correction, **{name: data[name] for name in POLICIES})
    return (whole.kept if setup.correction.denominator == "kept" else whole.trained), whole


def setups(losses: list[Objective]) -> Iterator[Setup]:
    """Each loss with one rule and one reduction, the first with every rule: all of each, not all of the product."""
    rules = list(CORRECTIONS)
    pairs = [(loss, rules[index % len(rules)]) for index, loss in enumerate(losses)]
    pairs += [(losses[0], rule) for rule in rules[1:]]
    for index, (loss, rule) in enumerate(pairs):
        yield Setup(loss, REDUCTIONS[index % len(REDUCTIONS)], rule, extras=True)


# --- micro-batches and packing ---------------------------------------------------------------------------------------

SPLITS = [
    [[0], [1], [2], [3], [4], [5], [6]],
    [[6, 2], [0, 3, 5], [1, 4]],
    [[0, 1, 3], [2], [4, 5, 6]],  # row 2 has no tokens: a micro-batch with nothing to train on
]


def test_every_rule_and_loss_acts_on_the_step() -> None:
    """Rules that reject nothing, or losses that clip nothing, would make the tests below empty."""
    data = step()
    for name, rule in CORRECTIONS.items():
        if rule is not None:
            out = correct(rule, **{each: data[each] for each in POLICIES})
            assert out.weight.unique().numel() > 1, name
            assert 0 < (out.weight > 0).sum() < data["mask"].sum() or name == "bypass-token-tis", name
    for loss in LOSSES:
        if isinstance(loss, config.Clip | config.Gspo | config.DppoTv | config.DppoKl | config.ClipCov | config.KlCov):
            out = policy_loss(loss, **data).metrics
            names = [each for each in out if each.rpartition("/")[2] in ("clip_high", "clip_low", "cov")]
            assert sum(float(out[each]) for each in names) > 0, loss


@pytest.mark.parametrize("reduction", REDUCTIONS, ids=str)
def test_any_split_into_micro_batches_padded_or_packed_gives_the_gradient_of_the_whole(
    reduction: config.Reduction,
) -> None:
    losses = [loss for loss in [*LOSSES, *WHOLE] if not isinstance(loss, COVARIANCE)]
    for index, loss in enumerate(losses):
        rule = list(CORRECTIONS)[(index + REDUCTIONS.index(reduction)) % len(CORRECTIONS)]
        check_split(Setup(loss, reduction, rule, extras=True), SPLITS[index % len(SPLITS)])


@pytest.mark.parametrize("rule", CORRECTIONS)
@pytest.mark.parametrize("split", SPLITS, ids=str)
def test_any_split_holds_for_every_correction(rule: str, split: list[list[int]]) -> None:
    for reduction in REDUCTIONS:
        check_split(Setup(config.Clip(), reduction, rule, extras=False), split)


def test_float32_keeps_the_promise_too() -> None:
    for index, loss in enumerate(loss for loss in LOSSES if not isinstance(loss, COVARIANCE)):
        setup = Setup(loss, REDUCTIONS[index % len(REDUCTIONS)], "geo-rs+token-mis", extras=True)
        check_split(setup, SPLITS[index % len(SPLITS)], torch.float32)


def check_split(setup: Setup, split: list[list[int]], kind: torch.dtype = torch.float64) -> None:
    """Micro-batches, every other one packed, each divided by the counts of the step: loss and gradients of the whole."""
    data = step(kind)
    value, grads = gradients(setup, data)
    masks, whole = counted_masks(setup, data)
    parts = [{name: each[rows] for name, each in data.items()} for rows in split]
    found = Denominator.of([masks[rows] for rows in split], group=[part["group"] for part in parts])
    total = torch.zeros((), dtype=kind)
    for number, (part, rows) in enumerate(zip(parts, split, strict=True)):
        want = {name: each[rows] for name, each in grads.items()}
        if setup.rule in OF_THE_BATCH:
            assert whole is not None
            share, slopes = gradients(setup, part, denominator=found, correction=whole.part(torch.tensor(rows)))
        elif number % 2:
            share, slopes = gradients(setup, packed(part), denominator=found)
            want = {name: packed(part | {"x": each})["x"] for name, each in want.items()}
        else:
            share, slopes = gradients(setup, part, denominator=found)
        total += share
        for name in slopes:
            same(slopes[name], want[name], TO)
    torch.testing.assert_close(total, value, rtol=TO, atol=TO)  # terms of either sign cancel in the loss itself


def test_a_batch_statistic_needs_the_whole_step() -> None:
    """Handed out in parts, M2PO decides as one; worked out per micro-batch it would not: the reason for `Corrected.part`."""
    data = step()
    setup = Setup(config.Clip(), REDUCTIONS[0], "m2po", extras=False)
    whole = correct(CORRECTIONS["m2po"], **{name: data[name] for name in POLICIES})
    alone = [
        correct(CORRECTIONS["m2po"], **{name: data[name][row : row + 1] for name in POLICIES}) for row in range(ROWS)
    ]
    assert not torch.equal(torch.cat([each.kept for each in alone]), whole.kept)
    with pytest.raises(InputError, match=r"\.part\(index\)"):
        gradients(setup, {name: each[:2] for name, each in data.items()}, correction=whole)


# --- ranks -----------------------------------------------------------------------------------------------------------


def rows_of(rank: int, world: int) -> slice:
    """Uneven parts; of three ranks the last has none."""
    cuts = {2: (0, 5, ROWS), 3: (0, 5, ROWS, ROWS)}[world]
    return slice(cuts[rank], cuts[rank + 1])


def check_ranks(rank: int, world: int, group: Any) -> None:
    """Each rank calls once with its own rows: the call is the step. Metrics are those of the whole, on every rank."""
    data, own = step(), rows_of(rank, world)
    mine = {name: each[own] for name, each in data.items()}
    for setup in setups([*LOSSES, *WHOLE]):
        value, grads = gradients(setup, data)
        share, slopes = gradients(setup, mine, process_group=group)
        for name in grads:
            same(slopes[name] / world, grads[name][own], TO)
        dist.all_reduce(share, group=group)
        same(share / world, value, TO)


def check_metrics(rank: int, world: int, group: Any) -> None:
    data, own = step(torch.float32), rows_of(rank, world)
    for rule in ("geo-rs+token-mis", "opsm"):
        setup = Setup(config.Clip(dual=1.5), REDUCTIONS[0], rule, extras=True)
        whole = policy_loss(setup.loss, **data, **setup.settings()).metrics
        mine = {name: each[own] for name, each in data.items()}
        found = policy_loss(setup.loss, **mine, **setup.settings(), process_group=group).metrics
        assert list(found) == list(whole)
        for name in whole:
            assert float(found[name]) == pytest.approx(float(whole[name]), rel=1e-4, abs=1e-5), name


def check_micro_batches_on_ranks(rank: int, world: int, group: Any) -> None:
    """A denominator counted once across ranks; ranks with different numbers of micro-batches, and summed gradients."""
    data, own = step(), rows_of(rank, world)
    mine = {name: each[own] for name, each in data.items()}
    parts = [{name: each[row : row + 1] for name, each in mine.items()} for row in range(len(mine["mask"]))]
    for setup in setups([config.Clip(), config.Gspo(low=0.05, high=0.05)]):
        if setup.rule in OF_THE_BATCH:
            continue
        _, grads = gradients(setup, data)
        masks, _ = counted_masks(setup, mine)
        found = Denominator.of(
            [masks[row : row + 1] for row in range(len(masks))] or [masks],
            group=[part["group"] for part in parts] or [mine["group"]],
            process_group=group,
            gradients="summed",
        )
        slopes = [gradients(setup, part, denominator=found)[1]["current"] for part in parts]
        if slopes:
            same(torch.cat(slopes), grads["current"][own], TO)


class Policy(nn.Module):
    """Log-probs from features: enough of a model for DDP to average."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()

    def forward(self, features: Tensor) -> Tensor:
        return -nn.functional.softplus(self.layers(features).squeeze(-1))


def check_ddp(rank: int, world: int, group: Any) -> None:
    """DDP averages gradients; with the denominator's factor the average is the gradient of the whole step."""
    data, own = step(), rows_of(rank, world)
    features = torch.randn(ROWS, WIDTH, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    for setup in setups([config.Clip(), config.Gspo(low=0.05, high=0.05), config.Cispo(), config.KlCov(fraction=0.3)]):
        if setup.rule in OF_THE_BATCH:
            continue
        alone = Policy()
        whole = policy_loss(setup.loss, **(data | {"current": alone(features)}), **setup.settings())
        whole.loss.backward()
        model = DistributedDataParallel(Policy(), process_group=group)
        mine = {name: each[own] for name, each in data.items()}
        out = policy_loss(
            setup.loss, **(mine | {"current": model(features[own])}), **setup.settings(), process_group=group
        )
        out.loss.backward()
        for ours, theirs in zip(model.parameters(), alone.parameters(), strict=True):
            assert ours.grad is not None
            assert theirs.grad is not None
            same(ours.grad, theirs.grad, TO)


def check_context(rank: int, world: int, group: Any) -> None:
    """Every rank holds a stretch of every sequence; sequence statistics, and their gradients, cross the ranks."""
    data = step()
    cuts = {2: (0, 2, WIDTH), 3: (0, 1, 4, WIDTH)}[world]
    own = slice(cuts[rank], cuts[rank + 1])
    mine = {name: each if name == "group" else each[:, own] for name, each in data.items()}
    for setup in setups(LOSSES):
        value, grads = gradients(setup, data)
        share, slopes = gradients(setup, mine, context_group=group)
        for name in grads:
            same(slopes[name] / world, grads[name][:, own], TO)
        dist.all_reduce(share, group=group)
        same(share / world, value, TO)


def check_empty_ranks(rank: int, world: int, group: Any) -> None:
    """Ranks with rows but nothing to train on, and a world with nothing at all: exact zeros, nobody waits."""
    data = step()
    for setup in setups(LOSSES):
        if setup.loss is LOSSES[0] and setup.rule != "none":
            continue
        nothing = data | {"mask": torch.zeros_like(data["mask"])}
        for given in (nothing, {name: each[:rank] for name, each in nothing.items()}):  # none, or no rows on one rank
            value, grads = gradients(setup, given, process_group=group)
            assert value == 0
            assert not any(each.any() for each in grads.values())
        _, grads = gradients(setup, data)
        _, slopes = gradients(setup, data if rank == 0 else nothing, process_group=group)
        same(slopes["current"] / world, grads["current"] if rank == 0 else torch.zeros_like(grads["current"]), TO)


CHECKS = (check_ranks, check_metrics, check_micro_batches_on_ranks, check_ddp, check_context, check_empty_ranks)


def _process(rank: int, folder: str) -> None:
    """One of three processes; the first two are also a world of their own. Every outcome goes to a file."""
    torch.set_num_threads(1)
    patience = timedelta(seconds=LIMIT)
    dist.init_process_group("gloo", f"file://{folder}/store", timeout=patience, rank=rank, world_size=3)
    for world, group in ((2, dist.new_group([0, 1], timeout=patience)), (3, dist.group.WORLD)):
        for check in CHECKS if rank < world else ():
            try:
                check(rank, world, group)
                outcome = "passed"
            except Exception:
                outcome = traceback.format_exc()
            Path(folder, f"{check.__name__}-{world}-{rank}").write_text(outcome)
            if outcome != "passed":
                return  # the other ranks may be waiting for a collective that will not come
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three processes, started once."""
    folder = tmp_path_factory.mktemp("ranks")
    mp.spawn(_process, (str(folder),), nprocs=3)  # pyright: ignore[reportPrivateImportUsage]
    return folder


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_split_over_ranks_gives_the_gradient_of_the_whole(outcomes: Path, check: Any, world: int) -> None:
    for rank in range(world):
        outcome = outcomes / f"{check.__name__}-{world}-{rank}"
        assert outcome.exists(), "stopped before this check"
        assert outcome.read_text() == "passed", outcome.read_text()
