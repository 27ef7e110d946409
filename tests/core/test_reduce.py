"""The factor of a reduction as a number is the one of the plain form."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

from trimtab.config.losses import Reduction
from trimtab.core.reduce import Denominator, common_factor, share


@pytest.fixture
def three_ranks() -> Iterator[dist.ProcessGroup]:
    """A group that sends nothing: this process is the first of three."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=3)
    try:
        group = dist.group.WORLD
        assert group is not None
        yield group
    finally:
        dist.destroy_process_group()


def test_where_the_trainer_averages_gradients_the_loss_is_multiplied_by_the_ranks(
    three_ranks: dist.ProcessGroup,
) -> None:
    mask = torch.ones(2, 3, dtype=torch.bool)
    averaged, summed = (
        Denominator.of(mask, process_group=three_ranks, gradients=kind) for kind in ("averaged", "summed")
    )
    assert (averaged.averaged_over, summed.averaged_over) == (3, 1)
    assert Denominator.of(mask).averaged_over == 1


def test_a_denominator_of_no_rows_knows_no_prompt() -> None:
    step = Denominator.of(torch.ones(0, 3, dtype=torch.bool), group=torch.zeros(0, dtype=torch.int64))
    assert step.prompts is not None
    assert step.prompts.tokens_of(torch.tensor([4, 7])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("counts", [(7.0, 3.0), (1_000_003.0, 255.0), (0.0, 0.0)])
@pytest.mark.parametrize("mode", ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm"])
@pytest.mark.parametrize("averaged_over", [1, 6])
def test_the_factor_on_the_host_is_that_of_the_tensors_to_the_last_bit(
    mode: str, counts: tuple[float, float], averaged_over: int
) -> None:
    reduction = Reduction.from_settings({"mode": mode} | ({"constant": 4096.0} if mode.endswith("norm") else {}))
    for kind in (float, torch.tensor):
        step = Denominator(kind(counts[0]), kind(counts[1]), averaged_over=averaged_over)
        exact = share(reduction, torch.ones(3), step, None).factor
        assert float(torch.tensor(common_factor(reduction, step), dtype=torch.float32)) == float(exact)
