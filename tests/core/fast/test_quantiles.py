"""The quantiles of the pass: the values that sorting finds, whichever way they are found."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.presets import preset
from trimtab.core.correct import correct

pytest.importorskip("numba", reason="the extra [fast] is not installed")

from trimtab.core.fast import quantiles
from trimtab.core.sums import POINTS

SEQUENCE = Gate(metric="ratio", level="sequence", lower=0.99, upper=1.01)
RULES = {
    "a truncated weight": preset("token-tis"),
    "a truncated weight of what is left": Correction(gates=(SEQUENCE,), weight=Weight(level="token", upper=1.05)),
    "a weight that drops": Correction(weight=Weight(level="token", lower=0.95, upper=1.05, outside="zero")),
    "a zeroing gate": Correction(gates=(SEQUENCE.but(action="zero"),), weight=Weight(level="token", upper=2.0)),
    "a weight of rows": Correction(gates=(SEQUENCE,), weight=Weight(level="geometric")),
    "a gate on tokens": Correction(gates=(Gate(metric="ratio", upper=1.05),), weight=Weight(level="token", upper=2.0)),
}


def sample(rows: int, width: int) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(1)
    behavior = -2 * torch.rand(rows, width, generator=draw)
    drift = 0.02 * torch.randn(rows, 1, generator=draw)
    proximal = behavior + drift + 0.05 * torch.randn(rows, width, generator=draw)
    return {"behavior": behavior, "proximal": proximal, "mask": torch.rand(rows, width, generator=draw) < 0.8}


def at_share(values: Tensor, share: float) -> float:
    """The least value with at least this share of all at or below it."""
    order = values.sort().values
    return float(order[max(math.ceil(share * len(order)), 1) - 1])


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("few", [0, 10**9], ids=["counted", "sorted"])
def test_quantiles_are_values_of_the_batch_at_their_rank(name: str, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    monkeypatch.setattr(quantiles, "FEW", few)
    out = correct(RULES[name], **sample(20, 300))
    log_r, weight = out.log_r[out.trained], out.weight[out.kept]
    assert len(weight) > 0
    for point, share in POINTS.items():
        torch.testing.assert_close(
            float(out.metrics[f"ratio/{point}"]), math.exp(at_share(log_r, share)), rtol=1e-6, atol=0
        )
        torch.testing.assert_close(float(out.metrics[f"weight/{point}"]), at_share(weight, share), rtol=2e-7, atol=0)
    assert float(out.metrics["drift/abs_log_r_p50"]) == at_share(log_r.abs(), 0.5)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=50), st.booleans())
def test_two_counts_find_what_sorting_finds(values: list[float], with_magnitude: bool) -> None:
    numbers, marks = torch.tensor(values, dtype=torch.float32), torch.ones(len(values), dtype=torch.uint8)
    marks[0] = len(values) == 1  # one that does not count
    left = numbers[marks.bool()]
    wanted = [at_share(left, share) for share in quantiles.SHARES] + [at_share(left.abs(), 0.5)] * with_magnitude
    ranks = [max(math.ceil(share * len(left)), 1) for share in (*quantiles.SHARES, 0.5)]
    ranks[3] *= with_magnitude
    counts, keys = (
        torch.zeros(quantiles.BINS + 1, dtype=torch.int32).numpy(),
        torch.empty(1024, dtype=torch.int32).numpy(),
    )
    bits, order = numbers.view(torch.int32).numpy(), torch.tensor(ranks).numpy()
    quantiles.count_bins(bits, marks.numpy(), keys, 1, counts)
    for find in (
        partial(quantiles.values_at, bits, marks.numpy(), counts, order),
        partial(quantiles.sorted_values, numbers.numpy(), marks.numpy(), order),
    ):
        found = torch.empty(len(wanted))
        find(found.numpy())
        assert found.tolist() == wanted
