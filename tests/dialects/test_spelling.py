"""Keys that are none of ours pass; keys that are nearly ours do not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.dialects.whole_files import WHOLE
from trimtab.dialects import DIALECTS, read
from trimtab.dialects.sources.settings import flat_settings
from trimtab.errors import UnknownNameError

MISSPELT: list[tuple[str, str, str]] = [
    ("verl", "algorithm.rollout_correction.rollout_iss", "rollout_is"),
    ("verl", "algorithm.rollout_corection.rollout_is", "rollout_correction"),
    ("verl", "actor_rollout_ref.actor.clip_ratio_hihg", "clip_ratio_high"),
    ("verl", "actor_rollout_ref.actor.policy_loss.loss_mod", "loss_mode"),
    ("verl", "algorithm.adv_estimater", "adv_estimator"),
    ("areal", "actor.rejection_sampling.metrc", "metric"),
    ("areal", "actor.reject_sampling.level", "rejection_sampling"),
    ("areal", "actor.eps_clip_highr", "eps_clip_higher"),
    ("areal", "actor.reward_norm.mean_levle", "mean_level"),
    ("areal", "actor.kl_estimater", "kl_estimator"),
    ("skyrl", "trainer.algorithm.off_policy_correction.tis_type", "tis_ratio_type"),
    ("skyrl", "trainer.algorithm.policy_loss_typ", "policy_loss_type"),
    ("skyrl", "trainer.algorithm.advantage_estimtor", "advantage_estimator"),
    ("trl", "vllm_importance_sampling_mod", "vllm_importance_sampling_mode"),
    ("trl", "epsilon_hi", "epsilon_high"),
    ("trl", "scale_reward", "scale_rewards"),
    ("openrlhf", "algo.advantage.is_correction_levl", "is_correction_level"),
    ("openrlhf", "actor.policy_loss_tpye", "policy_loss_type"),
    ("openrlhf", "algo.advantage.estimater", "estimator"),
    ("ms-swift", "rollout_importance_sampling_mod", "rollout_importance_sampling_mode"),
    ("ms-swift", "importance_sampling_levl", "importance_sampling_level"),
    ("ms-swift", "advantage_estimater", "advantage_estimator"),
    ("slime", "tis_clip_lo", "tis_clip_low"),
    ("slime", "eps_clip_hi", "eps_clip_high"),
    ("slime", "advantage_estimater", "advantage_estimator"),
    ("nemo-rl", "loss_fn.use_importance_sampling_corection", "use_importance_sampling_correction"),
    ("nemo-rl", "loss_fn.ratio_clip_mx", "ratio_clip_max"),
    ("nemo-rl", "grpo.adv_estimator.minus_baselin", "minus_baseline"),
    ("roll", "train_infer_correction.is_weight.weight_typ", "weight_type"),
    ("roll", "train_infer_corection.filters", "train_infer_correction"),
    ("roll", "pg_clip_hi", "pg_clip_high"),
    ("roll", "adv_estimater", "adv_estimator"),
    ("prime-rl", "trainer.loss.dppo_mask_hgh", "dppo_mask_high"),
    ("prime-rl", "trainer.loss.kl_ta", "kl_tau"),
    ("prime-rl", "orchestrator.algo.length_penlty", "length_penalty"),
    ("open-instruct", "rho_clamp_upper", "rho_clamp_upper_bound"),
    ("open-instruct", "clip_highr", "clip_higher"),
    ("open-instruct", "advantage_normalisation_type", "advantage_normalization_type"),
    ("miles", "tis_clip_lo", "tis_clip_low"),
    ("miles", "eps_clip_hi", "eps_clip_high"),
    ("miles", "advantage_estimater", "advantage_estimator"),
    ("tinker", "loss_fnn", "loss_fn"),
    ("tinker", "loss_fn_config.clip_low_treshold", "clip_low_threshold"),
    ("tinker", "kl_penalty_coeff", "kl_penalty_coef"),
    ("tunix", "agentic_grpo_config.sampler_is_treshold", "sampler_is_threshold"),
    ("tunix", "agentic_grpo_config.epsilon_hgh", "epsilon_high"),
    ("tunix", "agentic_grpo_config.advantage_estimater", "advantage_estimator"),
]


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_file_is_read_and_thirty_keys_of_no_concern_pass(name: str) -> None:
    settings = WHOLE[name]
    reading = read(name, settings)
    assert len(flat_settings(settings)) - len(reading.said) >= 30
    assert reading.correction is not None
    assert reading.loss is not None
    assert reading.reduction is not None
    assert reading.advantage is not None


@pytest.mark.parametrize("name", WHOLE)
def test_keys_of_no_concern_change_nothing(name: str) -> None:
    keys = flat_settings(WHOLE[name])
    reading = read(name, keys)
    paths = [path for key in DIALECTS[name].keys for path in key.paths]
    ours = {key: value for key, value in keys.items() if any(f".{key}".endswith(f".{path}") for path in paths)}
    alone = read(name, ours)
    assert len(ours) < len(keys)
    for part in ("correction", "loss", "reduction", "kl", "entropy", "advantage", "shaping", "advantage_norm"):
        assert getattr(reading, part) == getattr(alone, part), part


@pytest.mark.parametrize(("name", "key", "meant"), MISSPELT)
def test_a_misspelt_key_in_a_whole_file_is_refused_with_the_nearest_name(name: str, key: str, meant: str) -> None:
    settings: dict[str, Any] = copy.deepcopy(flat_settings(WHOLE[name]))
    with pytest.raises(UnknownNameError) as raised:
        read(name, settings | {key: 1})
    assert repr(meant) in str(raised.value)
    assert key.rpartition(".")[2] in str(raised.value) or key.split(".")[-2] in str(raised.value)


@pytest.mark.parametrize(("name", "key", "meant"), MISSPELT)
def test_a_misspelt_key_in_its_section_alone_is_refused(name: str, key: str, meant: str) -> None:
    end = key.rpartition(".")[2]
    paths = [each.path for each in DIALECTS[name].keys if each.part != "other"]
    if end in {path.rpartition(".")[2] for path in paths}:
        return  # the section is misspelt, not the key
    with pytest.raises(UnknownNameError, match=meant):
        read(name, {end: 1})


def test_every_framework_has_a_misspelling_in_each_of_its_parts() -> None:
    for name, dialect in DIALECTS.items():
        labels = {(key.path.rpartition(".")[2], key.part) for key in dialect.keys}
        labels |= {(section.rpartition(".")[2], "correction") for section in dialect.closed}
        misspelt = {meant for framework, _, meant in MISSPELT if framework == name}
        found = {part for label, part in labels if label in misspelt}
        assert {"correction", "loss", "advantage"} <= found, (name, found)
