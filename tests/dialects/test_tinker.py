"""Tinker's losses and the cookbook's advantages against the same written out once more, in float64 and from their sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from tests.dialects.test_objectives import REWARDS, advantages, batch, ours, same, slope
from trimtab.dialects import read
from trimtab.errors import ConfigError

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


# ── asynchronous runs ──

ASYNC = {"max_steps_off_policy": 3, "groups_per_batch": 64}
SCRIPT = """from tinker_cookbook.rl import train
config = train.Config(
    model_name="m", learning_rate=1e-5, kl_penalty_coef=0.0{own},
    async_config=train.AsyncConfig(max_steps_off_policy=3, groups_per_batch=64{of_async}),
)
"""
RECIPE = "python -m tinker_cookbook.recipes.{name}.train model_name=m group_size=8 groups_per_batch=64 {more}\n"


def file(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_an_asynchronous_run_trains_with_the_loss_of_async_config(tmp_path: Path) -> None:
    yaml = "loss_fn: importance_sampling\nkl_penalty_coef: 0.0\nasync_config:\n  max_steps_off_policy: 3\n  groups_per_batch: 64\n"
    for path in (file(tmp_path, "run.yaml", yaml), file(tmp_path, "run.py", SCRIPT.format(own="", of_async=""))):
        reading = read("tinker", path)
        assert (reading.loss, reading.correction) == (None, None)
        assert "stable_reinforce (the default of async_config" in reading.refused[0].text
        assert not [each for each in reading.findings if "neither clipped nor cut" in each.text]
        before = read("tinker", path, version="0.5.8")
        assert before.loss == trimtab.ImportancePg()
        assert before.version == "cookbook 0.5.8"


@pytest.mark.parametrize("own", ["", ', loss_fn="importance_sampling"', ', loss_fn="ppo"'])
def test_a_loss_named_in_async_config_is_read_wherever_it_stands(tmp_path: Path, own: str) -> None:
    said = SCRIPT.format(own=own, of_async=', loss_fn="ppo"')
    assert read("tinker", file(tmp_path, "run.py", said)).loss == trimtab.Clip(low=0.2, high=0.2)
    assert read("tinker", {"async_config": {**ASYNC, "loss_fn": "ppo"}, "kl_penalty_coef": 0.0}).loss is not None


def test_two_losses_that_differ_are_an_error_of_the_cookbooks() -> None:
    with pytest.raises(ConfigError, match=r"cispo and async_config.loss_fn stable_reinforce exclude each other"):
        read("tinker", {"loss_fn": "cispo", "async_config": ASYNC})
    with pytest.raises(ConfigError, match=r"kl_discount_factor 0.5 and a KL penalty exclude stable_reinforce"):
        read("tinker", {"async_config": ASYNC, "kl_penalty_coef": 0.1, "kl_discount_factor": 0.5})


@pytest.mark.parametrize(
    ("name", "more", "loss", "before"),
    [
        ("math_rl", "", None, trimtab.ImportancePg()),
        ("math_rl", "max_steps_off_policy=3", None, trimtab.ImportancePg()),
        (
            "math_rl",
            "max_steps_off_policy=3 loss_fn=ppo",
            trimtab.Clip(low=0.2, high=0.2),
            trimtab.Clip(low=0.2, high=0.2),
        ),
        ("rubric", "", None, trimtab.ImportancePg()),
        ("code_rl", "", trimtab.ImportancePg(), trimtab.ImportancePg()),
        ("code_rl", "max_steps_off_policy=3", None, trimtab.ImportancePg()),
    ],
)
def test_a_recipe_has_the_loss_of_its_release(tmp_path: Path, name: str, more: str, loss: Any, before: Any) -> None:
    path = file(tmp_path, "run.sh", RECIPE.format(name=name, more=more))
    assert read("tinker", path).loss == loss
    assert read("tinker", path, version="cookbook 0.5.8").loss == before


@pytest.mark.parametrize(("steps", "told"), [(3, ["async_config.max_steps_off_policy"]), (0, []), (None, [])])
def test_the_number_of_steps_bounds_what_is_on_its_way_and_not_its_age(steps: int | None, told: list[str]) -> None:
    settings = {"loss_fn": "ppo", "async_config": {"max_steps_off_policy": steps, "loss_fn": "ppo"}}
    assert [each.key for each in read("tinker", settings).findings if "never discarded" in each.text] == told
    before = read("tinker", {"loss_fn": "ppo", "async_config": {"max_steps_off_policy": steps}}, version="0.5.8")
    assert not [each for each in before.findings if "never discarded" in each.text]
