"""A batch split over real processes gives what one process gives: by rows, by columns, with an empty rank."""

from __future__ import annotations

import math
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.losses import Clip, KlCov
from trimtab.config.presets import preset, preset_names
from trimtab.core.correct import Corrected, correct
from trimtab.core.quantiles import largest
from trimtab.core.ranks import ALONE, Ranks
from trimtab.core.reduce import Denominator
from trimtab.errors import InputError
from trimtab.losses.policy import policy_loss

ROWS, WIDTH = 7, 12


def rules() -> list[Correction]:
    """Every preset, and what a batch-wide statistic can do to a weight."""
    warnings.simplefilter("ignore")
    mean_one = [Correction(weight=Weight(level=level, upper=2.0), normalize="batch") for level in ("token", "sequence")]
    extremes = Correction(
        gates=tuple(
            Gate(metric="abs_log_ratio", level="sequence", agg=agg, upper=0.4) for agg in ("max", "min", "every")
        )
    )
    names = [name for name in preset_names() if not name.startswith("bypass-")]
    found = [*mean_one, extremes, preset("bypass-token-tis"), *(preset(name) for name in names)]
    return [rule for rule in found if not rule.has_segments]  # prefixes are refused over a context group


def tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    behavior = -3 * torch.rand(ROWS, WIDTH, generator=generator)
    proximal = behavior + 0.2 * torch.randn(ROWS, WIDTH, generator=generator) * torch.rand(ROWS, 1, generator=generator)
    current = proximal + 0.1 * torch.randn(ROWS, WIDTH, generator=generator)
    mask = torch.rand(ROWS, WIDTH, generator=generator) < 0.8
    mask[2] = False
    advantages = torch.randn(ROWS, 1, generator=generator).expand(ROWS, WIDTH).contiguous()
    return {"behavior": behavior, "proximal": proximal, "current": current, "mask": mask, "advantages": advantages}


