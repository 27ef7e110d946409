"""Every part that a rule can have, on a batch where it decides something: each divergence, aggregation, action, scope, limit and weight."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor

from tests.core.fast.cuda.interpreter import by_kernels, in_type
from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.core.correct import correct
from trimtab.core.fast.program import ACTIONS, AGGS, METRIC_CODES
from trimtab.errors import ConfigWarning

WEIGHTS = (
    Weight(level="token", lower=0.8, upper=1.3),
    Weight(level="token", lower=0.8, upper=1.3, outside="zero", scope="kept"),
    Weight(level="geometric", lower=0.9, upper=1.2, scope="kept"),
    Weight(level="sequence", lower=0.5, upper=3.0, outside="zero", limit=Limit(bound=0.4)),
    Weight(level="sequence", upper=3.0, scope="kept", limit=Limit(bound=0.6, at="gathered")),
    None,
)
LIMITS = (None, Limit(bound=0.75), Limit(bound=0.55, at="gathered"))


def batch() -> dict[str, Tensor]:
    """Three rows of up to seven tokens, which drift down, up, and up by more; some are masked, one lacks a log-prob."""
    draw = torch.Generator().manual_seed(3)
    behavior = -2 - torch.rand(3, 7, generator=draw)
    log_r = torch.tensor([[-0.5], [0.3], [0.6]]) + 0.2 * torch.randn(3, 7, generator=draw)
    mask = torch.rand(3, 7, generator=draw) < 0.85
    given = {"behavior": behavior, "proximal": behavior + log_r}
    given = {name: (each * 4096).round() / 4096 for name, each in given.items()}
    given["proximal"][1, 4] = float("nan")
    return given | {"mask": mask}


def row_gate(place: int, given: dict[str, Tensor]) -> Gate:
    """A gate on the divergence of this code that turns away the farthest row, or two, of the batch."""
    metric, direction = list(METRIC_CODES)[place]
    agg = "max" if metric == "mult_prob_error" else AGGS[place % len(AGGS)]
    limit = LIMITS[place % len(LIMITS)] if agg != "sum" else None
    gate = Gate(
        metric=metric, direction=direction, level="sequence", agg=agg, upper=50.0, limit=limit, action="observe"
    )
    result = correct(Correction(gates=(gate,)), **given).metrics.decisions.results[0]  # pyright: ignore[reportAttributeAccessIssue]
    high = sorted({float(value) for value in result.high})
    bound = (high[-1] + high[-2]) / 2
    return gate.but(upper=math.exp(bound) if metric == "ratio" else bound, action=ACTIONS[place % len(ACTIONS)])


@pytest.mark.parametrize("place", range(len(METRIC_CODES)), ids=[f"{name}-{way}" for name, way in METRIC_CODES])
def test_every_part_decides_as_in_the_plain_form(place: int) -> None:
    given = batch()
    with by_kernels(block=4) as monkeypatch, warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        monkeypatch.setenv("TRIMTAB_FAST", "0")
        first = row_gate(place, given)
        tokens = Gate(metric=("ratio", "abs_log_ratio", "k2")[place % 3], upper=(1.6, 0.5, 0.1)[place % 3])
        second = tokens.but(scope=("kept", "trained")[place % 2], action=ACTIONS[(place + 1) % 2])
        last = Gate(
            metric="k1", direction="forward", level="sequence", agg="every", lower=-0.8, upper=0.9, scope="kept"
        )
        rule = Correction(gates=(first, second, last), weight=WEIGHTS[place % len(WEIGHTS)])
        plain, exact = correct(rule, **given), correct(rule, **in_type(given, torch.float64))
        monkeypatch.setenv("TRIMTAB_FAST", "1")
        fast = correct(rule, **given)
        for name in ("log_r", "kept", "trained"):
            assert torch.equal(getattr(fast, name), getattr(plain, name)), name
        torch.testing.assert_close(fast.weight, plain.weight, rtol=1e-5, atol=0.0)
        for name, value in exact.metrics.items():
            assert float(fast.metrics[name]) == pytest.approx(float(value), rel=1e-5, abs=1e-5), name
    for index in (0, 1):  # a control: the gates have something to decide
        names = [
            name for name in exact.metrics if name.startswith(f"gate/{index}") and name.endswith("rejected_tokens")
        ]
        assert 0 < float(exact.metrics[names[0]]) < 1, names
