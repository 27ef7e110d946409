"""The law plain = fast over real processes: each rank decides by the form that fits its part, and all have the metrics of the whole."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.presets import preset
from trimtab.core import correct as correct_module
from trimtab.core.correct import correct

pytest.importorskip("numba", reason="the extra [fast] is not installed")

ROWS, WIDTH, CUT = 6, 10, 4


def rules() -> list[Correction]:
    warnings.simplefilter("ignore")
    sequence = Gate(metric="ratio", level="sequence", lower=0.9, upper=1.1)
    every = sequence.but(agg="every", lower=0.1, upper=10.0)
    return [
        preset("token-tis"),
        Correction(gates=(every, sequence.but(scope="kept")), weight=Weight(level="geometric", upper=2.0)),
        Correction(gates=(Gate(metric="ratio", upper=1.1),), weight=Weight(level="token", upper=2.0)),
    ]


def tensors() -> dict[str, Tensor]:
    """The last row holds a number too far out for the pass."""
    draw = torch.Generator().manual_seed(5)
    behavior = -30 - torch.rand(ROWS, WIDTH, generator=draw)
    proximal = behavior + 0.1 * torch.randn(ROWS, WIDTH, generator=draw)
    proximal[-1, 0] += 25.0
    return {"behavior": behavior, "proximal": proximal, "mask": torch.rand(ROWS, WIDTH, generator=draw) < 0.8}


def worker(rank: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    rows, taken, given = slice(0, CUT) if rank == 0 else slice(CUT, ROWS), [], tensors()
    fast_decisions = correct_module.fast_decisions

    def spy(*asked: object) -> object:
        taken.append(found := fast_decisions(*asked))  # pyright: ignore[reportArgumentType]
        return found

    for rule in rules():
        os.environ["TRIMTAB_FAST"] = "0"
        whole = correct(rule, **given)
        os.environ["TRIMTAB_FAST"] = "1"
        correct_module.fast_decisions = spy
        mine = correct(rule, **{name: each[rows] for name, each in given.items()}, process_group=dist.group.WORLD)
        correct_module.fast_decisions = fast_decisions
        assert (taken[-1] is not None) == (rank == 0)  # a control: the two ranks take different forms
        assert torch.equal(mine.kept, whole.kept[rows])
        assert torch.equal(mine.log_r, whole.log_r[rows])
        torch.testing.assert_close(mine.weight, whole.weight[rows], rtol=1e-5, atol=0.0)
        for name, value in whole.metrics.items():
            torch.testing.assert_close(mine.metrics[name], value, rtol=1e-5, atol=1e-5, msg=name)
    dist.destroy_process_group()


def test_ranks_that_take_different_forms_have_the_metrics_of_the_whole(tmp_path: Path) -> None:
    mp.spawn(worker, args=(str(tmp_path / "store"),), nprocs=2)