def packed(parts: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    rows, width = parts["mask"].shape
    flat = {name: tensor.reshape(-1) for name, tensor in parts.items()}
    return flat | {"cu_seqlens": torch.arange(rows + 1) * width}


def compare(whole: Corrected, part: Corrected, index: Any, what: str, quantiles: bool = True) -> None:
    """The rank's own tokens, and metrics that speak of the whole batch; quantiles take 32 collectives each."""
    torch.testing.assert_close(
        part.weight.reshape(whole.weight[index].shape), whole.weight[index], msg=lambda text: f"{what}: {text}"
    )
    assert torch.equal(part.kept.reshape(whole.kept[index].shape), whole.kept[index]), what
    for name in whole.metrics if quantiles else [name for name in whole.metrics if not name[-2:].isdigit()]:
        torch.testing.assert_close(
            part.metrics[name],
            whole.metrics[name],
            rtol=1e-4,
            atol=1e-5,
            msg=lambda text, name=name: f"{what} {name}: {text}",
        )


def worker(rank: int, world: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    group = dist.group.WORLD
    everything = tensors()
    cuts = {2: [0, 7, 7], 3: [0, 4, 4, 7]}[world]  # the second rank holds nothing
    rows = slice(cuts[rank], cuts[rank + 1])
    columns = torch.arange(rank, WIDTH, world)  # an uneven, interleaved share of every sequence
    for number, rule in enumerate(rules()[:: world - 1]):
        whole, few = correct(rule, **everything), number % 10 == 0
        mine = {name: tensor[rows] for name, tensor in everything.items()}
        compare(whole, correct(rule, **mine, process_group=group), rows, f"rows {rule}", few)
        share = {name: tensor[:, columns] for name, tensor in everything.items()}
        compare(whole, correct(rule, **share, context_group=group), (slice(None), columns), f"columns {rule}", few)
        compare(
            whole, correct(rule, **packed(share), context_group=group), (slice(None), columns), f"packed {rule}", few
        )
    ties(rank, world, group)
    dist.barrier()
    dist.destroy_process_group()


def ties(rank: int, world: int, group: Any) -> None:
    """Of equal values the first are taken, by rank and then by token: exactly as many, and by rows the same ones."""
    lattice = torch.randint(3, (ROWS, WIDTH), generator=torch.Generator().manual_seed(6)).double()
    counted = tensors()["mask"].double()
    cuts = [0, 3, 3, ROWS][: world + 1] if world == 3 else [0, 2, ROWS]
    rows, columns = slice(cuts[rank], cuts[rank + 1]), torch.arange(rank, WIDTH, world)
    for kind in (torch.float32, torch.float64):
        for number in (0.0, 1.0, 5.0, 40.0, 1000.0):
            value, asked = lattice.to(kind), torch.tensor(number)
            whole = largest(value, counted.to(kind), asked, ALONE)
            assert whole.sum() == min(number, float(counted.sum()))
            mine = largest(value[rows], counted[rows].to(kind), asked, Ranks(batch=group))
            assert torch.equal(mine, whole[rows]), number
            share = largest(value[:, columns], counted[:, columns].to(kind), asked, Ranks(context=group))
            taken = share.sum()
            dist.all_reduce(taken, group=group)
            assert taken == whole.sum(), number
            edge = value[whole > 0].min() if whole.any() else math.inf  # above it every token, at it some
            assert torch.equal(share * (value[:, columns] > edge), whole[:, columns] * (value[:, columns] > edge))
            assert not share[value[:, columns] < edge].any()
    one = torch.full((len(lattice[rows]), WIDTH), -1.0)
    found = policy_loss(
        KlCov(fraction=0.1),
        current=one,
        proximal=one,
        mask=torch.ones_like(one, dtype=torch.bool),
        advantages=torch.ones(len(one)),
        process_group=group,
    )
    assert float(found.metrics["policy/cov"]) == pytest.approx(8 / (ROWS * WIDTH))  # ⌊8.4⌋ of 84, all alike


def both(rank: int, world: int, store: str) -> None:
    """Two data ranks of two context ranks each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    contexts = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    everything = tensors()
    rows = slice(0, 3) if rank < 2 else slice(3, ROWS)
    columns = slice(0, 5) if rank % 2 == 0 else slice(5, WIDTH)
    for rule in (preset("m2po", tau=0.001), preset("geo-rs+seq-tis"), rules()[1]):
        mine = {name: tensor[rows, columns] for name, tensor in everything.items()}
        out = correct(rule, **mine, process_group=dist.group.WORLD, context_group=contexts[rank // 2])
        compare(correct(rule, **everything), out, (rows, columns), str(rule))
    data_parallel = [dist.new_group([0, 2]), dist.new_group([1, 3])][rank % 2]
    refusals(data_parallel, contexts[rank // 2], {name: each[rows, columns] for name, each in everything.items()})
    dist.barrier()
    dist.destroy_process_group()


def refusals(data_parallel: Any, context: Any, mine: dict[str, torch.Tensor]) -> None:
    """A process_group that leaves out ranks of context_group would count a part of each sequence: no call takes it."""
    wrong = {"process_group": data_parallel, "context_group": context}
    fewer = {name: each for name, each in mine.items() if name != "behavior"}
    for call in (
        lambda: correct(preset("token-tis"), **mine, **wrong),
        lambda: policy_loss(Clip(), **fewer, **wrong),
        lambda: Denominator.of(mine["mask"], **wrong),
    ):
        with pytest.raises(
            InputError, match=r"process_group needs every rank of context_group, got ranks \[\d, \d\] without"
        ):
            call()


@pytest.mark.parametrize(("world", "job"), [(2, worker), (3, worker), (4, both)], ids=["2", "3", "2x2"])
def test_a_batch_split_over_ranks_is_the_batch(world: int, job: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(job, args=(world, str(Path(folder) / "store")), nprocs=world)


def test_a_segment_needs_its_whole_sequence() -> None:
    given = {name: tensor for name, tensor in tensors().items() if name != "current"}
    for level in ("segment", "segment_product"):
        rule = Correction(weight=Weight(level=level))
        with pytest.raises(ValueError, match="A segment or prefix level needs whole sequences"):
            correct(rule, **given, context_group=_Anything())  # type: ignore[arg-type]


class _Anything(dist.ProcessGroup):
    def __init__(self) -> None:
        super().__init__(0, 1)
