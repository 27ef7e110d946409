"""Values worked by hand, and the corners where a form by kernels could leave the plain one."""

from __future__ import annotations

import math
from functools import reduce

import pytest
import torch
from torch import Tensor

from tests.core.fast.cuda.interpreter import by_kernels
from tests.core.fast.cuda.laws import run
from trimtab.cli.doctor import kernels_agree
from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.config.losses import Clip
from trimtab.core.correct import Corrected, correct
from trimtab.core.fast import kernels, switch
from trimtab.core.fast.cuda import launch as starter
from trimtab.core.fast.switch import pass_fits
from trimtab.core.layout import Padded
from trimtab.errors import InputError
from trimtab.losses.policy import policy_loss

BOUND = float(torch.tensor(0.1))
"""0.1 as float32 has it."""


def drifted(log_r: Tensor) -> dict[str, Tensor]:
    return {"behavior": torch.zeros_like(log_r), "proximal": log_r, "mask": torch.ones_like(log_r, dtype=torch.bool)}


def test_weights_and_metrics_worked_by_hand() -> None:
    """Ratios 1, 2 and 4 under a cap of 3: weights 1, 2 and 3, mean 2, Σw = 6, Σw² = 14, so ess = 36 / (14 · 3)."""
    out = run(
        Correction(weight=Weight(level="token", upper=3.0)), drifted(torch.tensor([[1.0, 2.0, 4.0]]).log()), fast=True
    )
    torch.testing.assert_close(out.weight, torch.tensor([[1.0, 2.0, 3.0]]))
    wanted = {"weight/mean": 2.0, "weight/ess": 36 / 42, "weight/touched_high": 1 / 3, "weight/raw_max": 4.0}
    wanted |= {"ratio/mean": 7 / 3, "ratio/std": math.sqrt(21 / 3 - 49 / 9), "drift/kl": -math.log(8) / 3}
    for name, value in wanted.items():
        assert float(out.metrics[name]) == pytest.approx(value, rel=1e-6), name


@pytest.mark.parametrize("agg", ["mean", "max", "every"])
def test_a_bound_met_exactly_is_inside_in_a_long_row(agg: str) -> None:
    """3000 times 0.1, which a sum in float32 does not find again; one step above the bound is outside."""
    gate = Gate(metric="k1", direction="reverse", level="sequence", agg=agg, upper=BOUND)
    rows = torch.full((2, 3000), BOUND)
    rows[1] = torch.nextafter(rows[1], torch.tensor(1.0))
    assert (
        float(reduce(torch.add, rows[0].unbind()) / 3000) != BOUND
    )  # a control: one sum in float32 would decide otherwise
    with by_kernels(block=1024):
        out = correct(Correction(gates=(gate,)), **drifted(rows))
    assert out.kept.all(-1).tolist() == [True, False]
    assert not bool(out.kept[1].any())


