"""A batch split over real processes gives what one process gives: by rows, by columns, with an empty rank."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.config.presets import preset, preset_names
from trimtab.core.correct import Corrected, correct

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
    return [*mean_one, extremes, preset("bypass-token-tis"), *(preset(name) for name in names)]


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
    dist.barrier()
    dist.destroy_process_group()


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
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.parametrize(("world", "job"), [(2, worker), (3, worker), (4, both)], ids=["2", "3", "2x2"])
def test_a_batch_split_over_ranks_is_the_batch(world: int, job: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(job, args=(world, str(Path(folder) / "store")), nprocs=world)


def test_a_segment_needs_its_whole_sequence() -> None:
    rule = Correction(weight=Weight(level="segment"))
    with pytest.raises(ValueError, match="A segment level needs whole sequences"):
        correct(
            rule, **{name: tensor for name, tensor in tensors().items() if name != "current"}, context_group=_Anything()
        )  # type: ignore[arg-type]


class _Anything(dist.ProcessGroup):
    def __init__(self) -> None:
        super().__init__(0, 1)
