"""Tinker's losses and the cookbook's advantages against the same written out once more, in float64 and from their sources."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from tests.dialects.test_objectives import REWARDS, advantages, batch, ours, same, slope
from trimtab.dialects import read

Formula = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""(current, behavior, advantages, mask) → the loss of the batch, a sum."""


def _importance(now: Tensor, behavior: Tensor, worth: Tensor, mask: Tensor) -> Tensor:
    return -((now - behavior).exp() * worth * mask).sum()


def _ppo(now: Tensor, behavior: Tensor, worth: Tensor, mask: Tensor) -> Tensor:
    rho = (now - behavior).exp()
    return -(torch.minimum(rho * worth, rho.clamp(0.9, 1.05) * worth) * mask).sum()


def _cispo(now: Tensor, behavior: Tensor, worth: Tensor, mask: Tensor) -> Tensor:
    rho = (now - behavior).exp().clamp(0.9, 1.05).detach()
    return -(rho * now * worth * mask).sum()


def _dro(now: Tensor, behavior: Tensor, worth: Tensor, mask: Tensor) -> Tensor:
    return -((now * worth - 0.5 * 0.3 * (now - behavior) ** 2) * mask).sum()


def _gspo(now: Tensor, behavior: Tensor, worth: Tensor, mask: Tensor) -> Tensor:
    mean = ((now.detach() - behavior) * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True)
    rho = (mean + now - now.detach()).exp()
    return -(torch.minimum(rho * worth, rho.clamp(0.9, 1.05) * worth) * mask).sum()


BOUNDS = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.05}
LOSSES: dict[str, tuple[dict[str, Any], Formula]] = {
    "importance_sampling": ({}, _importance),
    "ppo": (BOUNDS, _ppo),
    "cispo": (BOUNDS, _cispo),
    "dro": ({"beta": 0.3}, _dro),
    "gspo": (BOUNDS, _gspo),
}


def _settings(name: str) -> dict[str, Any]:
    return {"loss_fn": name, "loss_fn_config": LOSSES[name][0]}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_loss_has_the_value_and_the_gradient_of_its_source(name: str, seed: int) -> None:
    x = batch(seed)
    formula = LOSSES[name][1]
    same(read("tinker", _settings(name)), lambda now: formula(now, x["behavior"], x["advantages"], x["mask"]), x)


@pytest.mark.parametrize("name", LOSSES)
def test_the_batch_tells_the_losses_apart(name: str) -> None:
    x = batch(0)
    found = ours(read("tinker", _settings(name)), x)[1]
    for other, (_, formula) in LOSSES.items():
        wanted = slope(lambda now, f=formula: f(now, x["behavior"], x["advantages"], x["mask"]), x)[1]
        assert torch.allclose(found, wanted, rtol=1e-4) == (other == name), other


def test_ppo_is_clipped_at_four_and_six_fifths_where_nothing_is_written() -> None:
    assert read("tinker", {"loss_fn": "ppo"}).loss == trimtab.Clip(low=0.2, high=0.2)


@pytest.mark.parametrize("name", ["cispo", "gspo"])
def test_a_loss_whose_defaults_are_not_documented_needs_its_bounds(name: str) -> None:
    reading = read("tinker", {"loss_fn": name, "loss_fn_config": {"clip_low_threshold": 0.8}})
    assert reading.loss is None
    assert "not documented" in reading.refused[0].text


def test_rewards_are_centred_in_their_group_and_divided_by_nothing() -> None:
    group = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2])
    wanted = torch.cat([each - each.mean() for each in (REWARDS[:3], REWARDS[3:7], REWARDS[7:])])
    found = advantages(read("tinker", {"group_size": 4}), REWARDS, group=group)
    torch.testing.assert_close(found, wanted[:, None])


def test_dro_pulls_prompts_in_the_cookbook_and_not_here() -> None:
    """What the cookbook sends of a prompt: a sampler's log-prob of 0, an advantage of 0, and no mask."""
    x = batch(0)
    x["current"] = x["current"].clamp(max=-1e-3)
    sent, worth = torch.where(x["mask"], x["behavior"], 0.0), torch.where(x["mask"], x["advantages"], 0.0)
    everywhere = torch.ones_like(x["mask"])
    _, theirs = slope(lambda now: _dro(now, sent, worth, everywhere), x)
    _, found = ours(read("tinker", _settings("dro")), x)
    torch.testing.assert_close(found, torch.where(x["mask"], theirs, 0.0))
    assert bool((theirs[~x["mask"]] < 0).all())  # descending raises the log-prob of every prompt token
    for name in ("importance_sampling", "ppo", "cispo"):
        formula = LOSSES[name][1]
        assert not slope(lambda now, f=formula: f(now, sent, worth, everywhere), x)[1][~x["mask"]].any(), name
