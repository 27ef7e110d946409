"""Losses of papers as the code that ships them spells them: BAPO's recipe for verl, ms-swift's FIPO, ROLL's TOPR."""

from __future__ import annotations

import pytest
import torch

import trimtab
from trimtab import Bapo, Clip, Fipo, OptimalToken, Topr
from trimtab.config.losses import Reduction
from trimtab.dialects import read, write
from trimtab.errors import ConfigError


def test_bapos_recipe_for_verl() -> None:
    said = {
        "loss_mode": "bapo",
        "adv_ratio_target": 0.4,
        "ratio_lower_start": 0.6,
        "ratio_lower_max": 0.9,
        "ratio_upper_start": 1.2,
        "ratio_upper_max": 3.0,
        "ratio_upper_step": 0.1,
    }
    reading = read("verl", {"actor_rollout_ref": {"actor": {"policy_loss": said}}})
    assert reading.loss == Bapo(target=0.4, lower=0.6, lower_max=0.9, upper=1.2, upper_max=3.0, upper_step=0.1)
    assert any("not of verl itself" in each.text for each in reading.findings)
    left = read(
        "verl", {"actor_rollout_ref": {"actor": {"policy_loss": {"loss_mode": "bapo"}, "clip_ratio_high": 0.28}}}
    )
    assert left.loss == Bapo(
        lower=0.8, lower_max=0.8, upper=1.28, upper_max=1.28
    )  # nothing to search: the actor's clip
    with pytest.raises(ConfigError, match="verl does not support the loss: it has no bapo"):
        write("verl", loss=Bapo())


@pytest.mark.parametrize("loss", [Fipo(), Fipo(half_life=16.0, upper=1.3, safety=10.0), Fipo(ratio_cap=2.0)])
def test_fipo_is_read_back_as_it_was_written(loss: Fipo) -> None:
    written = write("ms-swift", loss=loss, reduction=Reduction(mode="token-mean"))
    assert written.omissions == ()
    assert read("ms-swift", written.settings).loss == loss


def test_a_weight_that_may_fall_is_read() -> None:
    reading = read(
        "ms-swift", {"loss_type": "fipo", "fipo_clip_high_only": False, "fipo_clip_range": 0.3, "delta": 2.0}
    )
    assert reading.loss == Fipo(lower=0.7, upper=1.3, ratio_cap=2.0)
    assert read("ms-swift", {"loss_type": "fipo", "fipo_clip_range": None}).loss == Fipo(lower=None, upper=None)


def test_fipo_by_sequence_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="fipo with importance_sampling_level sequence is not supported"):
        read("ms-swift", {"loss_type": "fipo", "importance_sampling_level": "sequence"})


def test_topr_goes_by_the_score_and_is_read_where_the_advantage_has_its_sign() -> None:
    """ROLL: −A·log p where the score is positive, −sg(clip(ρ, 0, 1))·A·log p elsewhere; float64, written from its source."""
    reading = read("roll", {"actor_train": {"pg_variant": "topr"}, "adv_estimator": "reinforce", "pg_clip": 0.2})
    assert reading.loss == Topr(level="token")
    generator = torch.Generator().manual_seed(1)
    score = torch.tensor([1.0, -1.0, 0.0, 2.0, -0.5], dtype=torch.float64)
    proximal = -torch.rand(5, 4, generator=generator, dtype=torch.float64) - 0.5
    current = (proximal + torch.randn(5, 4, generator=generator, dtype=torch.float64) * 0.5).requires_grad_(True)
    mask = torch.ones(5, 4, dtype=torch.bool)
    assert reading.advantage is not None
    worth = trimtab.advantages(reading.advantage, rewards=score, mask=mask).advantages
    ratio = (current - proximal).exp().detach()
    factor = torch.where(score[:, None] > 0, 1.0, ratio.clamp(0.0, 1.0))
    theirs = (-factor * score[:, None] * current).mean()
    ours = trimtab.policy_loss(
        reading.loss, current=current, proximal=proximal, advantages=worth, mask=mask, reduction="token-mean"
    ).loss
    torch.testing.assert_close(ours, theirs)
    grads = [torch.autograd.grad(each, current, retain_graph=True)[0] for each in (ours, theirs)]
    torch.testing.assert_close(*grads)
    plain = trimtab.policy_loss(Clip(), current=current, proximal=proximal, advantages=worth, mask=mask).loss
    assert not torch.allclose(plain, theirs)


@pytest.mark.parametrize(
    "more", [{"adv_estimator": "grpo"}, {"adv_estimator": "reinforce", "whiten_advantages": True}, {}]
)
def test_topr_is_refused_where_something_is_subtracted(more: dict[str, object]) -> None:
    reading = read("roll", {"actor_train": {"pg_variant": "topr"}, "is_weight": {"enabled": True}, **more})
    assert any("sign of the score" in each.text for each in reading.refused)


@pytest.mark.parametrize("name", ["optimal_token_baseline", "tir_optimal_token_baseline"])
def test_verls_optimal_token_baselines(name: str) -> None:
    reading = read("verl", {"adv_estimator": name})
    assert reading.advantage == OptimalToken(singleton="raw")
    assert any("calculate_sum_pi_squared" in each.text for each in reading.findings)
    assert any("untrained tokens counted" in each.text for each in reading.findings) != name.startswith("tir")
