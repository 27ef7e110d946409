"""A rank that holds nothing: its loss is 0 and connected, so that its backward runs the collectives the others wait for.

Two real gloo processes; the first holds the whole step, the second none of it.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from tests.laws.objectives import CORRECTIONS, LOSSES, REDUCTIONS, WHOLE, Setup, gradients, same
from tests.laws.test_splits import ROWS, TO, WIDTH, Policy, Tensors, packed, step
from trimtab.config import losses as config
from trimtab.config.losses import Objective
from trimtab.core.reduce import Denominator
from trimtab.losses.policy import policy_loss

pytestmark = [  # what is probably not meant still has to hold the laws
    pytest.mark.filterwarnings("ignore:.* under a bypass rule with a weight"),
    pytest.mark.filterwarnings("ignore:Luspo with reduction"),
]

WORLD = 2
LAYOUTS = {"padded": lambda data: data, "packed": packed}


def setups(losses: list[Objective]) -> Iterator[Setup]:
    """Every loss with every reduction; the rules in turn."""
    rules = list(CORRECTIONS)
    for index, (loss, reduction) in enumerate(product(losses, REDUCTIONS)):
        yield Setup(loss, reduction, rules[index % len(rules)], extras=index % 2 == 0)


def no_rows(data: Tensors) -> Tensors:
    """The step of a rank without sequences."""
    if "cu_seqlens" not in data:
        return {name: each[:0] for name, each in data.items()}
    return {name: each[: 1 if name == "cu_seqlens" else 0] for name, each in data.items()}


def no_part(data: Tensors) -> Tensors:
    """The step of a rank that knows every sequence and has no token of any."""
    if "cu_seqlens" not in data:
        return {name: each if name == "group" else each[:, :0] for name, each in data.items()}
    empty = {name: each[:0] for name, each in data.items() if name not in ("group", "cu_seqlens")}
    return empty | {"group": data["group"], "cu_seqlens": torch.zeros_like(data["cu_seqlens"])}


def check_data_ranks(rank: int, group: Any, data: Tensors) -> None:
    for setup in setups([*LOSSES, *WHOLE]):
        compare(rank, setup, data, no_rows(data), process_group=group)


def check_context_ranks(rank: int, group: Any, data: Tensors) -> None:
    for setup in setups(LOSSES):
        compare(rank, setup, data, no_part(data), context_group=group)


def compare(rank: int, setup: Setup, data: Tensors, nothing: Tensors, **groups: Any) -> None:
    """The rank with everything has the gradient of the whole, the other a connected 0."""
    _, want = gradients(setup, data)
    if rank == 0:
        _, found = gradients(setup, data, **groups)
        for name in found:
            same(found[name] / WORLD, want[name], TO)
        return
    current = nothing["current"].clone().requires_grad_()
    out = policy_loss(setup.loss, **(nothing | {"current": current}), **setup.settings(), **groups)
    assert float(out.loss.detach()) == 0.0, setup
    out.loss.backward()
    assert current.grad is not None, setup


def check_ddp(rank: int, group: Any, data: Tensors) -> None:
    """DDP waits for every rank in backward."""
    features = torch.randn(ROWS, WIDTH, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    if "cu_seqlens" in data:
        features = packed(step() | {"x": features})["x"]
    mine = data if rank == 0 else no_rows(data)
    losses = [config.Gspo(low=0.05, high=0.05), config.Luspo(), config.Gmpo(), config.Sapo(level="sequence")]
    for loss, reduction in product(losses, REDUCTIONS):
        alone, shared = Policy(), DistributedDataParallel(Policy(), process_group=group)
        policy_loss(loss, **(data | {"current": alone(features)}), reduction=reduction).loss.backward()
        current = shared(features if rank == 0 else features[:0])
        policy_loss(loss, **(mine | {"current": current}), reduction=reduction, process_group=group).loss.backward()
        for ours, theirs in zip(shared.parameters(), alone.parameters(), strict=True):
            same(gradient(ours), gradient(theirs), TO)


def gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad


CHECKS = (check_data_ranks, check_context_ranks, check_ddp)


def _process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", f"file://{folder}/store", timeout=timedelta(seconds=30), rank=rank, world_size=WORLD
    )
    for check, (name, laid) in product(CHECKS, LAYOUTS.items()):
        try:
            check(rank, dist.group.WORLD, laid(step()))
            outcome = "passed"
        except Exception:
            outcome = traceback.format_exc()
        Path(folder, f"{check.__name__}-{name}-{rank}").write_text(outcome)
        if outcome != "passed":
            return  # the other rank may be waiting for a collective that will not come
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two processes, started once."""
    folder = tmp_path_factory.mktemp("empty")
    mp.spawn(_process, (str(folder),), nprocs=WORLD)  # pyright: ignore[reportPrivateImportUsage]
    return folder


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_rank_that_holds_nothing_keeps_nobody_waiting(outcomes: Path, check: Any, layout: str) -> None:
    for rank in range(WORLD):
        outcome = outcomes / f"{check.__name__}-{layout}-{rank}"
        assert outcome.exists(), "stopped before this check"
        assert outcome.read_text() == "passed", outcome.read_text()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_micro_batch_without_tokens_has_a_connected_loss_of_zero(layout: str) -> None:
    data = no_rows(LAYOUTS[layout](step()))
    counted = Denominator.of(step()["mask"], group=step()["group"])
    for setup in setups([*LOSSES, *WHOLE]):
        current = data["current"].clone().requires_grad_()
        out = policy_loss(setup.loss, **(data | {"current": current}), **setup.settings(), denominator=counted)
        out.loss.backward()
        assert float(out.loss.detach()) == 0.0
        assert current.grad is not None, setup
