"""The loss in one sweep: taken where rows decide, divided by what counts, and nothing else worked out until it is read."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("numba", reason="the extra [fast] is not installed")

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.losses import Clip
from trimtab.core.fast import decide
from trimtab.errors import InputError
from trimtab.losses import fast as fast_module
from trimtab.losses.fast import FastLoss
from trimtab.losses.policy import PolicyLoss, policy_loss

GATES = (Gate(metric="ratio", level="sequence", lower=0.99, upper=1.01), Gate(metric="ratio", upper=1.2, scope="kept"))
TRUNCATED = Correction(gates=GATES, weight=Weight(level="token", upper=1.1))
RULES = {
    "truncated": TRUNCATED,
    "dropped": TRUNCATED.but(weight=Weight(level="token", upper=1.1, outside="zero")),
    "counting the kept": TRUNCATED.but(denominator="kept"),
    "one weight a row": TRUNCATED.but(weight=Weight(level="geometric", upper=1.001)),
}


def batch(missing: bool = False) -> dict[str, Tensor]:
    """Rows long enough to be decided one by one; some drift out of the gate."""
    draw = torch.Generator().manual_seed(0)
    behavior = -2 * torch.rand(12, 200, generator=draw)
    drift = 0.01 * torch.randn(12, 1, generator=draw)
    proximal = behavior + drift + 0.1 * torch.randn(12, 200, generator=draw)
    current = proximal + 0.2 * torch.randn(12, 200, generator=draw)
    mask = torch.arange(200) < torch.randint(70, 201, (12, 1), generator=draw)
    if missing:
        behavior[::3, 5:9] = float("nan")
    advantages = torch.randn(12, generator=draw)
    return {"behavior": behavior, "proximal": proximal, "current": current, "mask": mask, "advantages": advantages}


def step(
    tensors: dict[str, Tensor], rule: Correction, form: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[PolicyLoss, Tensor]:
    monkeypatch.setenv("TRIMTAB_FAST", form)
    current = tensors["current"].clone().requires_grad_()
    out = policy_loss(Clip(), correction=rule, **(tensors | {"current": current}))
    (gradient,) = torch.autograd.grad(out.loss, current)
    return out, gradient


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_one_sweep_gives_loss_and_gradient_of_the_plain_form(
    name: str, missing: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors, rule = batch(missing), RULES[name]
    plain, wanted = step(tensors, rule, "0", monkeypatch)
    fast, found = step(tensors, rule, "1", monkeypatch)
    assert fast.metrics.by_pass
    assert 0 < float(plain.metrics["kept_fraction"]) < 1
    torch.testing.assert_close(fast.loss, plain.loss, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-9)
    assert torch.equal(found == 0, wanted == 0)
    for metric, value in plain.metrics.items():
        torch.testing.assert_close(fast.metrics[metric], value, rtol=1e-4, atol=1e-5, msg=metric)


def clipped_with(look: Callable[[FastLoss], None], tensors: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch) -> None:
    """One loss, and a look at its pass before anybody reads a metric, which the check of types does."""
    looked: list[bool] = []
    fast_loss = fast_module.fast_loss

    def seen(*given: Any) -> FastLoss | None:
        found = fast_loss(*given)
        assert found is not None
        look(found)
        looked.append(True)
        return found

    monkeypatch.setattr(fast_module, "fast_loss", seen)
    step(tensors, TRUNCATED, "1", monkeypatch)
    assert looked == [True]


def test_decisions_are_made_only_when_a_metric_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(clipped: FastLoss) -> None:
        assert "found" not in vars(clipped.decided)
        assert clipped.decided.run is not None
        assert clipped.decided.run.total["tokens"] == float(clipped.decided.run.trained.sum())

    clipped_with(look, batch(), monkeypatch)


def test_metrics_read_after_the_mask_was_changed_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = batch()

    def look(clipped: FastLoss) -> None:
        tensors["mask"][0, 0] = False
        with pytest.raises(InputError, match="Metrics need the mask"):
            _ = clipped.decided.run
        raise KeyError("looked")

    with pytest.raises(KeyError, match="looked"):
        clipped_with(look, tensors, monkeypatch)


def test_what_the_pass_cannot_decide_again_the_plain_form_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside its moments k3 is summed in another order, and may lie beside a bound there."""
    tensors = batch()
    plain, _ = step(tensors, TRUNCATED, "0", monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(decide, "_run", lambda decided: None)
        fast, _ = step(tensors, TRUNCATED, "1", patched)
        assert fast.metrics.by_pass
        assert list(fast.metrics) == list(plain.metrics)
        for metric, value in plain.metrics.items():
            torch.testing.assert_close(fast.metrics[metric], value, rtol=1e-5, atol=1e-6, msg=metric)


def test_what_a_loss_holds_is_freed_without_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a cycle, the arrays of every step would wait for the collector, however large they are."""
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    out = policy_loss(Clip(), correction=TRUNCATED, **batch())
    assert len({name: float(value) for name, value in out.metrics.items()}) > 50
    held = weakref.ref(out.metrics), weakref.ref(out.metrics.correction)
    gc.disable()
    try:
        del out
        assert [each() for each in held] == [None, None]
    finally:
        gc.enable()