FAR = {
    "overflowing ratios": [[100.0, -3.0], [0.0, 300.0]],
    "underflowing ratios": [[-200.0, 0.1], [-1e4, 0.0]],
    "the ends of float32": [[1e38, 1.0], [-3e38, 0.0]],
}
RULES = {
    "open weights": Correction(weight=Weight(level="token", lower=0.1)),
    "sequence weights": Correction(weight=Weight(level="sequence", lower=0.1)),
    "k3": Correction(gates=(Gate(metric="k3", level="sequence", upper=0.5, action="zero"),)),
    "squares": Correction(gates=(Gate(metric="second_moment", level="sequence", agg="max", upper=4.0),)),
    "limits": Correction(gates=(Gate(metric="ratio", level="sequence", agg="sum", upper=9.0, limit=Limit(bound=2.0)),)),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("far", FAR)
def test_far_numbers_are_those_of_the_plain_form(rule: str, far: str) -> None:
    """No number is too far for the kernels, which have nobody to hand a batch back to."""
    tensors = drifted(torch.tensor(FAR[far]))
    fast, plain = run(RULES[rule], tensors, fast=True), run(RULES[rule], tensors, fast=False)
    assert torch.equal(fast.kept, plain.kept)
    torch.testing.assert_close(fast.weight, plain.weight, rtol=1e-5, atol=0.0)
    for name, value in plain.metrics.items():
        assert bool(fast.metrics[name].isfinite()), name
        torch.testing.assert_close(fast.metrics[name], value, rtol=1e-5, atol=1e-5, msg=name)


def test_a_mask_of_numbers_counts_what_is_neither_0_nor_1() -> None:
    given = drifted(torch.zeros(1, 4)) | {"mask": torch.tensor([[0.0, 1.0, 0.5, 2.0]])}
    out = run(Correction(weight=Weight(level="token")), given, fast=True)
    assert out.trained.tolist() == [[False, True, True, True]]
    assert float(out.metrics["partial_fraction"]) == pytest.approx(2 / 3)


def test_what_no_longer_counts_reaches_nothing() -> None:
    """Whatever stands under a False mask, the outputs and metrics are the same."""
    found: list[Corrected] = []
    for junk in (0.0, float("nan"), float("inf"), 1e30):
        given = drifted(torch.tensor([[0.1, junk, 0.2]])) | {"mask": torch.tensor([[True, False, True]])}
        found.append(run(RULES["sequence weights"], given, fast=True))
    for other in found[1:]:
        assert torch.equal(found[0].weight, other.weight)
        assert all(torch.equal(value, other.metrics[name]) for name, value in found[0].metrics.items())


def test_no_row_without_tokens_counts() -> None:
    given = drifted(torch.tensor([0.1, 0.2])) | {"cu_seqlens": torch.tensor([0, 0, 2, 2], dtype=torch.int32)}
    out = run(RULES["k3"], given, fast=True)
    assert float(out.metrics["sequences"]) == 1.0
    assert out.kept.tolist() == [True, True]


@pytest.mark.parametrize("rows", [1, 2])
def test_of_a_batch_without_tokens_everything_is_0(rows: int) -> None:
    """One row is not folded, so that what a gate says of an empty row has to be passed over again."""
    given = drifted(torch.zeros(rows, 2)) | {"mask": torch.zeros(rows, 2).bool()}
    rule = Correction(gates=(Gate(metric="ratio", level="sequence", upper=1.1),))
    fast, plain = run(rule, given, fast=True), run(rule, given, fast=False)
    assert {name: float(each) for name, each in fast.metrics.items()} == {
        name: float(each) for name, each in plain.metrics.items()
    }
    assert sum(float(each) for each in fast.metrics.values()) == float(fast.metrics["all_rejected"]) == 1.0


def test_which_tensors_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, mask = RULES["k3"], torch.ones(2, 3).bool()
    for kind, taken in ((torch.float32, True), (torch.bfloat16, True), (torch.float16, True), (torch.float64, False)):
        with by_kernels():
            assert pass_fits(rule, (torch.zeros(2, 3, dtype=kind),), mask, Padded()) is taken, kind
    with by_kernels(fast=False):
        assert not pass_fits(rule, (torch.zeros(2, 3),), mask, Padded())


def test_a_changed_tensor_is_an_error_where_the_plain_form_has_to_read_it() -> None:
    with by_kernels():
        given = drifted(torch.zeros(1, 3))
        out = correct(RULES["k3"], **given)
        given["behavior"].add_(1.0)
        assert float(out.metrics["ratio/mean"]) == 1.0  # from the records
        with pytest.raises(InputError, match="changed in place since"):
            _ = out.metrics["ratio/p50"]


def test_where_kernels_cannot_be_started_the_plain_form_does(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("Failed to find C compiler.\nInstall one.")

    monkeypatch.setattr(switch, "FAILED", {})
    monkeypatch.setattr(starter, "launch", fail)
    given = drifted(torch.tensor([[0.1, 0.2]]))
    with (
        by_kernels(),
        pytest.warns(RuntimeWarning, match=r"Failed to find C compiler\). Corrections and losses take the plain form"),
    ):
        out = correct(RULES["open weights"], **given)
    torch.testing.assert_close(out.weight, given["proximal"].exp())
    with by_kernels():
        correct(RULES["open weights"], **given)  # no second warning, which would be an error here
        assert "Failed to find C compiler" in switch.form_in_use("cpu")
    monkeypatch.setattr(switch, "FAILED", {})
    with by_kernels(), pytest.warns(RuntimeWarning, match="could not be started"):
        policy_loss(
            Clip(), current=given["proximal"], proximal=given["proximal"], advantages=torch.ones(1), mask=given["mask"]
        )


def test_the_doctor_sees_kernels_that_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    with by_kernels(block=64):
        kernels_agree("cpu")
        monkeypatch.setattr(kernels, "rounding", lambda kind: -9.0)  # every log-prob is then too high
        with pytest.raises(ArithmeticError, match="positive_fraction is 0 by the plain form and 1 by kernels"):
            kernels_agree("cpu")
