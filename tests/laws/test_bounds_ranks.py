"""Bounds of the batch and group means over real processes: what one process finds, each of several finds too."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.laws.test_ranks import WIDTH, compare, packed, tensors
from trimtab.config.correction import Correction, Gate, Weight
from trimtab.core.correct import correct

GROUP = torch.tensor([0, 0, 1, 1, 9, 9, 9])
"""Of seven rows, which ranks get by fours: no group stands on two of them."""


def rules() -> list[Correction]:
    """Shares at each level, effective shares, scales."""
    gates = [
        Gate(metric="ratio", bounds={"keep": 0.7}),
        Gate(metric="k3", level="sequence", bounds={"keep": 0.5}),
        Gate(metric="abs_log_ratio", level="sequence", agg="every", bounds={"keep": 0.6}),
        Gate(metric="ratio", upper=1.1, lower=0.9, bound_scale="entropy"),
        Gate(metric="ratio", upper=1.1, lower=0.9, bound_scale="one_minus_p"),
        Gate(metric="ratio", level="sequence", upper=1.05, bound_scale="inv_sqrt_length"),
    ]
    weights = [
        Weight(level="token", bounds={"keep": 0.8}),
        Weight(level="token", bounds={"ess": 0.9}),
        Weight(level="sequence", bounds={"ess": 0.8}),
        Weight(level="sequence", bounds={"keep": 0.5}, outside="zero"),
        Weight(level="geometric", upper=1.05, bound_scale="inv_sqrt_length"),
    ]
    both = Correction(gates=(gates[0],), weight=weights[1].but(scope="kept"))
    return [*(Correction(gates=(each,)) for each in gates), *(Correction(weight=each) for each in weights), both]


def uneven() -> dict[str, torch.Tensor]:
    """A batch whose later rows lie further apart, so that a rank's own bounds are not those of the batch."""
    given = tensors()
    far = torch.where(torch.arange(len(GROUP)) >= 4, 6.0, 1.0).unsqueeze(1)
    apart = (given["proximal"] - given["behavior"]) * far
    return given | {"proximal": given["behavior"] + apart, "entropy": given["behavior"].abs() / 2}


def worker(rank: int, world: int, store: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    group = dist.group.WORLD
    everything = uneven()
    cuts = [0, 4, 4, 7]  # the second rank holds nothing
    rows, columns = slice(cuts[rank], cuts[rank + 1]), torch.arange(rank, WIDTH, world)
    mine = {name: each[rows] for name, each in everything.items()}
    share = {name: each[:, columns] for name, each in everything.items()}
    differs: list[bool] = []
    for rule in rules():
        whole = correct(rule, **everything)
        assert 0 < whole.kept.sum() < everything["mask"].sum() or rule.weight is not None
        compare(whole, correct(rule, **mine, process_group=group), rows, f"rows {rule}", False)
        alone = correct(rule, **mine)
        differs.append(not torch.equal(alone.weight, whole.weight[rows]))
        for given in (share, packed(share)):
            compare(
                whole, correct(rule, **given, context_group=group), (slice(None), columns), f"columns {rule}", False
            )
    assert rank != 0 or sum(differs) >= 4  # a control: what a rank finds by itself is often something else
    for level in ("token", "sequence", "geometric"):
        rule = Correction(weight=Weight(level=level, upper=2.0), normalize="group")
        whole = correct(rule, **everything, group=GROUP)
        compare(whole, correct(rule, **mine, group=GROUP[rows], process_group=group), rows, f"groups {rule}", False)
        part = correct(rule, **share, group=GROUP, context_group=group)
        compare(whole, part, (slice(None), columns), f"columns {rule}", False)
    dist.barrier()
    dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")
def test_what_is_found_over_ranks_is_what_one_process_finds() -> None:
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(worker, (3, str(Path(folder) / "store")), nprocs=3)  # pyright: ignore[reportPrivateImportUsage]
