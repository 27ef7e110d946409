"""Log-probs as far apart as float32 allows: what a loss reports of them is finite."""

from __future__ import annotations

import pytest
import torch

import trimtab

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
