"""ROLL: which pipeline a file is for, which worker trains, and what it is no longer accused of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimtab import Clip, Reduction, Topr
from trimtab.config.advantages import Estimator, Grpo, Normalise, ReinforcePlusPlus
from trimtab.dialects import Reading, read
from trimtab.dialects.parts import ALL
from trimtab.errors import ConfigError

AGENTIC = """\
exp_name: frozen_lake
pretrain: m
adv_estimator: grpo
pg_clip: 0.2
actor_train: {training_args: {learning_rate: 1.0e-6}}
train_env_manager: {num_env_groups: 8, group_size: 1, format_penalty: -0.15}
custom_envs: {FrozenLake: {env_type: frozen_lake}}
"""
RLVR = "exp_name: x\npretrain: m\nadv_estimator: grpo\npg_clip: 0.2\nrewards: {math_rule: {}}\n"
PLAIN = ReinforcePlusPlus(gaps="step", normalise=None, **ALL)
"""The reward as it is, summed to the end."""
PG_WORKER = "roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker"


def _read(tmp_path: Path, text: str) -> Reading:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    return read("roll", file)


def _is_called_nan(reading: Reading) -> bool:
    return any("NaN" in each.text for each in reading.defects)


@pytest.mark.parametrize(
    ("section", "estimator", "norm"),
    [
        ("", PLAIN, None),
        ("reward_normalization: {grouping: traj_group_id, method: identity}", PLAIN, None),
        ("reward_normalization: {grouping: tags}", PLAIN, None),
        ("reward_normalization: {grouping: traj_group_id, method: mean_std}", Grpo(eps=1e-6, **ALL), None),
        ("reward_normalization: {grouping: traj_group_id, method: mean}", Grpo(std=False, **ALL), None),
        (
            "reward_normalization: {grouping: batch, norm_mean_type: group, norm_std_type: batch}",
            PLAIN,
            Normalise(mean="batch", std="batch", eps=1e-6, eps_at="std"),
        ),
    ],
)
def test_an_agentic_file_is_normalised_by_its_own_section_and_a_group_of_one_is_no_defect(
    tmp_path: Path, section: str, estimator: Estimator, norm: Normalise | None
) -> None:
    found = _read(tmp_path, f"{AGENTIC}{section}\n")
    assert not _is_called_nan(found)
    assert found.advantage == estimator
    assert [each.normalise for each in found.shaping] == ([] if norm is None else [norm])


@pytest.mark.parametrize("grouping", ["tags", "state"])
def test_a_grouping_other_than_the_prompts_is_refused_where_it_normalises(tmp_path: Path, grouping: str) -> None:
    found = _read(tmp_path, f"{AGENTIC}reward_normalization: {{grouping: {grouping}, method: mean_std}}\n")
    assert [each.part for each in found.refused] == ["advantage"]
    assert f"grouping {grouping}" in found.refused[0].text


@pytest.mark.parametrize(
    ("more", "is_nan"),
    [
        ("", True),
        ("num_return_sequences_in_group: 1\n", True),
        ("num_return_sequences_in_group: 8\n", False),
        ("defaults:\n  - ../config/rlvr@_here_\n", False),
    ],
)
def test_a_group_of_one_is_a_defect_of_rlvr_where_the_file_says_its_size(
    tmp_path: Path, more: str, is_nan: bool
) -> None:
    assert _is_called_nan(_read(tmp_path, f"{more}{RLVR}")) == is_nan


def test_the_weights_of_topr_are_read_and_not_called_idle() -> None:
    weights = {"topr_positive_weight": 2.0, "topr_negative_weight": 0.5}
    found = read("roll", {"adv_estimator": "reinforce", "actor_train": {"pg_variant": "topr", **weights}})
    assert found.loss == Topr(level="token", positive=2.0, negative=0.5)
    assert not found.defects


@pytest.mark.parametrize(
    ("settings", "is_idle"),
    [
        ({"pg_variant": "cispo", "cispo_epsilon_low": 0.1}, False),  # what holds anyway
        ({"pg_variant": "cispo", "cispo_epsilon_low": 0.2}, True),
        ({"pg_variant": "tis", "tis_lower_bound": 0.0, "tis_upper_bound": 1.0}, False),
        ({"pg_variant": "tis", "tis_upper_bound": 2.0}, True),
        ({"pg_variant": "kimi15", "kimi15_tau": 0.5}, True),
    ],
)
def test_a_setting_that_is_looked_up_in_vain_matters_where_it_differs(settings: dict[str, Any], is_idle: bool) -> None:
    found = read("roll", {"actor_train": settings})
    assert any("always hold" in each.text for each in found.defects) == is_idle


@pytest.mark.parametrize(
    ("worker", "loss"),
    [
        (f"actor_train: {{pg_variant: topr, worker_cls: {PG_WORKER}}}", Topr(level="token")),
        ("actor_train: {pg_variant: topr, worker_cls: roll.pipeline.rlvr.actor_worker.ActorWorker}", Clip()),
        ("actor_train: {pg_variant: topr}", Clip()),
    ],
)
def test_a_variant_is_read_with_the_worker_that_looks_at_it(tmp_path: Path, worker: str, loss: Clip | Topr) -> None:
    found = _read(tmp_path, f"exp_name: x\npretrain: m\nadv_estimator: reinforce\n{worker}\n")
    assert found.loss == loss
    assert any("actor_pg_worker only" in each.text for each in found.findings) == (loss == Clip())


@pytest.mark.parametrize(
    ("more", "is_accused"),
    [
        ({}, False),
        ({"filters": [{"enabled": False}]}, False),
        ({"filters": [{"enabled": True}]}, True),
        ({"entropy_loss_coef": 0.01}, True),
        ({"actor_train": {"pg_variant": "kimi15"}}, True),
    ],
)
def test_a_token_mean_is_accused_where_something_acts_beyond_the_mask(more: dict[str, Any], is_accused: bool) -> None:
    found = read("roll", {"pg_clip": 0.2, "loss_agg_mode": "token-mean", **more})
    assert any("ignores the loss mask" in each.text for each in found.defects) == is_accused
    has_filters = any(each["enabled"] for each in more.get("filters", ()))
    assert found.reduction == (None if has_filters else Reduction(mode="token-mean"))


def test_rewards_without_a_mean_over_the_group_are_refused_in_either_pipeline() -> None:
    with pytest.raises(ConfigError, match="norm_mean_type None with norm_std_type group"):
        read("roll", {"adv_estimator": "reinforce", "norm_std_type": "group"})
