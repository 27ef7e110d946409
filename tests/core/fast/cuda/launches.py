"""What kernels cost to start, and that nothing waits for them: counted in operators, as there is no GPU to trace."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.core.fast.cuda.interpreter import Dispatched, by_kernels
from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.config.losses import Clip
from trimtab.core.correct import correct
from trimtab.core.fast import kernels
from trimtab.core.fast.points import POINTS
from trimtab.losses.policy import policy_loss

MOST = 6
CHAIN = Correction(
    gates=(
        Gate(metric="ratio", level="sequence", lower=0.9, upper=1.1),
        Gate(metric="k3", level="sequence", upper=0.5),
        Gate(metric="ratio", upper=3.0, scope="kept"),
    ),
    weight=Weight(level="token", upper=2.0),
)


def batch(*, packed: bool = False) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    behavior = -torch.rand(2, 6, generator=draw)
    given = {"behavior": behavior, "proximal": behavior + 0.1 * torch.randn(2, 6, generator=draw)}
    given["mask"] = torch.rand(2, 6, generator=draw) < 0.8
    if packed:
        return {name: each.flatten() for name, each in given.items()} | {"cu_seqlens": torch.tensor([0, 6, 12])}
    return given


@pytest.fixture(autouse=True)
def plan() -> None:
    """The plan of a rule is made once, on the host."""
    kernels.kernel_plan(CHAIN)


def moments(names: object) -> list[str]:
    """Every metric but quantiles, which are the plain form's."""
    return [name for name in names if not name.endswith(tuple(f"{point}" for point in POINTS))]  # pyright: ignore[reportGeneralTypeIssues]


@pytest.mark.parametrize("packed", [False, True])
def test_a_correction_with_every_moment_is_three_kernels_and_nothing_else(packed: bool) -> None:
    given = batch(packed=packed)
    with by_kernels(run=1024) as monkeypatch, Dispatched(monkeypatch) as seen:
        found = correct(CHAIN, **given)
        values = {name: found.metrics[name] for name in moments(found.metrics)}
    assert len(values) == len(moments(found.metrics)) > 50
    assert seen.kernels == ["decide_rows", "fold_records", "write_figures"]
    assert len(seen.kernels) <= MOST
    if not packed:  # else boundaries are checked first, in every form: on a GPU without waiting for it
        assert seen.operators == seen.reads == []


def test_the_plain_form_dispatches_many_times_as_much() -> None:
    """A control: the count sees operators."""
    given = batch()
    with by_kernels(fast=False) as monkeypatch, Dispatched(monkeypatch) as seen:
        found = correct(CHAIN, **given)
        _ = {name: found.metrics[name] for name in moments(found.metrics)}
    assert seen.kernels == []
    assert len(seen.operators) > 100


def test_a_loss_with_every_moment_is_six_kernels_and_its_gradient_one_product() -> None:
    given = batch()
    current, advantages = (given["proximal"] + 0.1).requires_grad_(), torch.ones(2)
    with by_kernels(run=1024) as monkeypatch, Dispatched(monkeypatch) as seen:
        found = policy_loss(Clip(), correction=CHAIN, current=current, advantages=advantages, **given)
        _ = {name: found.metrics[name] for name in moments(found.metrics)}
        names = ["clip_rows", "decide_rows", "fold_records", "fold_records", "write_figures", "write_loss"]
        assert sorted(seen.kernels) == names
        assert seen.operators == seen.reads == []
        assert len(seen.kernels) <= MOST
        found.loss.backward()
        assert [name for name in seen.operators if name != "ones_like"] == [
            "mul_"
        ]  # the ones are where backward starts
        assert seen.reads == []
    assert current.grad is not None


def test_many_rows_are_folded_in_turns_of_few() -> None:
    """Five rows, two at a time: three records, then two, then one; the metrics are those of one turn."""
    found: list[dict[str, Tensor]] = []
    behavior = -torch.rand(5, 3, generator=torch.Generator().manual_seed(0))
    given = {"behavior": behavior, "proximal": behavior + 0.1, "mask": torch.ones(5, 3).bool()}
    for run, turns in ((2, 3), (1024, 1)):
        with by_kernels(run=run) as monkeypatch, Dispatched(monkeypatch) as seen:
            out = correct("token-tis", **given)
            found.append({name: out.metrics[name] for name in moments(out.metrics)})
            assert seen.kernels.count("fold_records") == turns
    for name, value in found[0].items():
        torch.testing.assert_close(value, found[1][name], rtol=1e-6, atol=1e-7, msg=name)
