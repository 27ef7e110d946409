"""What `read` points at, and what the documented meaning changes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import trimtab
from trimtab.dialects import DIALECTS, Reading, read
from trimtab.dialects.lookup import look_up
from trimtab.errors import ConfigError, UnknownNameError

ROWS: list[tuple[str, dict[str, Any], str, str, str]] = [
    ("verl", {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_4.0"}, "rollout_rs_threshold", "defect", "inverse"),
    ("verl", {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_2.0"}, "rollout_rs_threshold", "note", "reciprocal"),
    ("verl", {"bypass_mode": True, "rollout_is": "token"}, "bypass_mode", "defect", "never reach"),
    ("verl", {"bypass_mode": True}, "bypass_mode", "note", "the rollout's own"),
    ("verl", {"rollout_is": "sequence"}, "rollout_is_threshold", "surprise", "product"),
    ("verl", {"rollout_rs": "token_k2", "rollout_rs_threshold": 1.0}, "rollout_rs", "surprise", "whole reward"),
    ("verl", {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 1.0}, "rollout_rs", "note", "vote"),
    (
        "verl",
        {"algorithm": {"rollout_correction": {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 1}}, "trainer": {"use_v1": False}},
        "use_v1",
        "surprise",
        "after rejection",
    ),
    ("verl", {"rollout_rs": "geometric", "rollout_rs_threshold": 1.01}, "rollout_rs", "note", "removed in #4544"),
    ("verl", {"actor_rollout_ref": {"actor": {"tis_imp_ratio_cap": 2}}}, "tis_imp_ratio_cap", "note", "removed"),
    ("verl", {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": "0.5_2.0"}, "rollout_rs_threshold", "surprise", "hardly ever"),
    ("areal", {"metric": "kl_k3", "upper": 0.1}, "metric", "defect", "other direction"),
    ("areal", {"level": "sequence", "metric": "kl_k2", "upper": 1.0}, "metric", "surprise", "unbounded"),
    ("areal", {"metric": "kl_k1", "upper": 0.3}, "metric", "note", "opposite sign"),
    ("areal", {"level": "sequence", "agg": "max", "upper": 3.0}, "agg", "surprise", "geometric mean"),
    ("areal", {"level": "sequence", "upper": 2.0}, "upper", "surprise", "hardly ever"),
    ("areal", {"level": "token", "agg": "sum", "upper": 2.0}, "agg", "note", "no effect"),
    ("areal", {"actor": {"use_decoupled_loss": False, "rejection_sampling": {"upper": 2.0}}}, "use_decoupled_loss", "surprise", "nothing"),
    ("areal", {"actor": {"use_decoupled_loss": True, "rejection_sampling": None}}, "use_decoupled_loss", "surprise", "no importance"),
    ("areal", {"actor": {"rejection_sampling": {"upper": 2.0}}}, "use_decoupled_loss", "defect", "the sampler's"),
    ("areal", {"actor": {"m2_threshold": 0.04}}, "use_decoupled_loss", "defect", "do nothing"),
    (
        "areal",
        {"use_decoupled_loss": False, "recompute_logprob": True, "rejection_sampling": {"upper": 2.0}},
        "use_decoupled_loss",
        "surprise",
        "those of the recomputed pass",
    ),
    (
        "areal",
        {"actor": {"recompute_logprob": True, "rejection_sampling": {"upper": 2.0}}},
        "use_decoupled_loss",
        "defect",
        "those of the recomputed pass",
    ),
    ("areal", {"use_decoupled_loss": True, "m2_threshold": 0.04}, "m2_threshold", "surprise", "by the tokens before"),
    ("areal", {"actor": {"behave_imp_weight_cap": 3.0}}, "behave_imp_weight_cap", "note", "#1088"),
    ("areal", {"actor": {"behav_imp_weight_cap": 3.0}}, "behav_imp_weight_cap", "note", "#1088"),
    ("areal", {"behav_imp_weight_cap": 3.0}, "behav_imp_weight_cap", "note", "#1088"),
    ("areal", {"actor": {"behave_imp_weight_mode": "token_mask"}}, "behave_imp_weight_mode", "note", "#1088"),
    ("skyrl", {"trainer": {"algorithm": {"use_tis": True}}}, "tis_imp_ratio_cap", "defect", "flips the sign"),
    ("skyrl", {"token_mask_is_threshold_high": 2.0}, "token_mask_is_threshold_high", "surprise", "ignored"),
    ("skyrl", {"trainer": {"algorithm": {"policy_loss_type": "clip_cov"}}}, "policy_loss_type", "defect", "divided"),
    ("skyrl", {"tis_ratio_type": "sequence"}, "sequence_tis_ratio_clip_high", "surprise", "product"),
    ("skyrl", {"outlier_token_is_threshold_low": 1e-4}, "outlier_token_is_threshold_low", "note", "skipped"),
    ("trl", {"use_vllm": True}, "vllm_importance_sampling_mode", "surprise", "product"),
    ("trl", {"use_vllm": True}, "vllm_importance_sampling_mode", "note", "By default"),
    ("trl", {"vllm_importance_sampling_cap": 2.0}, "vllm_importance_sampling_cap", "note", "deprecated"),
    ("openrlhf", {"is_correction_level": "seq"}, "is_correction_level", "surprise", "unbounded"),
    ("openrlhf", {"is_correction_level": "token", "policy_loss_type": "gspo"}, "is_correction_level", "surprise", "ignored"),
    (
        "openrlhf",
        {"is_correction_level": "token", "is_correction_gating": "binary_kl", "is_correction_threshold": 0.1},
        "is_correction_gating",
        "surprise",
        "one direction",
    ),
    ("ms-swift", {"rollout_importance_sampling_mode": "token_mask"}, "rollout_importance_sampling_mode", "surprise", "KL term"),
    ("ms-swift", {"off_policy_sequence_mask_delta": 0.1}, "off_policy_sequence_mask_delta", "surprise", "denominator"),
    ("slime", {"use_rs": True, "use_tis": False}, "use_rs", "surprise", "use_tis"),
    ("slime", {"use_tis": True, "tis_level": "token"}, "tis_batch_normalize", "surprise", "micro-batch"),
    ("slime", {"use_opsm": True}, "opsm_delta", "surprise", "proximal"),
    ("slime", {"use_tis": True, "tis_level": "sequence"}, "tis_batch_normalize", "surprise", "empty sequence"),
    ("areal", {"adv_norm": {"std_level": "group", "group_size": 4}}, "group_size", "surprise", "divided by eps"),
    (
        "areal",
        {"adv_norm": {"mean_level": "group", "group_size": 4}},
        "group_size",
        "surprise",
        "nothing is subtracted",
    ),
    (
        "areal",
        {"reward_norm": {"mean_leave1out": True, "std_unbiased": False}},
        "std_unbiased",
        "surprise",
        "own size",
    ),
    ("nemo-rl", {"grpo": {"seq_logprob_error_threshold": 1.5}}, "seq_logprob_error_threshold", "surprise", "denominator"),
    ("roll", {"filters": [{"enabled": True}], "loss_agg_mode": "token-mean"}, "loss_agg_mode", "defect", "ignores"),
    ("prime-rl", {"type": "default"}, "type", "surprise", "uncapped"),
    ("open-instruct", {"rho_mask_sequence_level": True}, "rho_mask_sequence_level", "defect", "packed"),
    ("verl", {"clip_ratio": 0.3, "clip_ratio_c": 3.0}, "clip_ratio", "surprise", "not read"),
    ("verl", {"policy_loss": {"loss_mode": "geo_mean"}}, "loss_mode", "surprise", "micro-batches"),
    ("verl", {"loss_agg_mode": "token-mean", "policy_loss": {"loss_mode": "sapo"}}, "loss_agg_mode", "surprise", "per sequence"),
    ("areal", {"actor": {"kl_ctl": 0.1}, "train_dataset": {}}, "kl_ctl", "defect", "a bonus on surprise"),
    ("areal", {"actor": {"kl_ctl": 0.1, "kl_estimator": "k2"}}, "kl_ctl", "defect", "pays for its own surprise"),
    ("areal", {"mask_no_eos_with_zero": True, "reward_norm": {"std_level": None}}, "mask_no_eos_with_zero", "defect", "#1351"),
    ("areal", {"mask_no_eos_with_zero": True}, "mask_no_eos_with_zero", "defect", "longest row"),
    ("skyrl", {"advantage_estimator": "maxrl"}, "advantage_estimator", "surprise", "flips signs"),
    ("trl", {"loss_type": "cispo", "epsilon_high": 5.0}, "epsilon_high", "surprise", "ratio itself"),
    ("trl", {"loss_type": "grpo", "delta": 1.1}, "delta", "surprise", "positive too"),
    ("nemo-rl", {"normalize_rewards": True}, "use_leave_one_out_baseline", "surprise", "never divided"),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "settings", "key", "level", "words"), ROWS)
def test_a_surprising_setting_is_pointed_at(
    framework: str, settings: dict[str, Any], key: str, level: str, words: str
) -> None:
    found = [each for each in read(framework, settings).findings if words in each.text]
    assert [(each.level, each.key.rpartition(".")[2]) for each in found] == [(level, key)], found


@pytest.mark.parametrize("name", DIALECTS)
def test_every_finding_is_one_sentence_that_ends(name: str) -> None:
    for remark in DIALECTS[name].remarks:
        assert remark.text.endswith("."), remark.text
        assert remark.level in ("note", "surprise", "defect")
        assert remark.key in {key.label for key in DIALECTS[name].keys}, remark.key


def kept(reading: Reading, *log_r: float) -> list[bool]:
    assert reading.correction is not None
    proximal = torch.tensor([log_r]) - 3.0
    out = trimtab.correct(
        reading.correction,
        proximal=proximal,
        behavior=torch.full_like(proximal, -3.0),
        mask=torch.ones_like(proximal).bool(),
    )
    return out.kept[0].tolist()


def test_verl_k1_bounds_keep_the_inverse_ratio_and_as_documented_the_ratio() -> None:
    # "0.5_4.0": as shipped r in [1/4, 2]; as documented r in [0.5, 4]. Tokens with r = 3 and r = 0.3.
    settings = {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_4.0"}
    assert kept(read("verl", settings), math.log(3), math.log(0.3)) == [False, True]
    documented = read("verl", settings, documented=True)
    assert kept(documented, math.log(3), math.log(0.3)) == [True, False]
    assert not documented.defects


def test_areal_k3_is_reversed_and_as_documented_forward() -> None:
    # at log r = 2: reverse e^-2 - 1 + 2 = 1.135, forward e^2 - 1 - 2 = 4.389; at -2 exchanged
    settings = {"metric": "kl_k3", "upper": 2.0}
    assert kept(read("areal", settings), 2.0, -2.0) == [True, False]
    assert kept(read("areal", settings, documented=True), 2.0, -2.0) == [False, True]


def test_verl_bypass_settings_act_only_as_documented() -> None:
    settings = {"bypass_mode": True, "rollout_rs": "token_k2", "rollout_rs_threshold": 0.5, "loss_type": "reinforce"}
    shipped, documented = (read("verl", settings, documented=each).correction for each in (False, True))
    assert shipped is not None
    assert shipped.gates == ()
    assert shipped.policies == "bypass"
    assert documented is not None
    assert len(documented.gates) == 1


def test_a_cap_that_flips_the_sign_has_no_correction() -> None:
    reading = read("skyrl", {"trainer": {"algorithm": {"use_tis": True}}})
    assert reading.correction is None
    assert [each.level for each in reading.defects] == ["defect"]
    fixed = read("skyrl", {"trainer": {"algorithm": {"use_tis": True, "tis_imp_ratio_cap": 2.0}}})
    assert fixed.correction == read("skyrl", {"tis_ratio_type": "token", "token_tis_ratio_clip_high": 2.0}).correction


@pytest.mark.parametrize(
    ("framework", "settings", "words"),
    [
        ("verl", {"rollout_is": "tokens"}, "token, sequence or null"),
        ("verl", {"rolout_is": "token"}, "rollout_is"),
        ("verl", {"rollout_is": "token", "rollout_iss_threshold": 2}, "rollout_is_threshold"),
        ("verl", {"algorithm": {"rollout_correction": {"rollout_is": "token", "upper": 2}}}, "has no key 'upper'"),
        ("verl", {"rollout_rs": "seq_max_k1", "rollout_rs_threshold": 2}, "seq_max_k"),
        ("verl", {"rollout_rs": "token_k2", "rollout_rs_threshold": "0.1_0.2"}, "one number"),
        ("verl", {"rollout_rs": "token_k2"}, "needs a value"),
        ("verl", {"rollout_is": "token", "rollout_is_threshold": True}, "needs a number"),
        ("verl", {"rollout_is": "token", "rollout_is_threshold": "2.0_0.5"}, "low <= high"),
        ("verl", {"tis_ratio_type": "token"}, "reads none of these keys"),
        ("verl", {"rollout_is": "${x.y}"}, "reference"),
        ("areal", {"actor": {"rejection_samplin": {"level": "token"}}}, "rejection_sampl"),
        ("areal", {"metric": "binary_kl"}, "own validation"),
        ("areal", {"action": "clamp", "metric": "kl_k2"}, "metric ratio"),
        ("areal", {"upper": 0.5}, "upper > 1"),
        ("areal", {"level": "token", "upper": 2.0, "token_action": "mask"}, "#1218"),
        (
            "areal",
            {"use_decoupled_loss": True, "m2_threshold": 0.1, "rejection_sampling": {"upper": 2.0}},
            "is not supported",
        ),
        ("skyrl", {"sequence_mask_metric": "geo"}, "geometric"),
        ("trl", {"vllm_importance_sampling_mod": "token_mask"}, "vllm_importance_sampling_mode"),
        ("trl", {"vllm_importance_sampling_clip_min": 5.0}, "below clip_max"),
        ("openrlhf", {"is_correction_level": "seq", "is_correction_mode": "clip"}, "level token"),
        ("openrlhf", {"is_correction_level": "token", "is_correction_gating": "tv"}, "one number"),
        ("slime", {"use_tis": True, "use_rollout_logprobs": True}, "exclude"),
        (
            "slime",
            {"use_tis": True, "custom_tis_function_path": "my.own"},
            "--custom-tis-function-path my.own is a function of your own",
        ),
        ("slime", {"use_tis": True, "tis_mode": "mask", "custom_tis_function_path": "my.mis"}, "of your own"),
        ("slime", {"get_mismatch_metrics": True, "custom_tis_function_path": "my.own"}, "of your own"),
        (
            "nemo-rl",
            {"truncated_importance_sampling_type": "tis", "truncated_importance_sampling_ratio": 2.0},
            "without it the start fails",
        ),
        ("slime", {"use_tis": True, "tis_level": "geometric"}, "tis_batch_normalize"),
        ("nemo-rl", {"truncated_importance_sampling_ratio": 2.0}, "_type"),
        ("roll", {"filters": [{"enabled": True, "ratio_hi": 2}]}, "ratio_high"),
        ("roll", {"is_weight": {"enabled": True, "detach": False}}, "no gradient"),
        ("open-instruct", {"rho_clamp_upper": 2.0}, "rho_clamp_upper_bound"),
        ("nobody", {}, "no framework"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(framework: str, settings: dict[str, Any], words: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError)) as raised:
        read(framework, settings)
    assert words in str(raised.value)


GSPO: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "verl",
        {"actor_rollout_ref.actor.policy_loss.loss_mode": "gspo"},
        {"actor_rollout_ref.actor.clip_ratio_low": 3e-4, "actor_rollout_ref.actor.clip_ratio_high": 4e-4},
    ),
    ("trl", {"importance_sampling_level": "sequence"}, {"epsilon": 3e-4, "epsilon_high": 4e-4}),
    (
        "areal",
        {"actor.importance_sampling_level": "sequence"},
        {"actor.eps_clip": 3e-4, "actor.eps_clip_higher": 4e-4},
    ),
    (
        "skyrl",
        {"trainer.algorithm.policy_loss_type": "gspo"},
        {"trainer.algorithm.eps_clip_low": 3e-4, "trainer.algorithm.eps_clip_high": 4e-4},
    ),
    (
        "nemo-rl",
        {"loss_fn.sequence_level_importance_ratios": True, "loss_fn.token_level_loss": False},
        {"loss_fn.ratio_clip_min": 3e-4, "loss_fn.ratio_clip_max": 4e-4},
    ),
    ("slime", {"advantage_estimator": "gspo"}, {"eps_clip": 3e-4, "eps_clip_high": 4e-4}),
    ("miles", {"advantage_estimator": "gspo"}, {"eps_clip": 3e-4, "eps_clip_high": 4e-4}),
    ("openrlhf", {"actor.policy_loss_type": "gspo"}, {"actor.eps_clip_low_high": [3e-4, 4e-4]}),
    ("ms-swift", {"importance_sampling_level": "sequence"}, {"epsilon": 3e-4, "epsilon_high": 4e-4}),
    (
        "tinker",
        {"loss_fn": "gspo", "loss_fn_config.clip_low_threshold": 0.8, "loss_fn_config.clip_high_threshold": 1.2},
        {"loss_fn_config.clip_low_threshold": 0.9997, "loss_fn_config.clip_high_threshold": 1.0004},
    ),
    (
        "tunix",
        {"agentic_grpo_config.loss_algo": "gspo-token", "agentic_grpo_config.beta": 0.0},
        {"agentic_grpo_config.epsilon": 3e-4, "agentic_grpo_config.epsilon_high": 4e-4},
    ),
]
WIDE = "it hardly ever clips"


@pytest.mark.parametrize(("framework", "settings", "remedy"), GSPO)
def test_a_clip_for_tokens_on_the_ratio_of_a_sequence_is_named_with_the_papers_bounds(
    framework: str, settings: dict[str, Any], remedy: dict[str, Any]
) -> None:
    found = [each for each in read(framework, settings).findings if WIDE in each.text]
    assert [each.level for each in found] == ["risk"]
    for key, value in remedy.items():
        words = " ".join(f"{each:g}" for each in value) if isinstance(value, list) else f"{value:g}"
        assert f"{key} to {words}" in found[0].text, found[0].text
    mended = read(framework, {**settings, **remedy})
    assert not any(WIDE in each.text for each in mended.findings)
    loss = DIALECTS[framework].loss_of
    assert loss is not None
    clip = loss(look_up(DIALECTS[framework], {**settings, **remedy})).loss
    assert (clip.low, clip.high) == pytest.approx((3e-4, 4e-4))


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("verl", {"clip_ratio_low": 0.2, "clip_ratio_high": 0.28}),  # ratios of tokens
        ("verl", {"policy_loss.loss_mode": "geo_mean"}),  # clipped by token, then gathered
        ("trl", {"importance_sampling_level": "sequence", "epsilon": 3e-3, "epsilon_high": 4e-3}),
        ("roll", {"importance_sampling": "seq", "pg_clip": 3e-4}),
    ],
)
def test_a_clip_that_fits_its_ratio_is_no_news(framework: str, settings: dict[str, Any]) -> None:
    assert not any(WIDE in each.text for each in read(framework, settings).findings)


def test_where_one_key_holds_both_sides_the_remedy_names_that_key() -> None:
    (found,) = [
        each for each in read("roll", {"importance_sampling": "seq", "pg_clip": 0.2}).findings if WIDE in each.text
    ]
    assert found.text.endswith("set pg_clip to 0.0003.")
