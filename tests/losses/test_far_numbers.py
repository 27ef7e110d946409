"""Log-probs as far apart as float32 allows: what a loss reports of them is finite."""

from __future__ import annotations

import math

import pytest
import torch

import trimtab
from trimtab.config.losses import LOSSES, Objective

OWN = ("policy/k1", "policy/k3", "policy/ratio_mean", "policy/ratio_min", "policy/ratio_max")


@pytest.mark.parametrize("far", [-9999.0, 1e4, 3e38, -3e38])
def test_a_far_log_prob_makes_no_metric_of_the_loss_infinite(far: float) -> None:
    proximal = torch.zeros(2, 3)
    current = torch.full((2, 3), far).requires_grad_()
    mask, advantages = torch.ones(2, 3).bool(), torch.tensor([1.0, -1.0])
    found = trimtab.policy_loss(trimtab.Clip(), current=current, proximal=proximal, mask=mask, advantages=advantages)
    assert all(bool(found.metrics[name].isfinite()) for name in OWN)
    # Six tokens, each apart by `far`: the mean is `far`, also where the sum leaves float32.
    torch.testing.assert_close(found.metrics["policy/k1"], torch.tensor(-far))


SENTINELS = (-150.0, 1e4, 3e38, -3e38)
WIDE = (1.7e308,)
"""Numbers of float64 alone."""


@pytest.mark.parametrize("kind", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("loss", [kind() for kind in LOSSES.values()], ids=lambda loss: loss.kind)
def test_every_metric_and_every_gradient_of_a_loss_is_finite_whatever_a_log_prob_holds(
    loss: Objective, kind: torch.dtype
) -> None:
    for far in (*SENTINELS, *(WIDE if kind == torch.float64 else ())):
        for estimator in ("k2", "k3"):
            given = {name: torch.full((2, 3), -1.0, dtype=kind) for name in ("current", "proximal", "reference")}
            for name in given:
                far_there = given | {name: torch.tensor([[far, -1.0, -1.0], [-1.0, far, far]], dtype=kind)}
                current = far_there.pop("current").clone().requires_grad_()
                found = trimtab.policy_loss(
                    loss,
                    current=current,
                    mask=torch.ones(2, 3),
                    advantages=torch.tensor([1.0, -1.0]),
                    kl=trimtab.KlPenalty(coefficient=0.1, estimator=estimator),
                    entropy=torch.full((2, 3), abs(far), dtype=kind),
                    **far_there,
                )
                found.loss.backward()
                assert found.loss.isfinite(), (far, estimator, name)
                assert current.grad is not None
                assert current.grad.isfinite().all(), (far, estimator, name)
                bad = [each for each, value in found.metrics.items() if not value.isfinite()]
                assert not bad, (far, estimator, name, bad)


def test_a_kl_beyond_float32_is_the_formulas_in_the_loss_and_the_largest_number_in_the_metric() -> None:
    # k3 of d = −149 is e^149 − 1 − 149 = 5.1e64: a number of float64, in which the loss and its slope stay those of the formula
    current = torch.tensor([[-150.0]], dtype=torch.float64, requires_grad=True)
    found = trimtab.policy_loss(
        "reinforce",
        current=current,
        reference=torch.tensor([[-1.0]], dtype=torch.float64),
        mask=torch.ones(1, 1),
        advantages=torch.zeros(1),
        kl=0.1,
    )
    found.loss.backward()
    assert float(found.loss.detach()) == pytest.approx(0.1 * math.exp(149), rel=1e-12)
    assert float(current.grad) == pytest.approx(-0.1 * math.exp(149), rel=1e-12)
    most = torch.finfo(torch.float32).max
    assert float(found.metrics["policy/kl"]) == float(found.metrics["policy/loss"]) == most


def test_metrics_of_rewards_beyond_float32_are_finite() -> None:
    found = trimtab.advantages(
        "grpo",
        rewards=torch.tensor([1e300, 1.0], dtype=torch.float64),
        mask=torch.ones(2, 1),
        group=torch.zeros(2, dtype=torch.int64),
    )
    assert all(value.isfinite() for value in found.metrics.values())
