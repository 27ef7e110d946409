"""Every remark of every framework is set off by some settings and not by all."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from tests.dialects.examples import EXAMPLES
from tests.dialects.test_findings import ROWS as FINDINGS
from trimtab.dialects import DIALECTS, read
from trimtab.dialects.lookup import look_up
from trimtab.dialects.sources.settings import flat_settings
from trimtab.errors import ConfigError

Row = tuple[str, dict[str, Any], str, str, str]
LOSS = "actor_rollout_ref.actor.policy_loss.rollout_correction"
BY_LOSS = {"actor_rollout_ref.actor.policy_loss.loss_mode": "bypass_mode"}
SECTION = "algorithm.rollout_correction"
BYPASS = BY_LOSS | {f"{SECTION}.bypass_mode": True}
K1 = {f"{LOSS}.rollout_rs": "token_k1", f"{LOSS}.rollout_rs_threshold": "0.5_4"}
SEQ_RS = {"algorithm": {"rollout_correction": {"rollout_rs": "seq_mean_k3", "rollout_rs_threshold": 1.0}}}
V, R, T = "vllm_importance_sampling", "rollout_importance_sampling", "truncated_importance_sampling"

VERL: list[Row] = [
    (
        "verl",
        {"rollout_is": "token", "actor_rollout_ref.rollout.calculate_log_probs": False},
        "calculate_log_probs",
        "defect",
        "compares nothing",
    ),
    ("verl", BYPASS | {f"{LOSS}.rollout_is": "token"}, "rollout_is", "note", "only logged"),
    (
        "verl",
        BYPASS | K1,
        "rollout_rs_threshold",
        "defect",
        "The bounds of the loss act on the inverse ratio",
    ),
    (
        "verl",
        {"algorithm.adv_estimator": "gae", "algorithm.kl_ctrl.kl_coef": 0.002},
        "use_kl_in_reward",
        "note",
        "Before 0.3, which brought it",
    ),
    (
        "areal",
        {"actor": {"eps_clip": 0.2, "group_adv_norm": False}},
        "group_adv_norm",
        "note",
        "switches of the first versions",
    ),
    (
        "verl",
        BYPASS
        | {
            f"{LOSS}.rollout_is": "token",
            f"{LOSS}.loss_type": "reinforce",
            f"{LOSS}.rollout_is_batch_normalize": True,
        },
        "rollout_is_batch_normalize",
        "surprise",
        "micro-batch",
    ),
    (
        "verl",
        {"rollout_rs": "token_k3", "rollout_rs_threshold": 0.1, "loss_agg_mode": "seq-mean-token-mean"},
        "rollout_rs",
        "note",
        "denominator kept: pass",
    ),
    (
        "verl",
        BYPASS | {f"{LOSS}.rollout_rs": "token_k2", f"{LOSS}.rollout_rs_threshold": 1.0},
        "rollout_rs",
        "note",
        "inside the loss",
    ),
    (
        "verl",
        SEQ_RS | {"actor_rollout_ref": {"actor": {"use_kl_loss": True}}},
        "rollout_rs",
        "note",
        "KL and entropy terms",
    ),
    ("verl", {"rollout_rs": "token_k1", "rollout_rs_threshold": 2.0}, "rollout_rs_threshold", "note", "its inverse"),
    ("verl", {"rollout_is": "token", "rollout_is_threshold": "0.5_5.0"}, "rollout_is_threshold", "defect", "by zero"),
    (
        "verl",
        {
            "algorithm": {"rollout_correction": {"rollout_is": "token"}},
            "actor_rollout_ref": {"actor": {"loss_agg_mode": "seq-mean-token-sum"}},
        },
        "loss_agg_mode",
        "note",
        "NaN",
    ),
    ("verl", {"rollout_is": "sequence"}, "rollout_is", "note", "without tokens"),
    (
        "verl",
        {f"{SECTION}.bypass_mode": True, "actor_rollout_ref.rollout.calculate_log_probs": False},
        "calculate_log_probs",
        "defect",
        "first step fails",
    ),
    (
        "verl",
        BYPASS | {f"{LOSS}.rollout_rs": "token_k1", f"{LOSS}.rollout_rs_threshold": "0.5_2.0"},
        "rollout_rs_threshold",
        "note",
        "these are reciprocal",
    ),
    (
        "verl",
        BYPASS | {f"{LOSS}.rollout_rs": "token_k1", f"{LOSS}.rollout_rs_threshold": 2.0},
        "rollout_rs_threshold",
        "note",
        "its inverse; AReaL",
    ),
    (
        "verl",
        {
            f"{SECTION}.bypass_mode": True,
            f"{SECTION}.rollout_is": "token",
            "actor_rollout_ref.actor.policy_loss.loss_mode": "gspo",
        },
        "bypass_mode",
        "defect",
        "ignored beside loss_mode gspo",
    ),
    ("verl", BY_LOSS, "loss_mode", "defect", "works them out anew"),
    ("verl", BY_LOSS | {f"{SECTION}.rollout_is": "token"}, "rollout_is", "surprise", "leaves out the weights"),
    ("verl", BYPASS | {f"{SECTION}.rollout_is": "token"}, "bypass_mode", "defect", "which is not there"),
    ("verl", BYPASS | K1 | {f"{SECTION}.rollout_rs": "seq_sum_k3"}, "bypass_mode", "surprise", "differs here"),
    ("verl", K1, "loss_mode", "surprise", "read by loss_mode bypass_mode alone"),
    (
        "verl",
        BYPASS | {f"{LOSS}.rollout_is": "sequence", f"{LOSS}.loss_type": "reinforce"},
        "rollout_is_threshold",
        "surprise",
        "product over the sequence",
    ),
    (
        "verl",
        BYPASS | {f"{LOSS}.rollout_is": "token", f"{LOSS}.rollout_is_threshold": "0.5_5.0"},
        "rollout_is_threshold",
        "defect",
        "of a micro-batch falls",
    ),
    (
        "verl",
        {"algorithm": {"adv_estimator": "grpo", **SEQ_RS["algorithm"]}},
        "adv_estimator",
        "surprise",
        "v1 trainer",
    ),
    ("verl", {"rollout_rs": "binary_kl", "rollout_rs_threshold": 0.1}, "rollout_rs", "note", "#6800"),
    (
        "verl",
        {
            "algorithm": {
                "rollout_correction": {
                    "rollout_rs": "token",
                    "rollout_rs_threshold": 2,
                    "rollout_token_veto_threshold": 1e-4,
                }
            }
        },
        "rollout_token_veto_threshold",
        "note",
        "veto was removed",
    ),
    ("verl", {"algorithm": {"rollout_is": True, "rollout_is_mode": "mask"}}, "rollout_is_level", "note", "#3984"),
    ("verl", {"policy_loss": {"loss_mode": "dppo_tv"}}, "clip_ratio_c", "surprise", "never reached"),
    (
        "verl",
        {"algorithm": {"use_kl_in_reward": True, "kl_ctrl": {"type": "adaptive"}}},
        "type",
        "note",
        "adaptive controller",
    ),
    (
        "verl",
        {"loss_agg_mode": "seq-mean-token-sum-norm", "data": {"max_response_length": 8}},
        "loss_scale_factor",
        "surprise",
        "width",
    ),
    ("verl", {"policy_loss": {"loss_mode": "gspo"}}, "loss_mode", "note", "own gradient"),
    ("verl", {"adv_estimator": "rloo"}, "adv_estimator", "note", "raw reward"),
    ("verl", {"adv_estimator": "opo"}, "adv_estimator", "note", "sum over all its tokens"),
]
AREAL: list[Row] = [
    ("areal", {"level": "sequence", "upper": 1.1, "token_action": "mask"}, "token_action", "note", "#1218"),
    (
        "areal",
        {"use_decoupled_loss": True, "prox_logp_method": "loglinear"},
        "prox_logp_method",
        "surprise",
        "interpolates",
    ),
    (
        "areal",
        {"use_decoupled_loss": True, "prox_logp_method": "loglinear"},
        "prox_logp_method",
        "defect",
        "not shifted",
    ),
    ("areal", {"actor": {"prox_logp_method": "reuse_train_logp"}}, "prox_logp_method", "note", "first pass"),
    (
        "areal",
        {"actor": {"use_sapo_loss": True, "rejection_sampling": {"upper": 2.0}}},
        "use_sapo_loss",
        "surprise",
        "never reads",
    ),
    ("areal", {"reward_norm": {"std_level": "group", "group_size": 4}}, "group_size", "surprise", "divided by eps"),
    (
        "areal",
        {"reward_norm": {"mean_level": "group", "group_size": 4}},
        "group_size",
        "surprise",
        "nothing is subtracted",
    ),
    ("areal", {"adv_norm": {"mean_leave1out": True, "std_unbiased": False}}, "std_unbiased", "surprise", "own size"),
    ("areal", {"reward_norm": {"mean_level": "group"}}, "group_size", "surprise", "its own group"),
    ("areal", {"reward_norm": {"mean_leave1out": True}}, "mean_leave1out", "note", "raw value"),
    ("areal", {"gae_lambda": 0.95}, "gae_lambda", "surprise", "every value is 0"),
    ("areal", {"importance_sampling_level": "sequence"}, "importance_sampling_level", "note", "averaged"),
    (
        "areal",
        {"overlong_reward_penalty": True, "overlong_tokens": 8, "overlong_penalty_factor": 1.0},
        "overlong_reward_penalty",
        "note",
        "keeps growing",
    ),
]
A = "trainer.algorithm"
SKYRL: list[Row] = [
    (
        "skyrl",
        {"generator": {"sampling_params": {"top_p": 0.9}}, "tis_ratio_type": "token"},
        "top_p",
        "surprise",
        "drawn from a part of the vocabulary",
    ),
    (
        "skyrl",
        {
            "generator": {
                "sampling_params": {"top_p": 0.9, "top_k": 20},
                "inference_engine": {"enable_return_sample_support_set": True},
            },
            f"{A}.enable_sample_support_replay": True,
        },
        "enable_sample_support_replay",
        "note",
        "pass those ids as `support`",
    ),
    (
        "skyrl",
        {f"{A}.enable_sample_support_replay": True, "tis_ratio_type": "token"},
        "enable_return_sample_support_set",
        "surprise",
        "stops before it starts: replay",
    ),
    (
        "skyrl",
        {"trainer": {"algorithm": {"use_tis": True, "tis_imp_ratio_cap": 2.0}}, "tis_ratio_type": "sequence"},
        "use_tis",
        "surprise",
        "overrides tis_ratio_type",
    ),
    (
        "skyrl",
        {f"{A}.policy_loss_type": "kl_cov", "tis_ratio_type": "token"},
        "policy_loss_type",
        "surprise",
        "not supported with kl_cov",
    ),
    (
        "skyrl",
        {"policy_loss_type": "cispo", "cispo": {"cispo_eps_clip_low": 0.0}},
        "cispo_eps_clip_low",
        "surprise",
        "the default before 0.4.0",
    ),
    (
        "skyrl",
        {f"{A}.policy_loss_type": "kl_cov", f"{A}.off_policy_correction.outlier_token_is_threshold_low": 1e-4},
        "policy_loss_type",
        "surprise",
        "silently not applied",
    ),
    (
        "skyrl",
        {"sequence_mask_metric": "geometric", "outlier_token_is_threshold_low": 1e-4},
        "sequence_mask_metric",
        "note",
        "Each stage",
    ),
    ("skyrl", {"tis_ratio_type": "token"}, "tis_ratio_type", "note", "over padding"),
    ("skyrl", {"policy_loss_type": "rollout_is"}, "policy_loss_type", "surprise", "zeroes the factor"),
    ("skyrl", {"advantage_estimator": "grpo"}, "advantage_estimator", "note", "raw reward"),
    ("skyrl", {"zero_variance_filter": True}, "zero_variance_filter", "note", "rewards agree"),
    ("skyrl", {"policy_loss_type": "regular"}, "use_kl_loss", "note", "By default"),
    ("skyrl", {"policy_loss_type": "gspo"}, "policy_loss_type", "note", "own gradient"),
    ("skyrl", {"loss_reduction": "token_mean_legacy"}, "loss_reduction", "surprise", "micro-batches"),
    ("skyrl", {"loss_reduction": "sequence_mean"}, "loss_reduction", "note", "without tokens"),
    ("skyrl", {"advantage_estimator": "reinforce++"}, "advantage_estimator", "surprise", "starts anew"),
    ("skyrl", {"advantage_estimator": "gae", "lambd": 0.95}, "advantage_estimator", "surprise", "critic values"),
]
TRL: list[Row] = [
    (
        "trl",
        {f"{V}_mode": "sequence_mask", f"{V}_clip_max": None, f"{V}_clip_min": 0.5},
        f"{V}_clip_max",
        "surprise",
        "overflow",
    ),
    ("trl", {f"{V}_mode": "token_mask"}, f"{V}_mode", "note", "stay in the denominator"),
    ("trl", {"off_policy_mask_threshold": 0.1}, "off_policy_mask_threshold", "note", "policy term only"),
    ("trl", {"max_staleness": 4, "epsilon": 0.2}, "max_staleness", "note", "AsyncGRPO"),
    ("trl", {"loss_type": "dapo", "beta": 0.1}, "use_bias_correction_kl", "note", "multiplied by the ratio"),
    ("trl", {"mask_truncated_completions": True}, "mask_truncated_completions", "note", "still vote"),
    ("trl", {"loss_type": "bnpo"}, "loss_type", "surprise", "one micro-batch"),
    ("trl", {"entropy_coef": 0.01}, "entropy_coef", "note", "under every loss_type"),
    (
        "trl",
        {"loss_type": "dapo", "entropy_coef": 0.01, "use_adaptive_entropy": True},
        "use_adaptive_entropy",
        "note",
        "each step moves it by 0.005 within [0.0, 1.0], up where the entropy is at most 0.2",
    ),
    ("trl", {"scale_rewards": "group"}, "scale_rewards", "note", "1e-4"),
]
E = {"algo.advantage.estimator": "rloo"}
OPENRLHF: list[Row] = [
    ("openrlhf", {"init_kl_coef": 0.01, "generate_max_len": 1024}, "lambd", "note", "before 0.7.0 it was 0.95"),
    (
        "openrlhf",
        {"use_kl_estimator_k3": True, "init_kl_coef": 0.01},
        "use_kl_estimator_k3",
        "note",
        "now kl.estimator k3",
    ),
    ("openrlhf", {"is_correction_enable": True}, "is_correction_type", "note", "0.10.4 to 0.11.1"),
    ("openrlhf", {"is_correction_type": "tis"}, "is_correction_type", "defect", "acts only with"),
    ("openrlhf", {"use_icepop": True}, "use_icepop", "defect", "acts only with"),
    ("openrlhf", {"enable_vllm_is_correction": True}, "vllm_is_correction_type", "note", "renamed"),
    ("openrlhf", {"is_correction_level": "seq"}, "is_correction_level", "note", "is_filter_ratio"),
    ("openrlhf", {"is_correction_level": "seq"}, "is_correction_threshold", "note", "default band"),
    ("openrlhf", {"policy_loss_type": "gspo", "loss_agg_mode": "token-mean"}, "loss_agg_mode", "surprise", "ignored"),
    ("openrlhf", E | {"reward.clip_range": [-1, 1]}, "clip_range", "note", "after the baseline"),
    ("openrlhf", E | {"algo.advantage.gamma": 0.9}, "gamma", "surprise", "set to 1"),
    ("openrlhf", E, "init_coef", "note", "By default"),
    ("openrlhf", E | {"algo.kl.target": 0.1}, "target", "note", "follows"),
    ("openrlhf", {"policy_loss_type": "gspo"}, "policy_loss_type", "note", "mean ratio"),
    (
        "openrlhf",
        {"algo.kl.use_loss": True, "actor.loss_agg_mode": "seq-mean-token-mean"},
        "use_loss",
        "surprise",
        "token mean whatever",
    ),
    ("openrlhf", {"algo.advantage.estimator": "reinforce"}, "estimator", "note", "biased variance"),
]
SWIFT: list[Row] = [
    ("ms-swift", {f"{R}_mode": "sequence_mask"}, f"{R}_mode", "surprise", "their own token ratios"),
    ("ms-swift", {f"{R}_mode": "sequence_truncate"}, f"{R}_mode", "surprise", "caps the geometric mean"),
    ("ms-swift", {f"{R}_mode": "token_mask"}, f"{R}_threshold", "note", "no lower bound"),
    ("ms-swift", {"log_rollout_offpolicy_metrics": True}, "log_rollout_offpolicy_metrics", "note", "chi2_seq"),
    ("ms-swift", {"loss_type": "dapo"}, "beta", "note", "By default"),
    ("ms-swift", {"advantage_estimator": "rloo"}, "kl_in_reward", "note", "by default"),
    ("ms-swift", {"overlong_filter": True}, "overlong_filter", "note", "Megatron"),
    ("ms-swift", {"loss_type": "cispo", "epsilon_high": 5.0}, "epsilon_high", "surprise", "ratio itself"),
    ("ms-swift", {"loss_type": "bnpo"}, "loss_type", "surprise", "under Megatron"),
    ("ms-swift", {"loss_type": "dapo", "delta": 1.1}, "delta", "surprise", "positive too"),
]
MIS = {"use_tis": True, "tis_batch_normalize": False}
SLIME: list[Row] = [
    ("slime", {"use_score_centering": True}, "use_score_centering", "note", "score_centering_top_k likeliest ids"),
    (
        "slime",
        {"use_score_centering": True, "rollout_top_p": 0.9},
        "use_score_centering",
        "note",
        "ids that top-p kept, which is exact",
    ),
    ("slime", {"use_tis": True, "rollout_top_p": 0.9}, "rollout_top_p", "note", "as `support`"),
    ("slime", MIS | {"tis_mode": "clip", "tis_lower_bound": None}, "tis_lower_bound", "note", "null means"),
    ("slime", MIS | {"use_rs": True}, "rs_veto_threshold", "note", "low side"),
    ("slime", MIS | {"tis_level": "sequence"}, "tis_level", "surprise", "product"),
    ("slime", {"advantage_estimator": "grpo"}, "n_samples_per_prompt", "surprise", "one group"),
    ("slime", {"calculate_per_token_loss": True}, "calculate_per_token_loss", "note", "one token"),
    ("slime", {"advantage_estimator": "grpo", "kl_coef": 0.1}, "kl_coef", "surprise", "no effect"),
    ("slime", {"advantage_estimator": "ppo"}, "advantage_estimator", "surprise", "masked positions"),
    (
        "slime",
        {"advantage_estimator": "ppo", "context_parallel_size": 2},
        "advantage_estimator",
        "note",
        "(2 · context_parallel_size)² tokens",
    ),
    ("slime", {**MIS, "tis_mode": "clip"}, "custom_tis_function_path", "note", "read as the recipe"),
    (
        "slime",
        {**MIS, "tis_mode": "clip", "eps_clip": 0.2},
        "custom_tis_function_path",
        "defect",
        "reads no key of the mis recipe",
    ),
    (
        "slime",
        {"get_mismatch_metrics": True, "custom_tis_function_path": "slime.x.icepop_function"},
        "get_mismatch_metrics",
        "surprise",
        "weighed though use_tis is off",
    ),
    ("slime", {"advantage_estimator": "reinforce_plus_plus"}, "normalize_advantages", "note", "whitened"),
]
F: dict[str, Any] = {"use_importance_sampling_correction": True}
NEMO: list[Row] = [
    (
        "nemo-rl",
        {"loss_fn.ratio_clip_min": 0.2, "policy": {"logprob_estimation": {"type": "coupled_grpo", "mask_token_id": 3}}},
        "logprob_estimation",
        "note",
        "compares two estimates",
    ),
    (
        "nemo-rl",
        {"loss_fn.ratio_clip_min": 0.2, "policy": {"logprob_estimation": {"type": "espo_block_aware"}}},
        "logprob_estimation",
        "note",
        "one number for each answer",
    ),
    (
        "nemo-rl",
        {"loss_fn.ratio_clip_min": 0.2, "policy": {"worker_cls_fqn": "mine.workers.OwnPolicyWorker"}},
        "worker_cls_fqn",
        "note",
        "takes the place of the policy's worker",
    ),
    ("nemo-rl", F | {f"{T}_type": "tis", f"{T}_ratio": 2.0}, f"{T}_ratio", "surprise", "overflows"),
    (
        "nemo-rl",
        F | {f"{T}_type": "seq-mask-tis", f"{T}_ratio": 1.01, f"{T}_ratio_min": 0.99},
        f"{T}_type",
        "surprise",
        "in spite of its name",
    ),
    ("nemo-rl", F, "use_importance_sampling_correction", "note", "unbounded"),
    ("nemo-rl", {"reference_policy_kl_penalty": 0.1}, "reference_policy_kl_penalty", "note", "ours still d"),
    (
        "nemo-rl",
        F | {"sequence_level_importance_ratios": True, "token_level_loss": False},
        "sequence_level_importance_ratios",
        "surprise",
        "product",
    ),
    ("nemo-rl", {"force_on_policy_ratio": True}, "force_on_policy_ratio", "surprise", "ratio to 1"),
    (
        "nemo-rl",
        {"sequence_level_importance_ratios": True, "token_level_loss": False},
        "sequence_level_importance_ratios",
        "note",
        "mean ratio",
    ),
    (
        "nemo-rl",
        {"use_kl_in_reward": True, "reference_policy_kl_penalty": 0.1},
        "reference_policy_kl_penalty",
        "note",
        "not in the loss",
    ),
]
FILTER = {"enabled": True}
ROLL: list[Row] = [
    (
        "roll",
        {"train_infer_correction": {"filters": [FILTER]}, "enable_old_logprobs_recompute": True},
        "enable_old_logprobs_recompute",
        "surprise",
        "what is left",
    ),
    ("roll", {"is_weight": {"enabled": True, "weight_type": "sequence"}}, "weight_type", "surprise", "product"),
    ("roll", {"filters": [FILTER, FILTER]}, "filters", "note", "base mask"),
    (
        "prime-rl",
        {"orchestrator.algo.type": "echo", "trainer.loss.type": "ipo"},
        "type",
        "surprise",
        "a component of its own",
    ),
    ("prime-rl", {"orchestrator.algo.type": "opd"}, "type", "surprise", "passes trainer.loss by"),
    ("verl", {"actor_rollout_ref.actor.policy_loss.loss_mode": "bapo"}, "loss_mode", "note", "authors' recipe"),
    ("verl", {"adv_estimator": "optimal_token_baseline"}, "adv_estimator", "note", "as `squares`"),
    ("verl", {"adv_estimator": "optimal_token_baseline"}, "adv_estimator", "surprise", "untrained tokens counted"),
    ("ms-swift", {"advantage_estimator": "grpo", "teacher_model": "t"}, "teacher_model", "note", "log-ratio"),
    ("ms-swift", {"advantage_estimator": "grpo", "teacher_model": "TEACHER"}, "teacher_model", "note", "put its path"),
    ("roll", {"exp_name": "x", "train_infer_correction": {"filters": [FILTER]}}, "init_kl_coef", "surprise", "is 0.2"),
    ("roll", {"loss_agg_mode": "seq-mean-token-sum-norm"}, "loss_agg_mode", "defect", "grows"),
    (
        "roll",
        {"pg_clip": 0.2, "actor_train": {"worker_cls": "mine.Worker"}},
        "worker_cls",
        "surprise",
        "whose loss is read",
    ),
    (
        "roll",
        {
            "pretrain": "m",
            "actor_train": {"pg_variant": "tis", "worker_cls": "roll.pipeline.rlvr.actor_worker.ActorWorker"},
        },
        "pg_variant",
        "surprise",
        "trains with PPO's clip",
    ),
    ("roll", {"dual_clip_loss": True}, "dual_clip_loss", "surprise", "cannot be set"),
    ("roll", {"pg_clip": 0.2, "max_len_mask": True}, "max_len_mask", "note", "fill the width leave the loss mask"),
    (
        "roll",
        {"pg_clip": 0.2, "difficulty_mask": True, "difficulty_low_threshold": 0.1, "difficulty_high_threshold": 0.95},
        "difficulty_mask",
        "note",
        "between 0.1 and 0.95 leave",
    ),
    ("roll", {"pg_clip": 0.2, "error_max_len_clip": True}, "error_max_len_clip", "note", "Wrong answers"),
    ("roll", {"actor_train": {"pg_variant": "cispo", "cispo_epsilon_low": 0.2}}, "pg_variant", "defect", "always hold"),
    ("roll", {"adv_estimator": "gae"}, "adv_estimator", "surprise", "critic values"),
    ("roll", {"exp_name": "x", "adv_estimator": "grpo"}, "adv_estimator", "defect", "NaN"),
    ("roll", {"add_token_level_kl": True, "target_kl": 0.1}, "target_kl", "note", "starts"),
    ("roll", {"entropy_loss_coef": 0.1}, "entropy_loss_coef", "note", "keeps the tokens"),
]
PRIME: list[Row] = [
    ("prime-rl", {"type": "custom"}, "type", "note", "of your own"),
    (
        "prime-rl",
        {"type": "ipo", "orchestrator": {"train": {"sampling": {"top_p": 0.95}}}},
        "top_p",
        "note",
        "at most top_k of them",
    ),
    ("prime-rl", {"orchestrator": {"algo": {"type": "grpo"}}}, "type", "surprise", "No loss is named"),
    ("prime-rl", {"type": "icepop", "kl_tau": 0.1}, "kl_tau", "surprise", "has no penalty"),
    ("prime-rl", {"type": "ppo"}, "type", "surprise", "to the sampler"),
    ("prime-rl", {"type": "ipo", "score_centering": True}, "score_centering", "note", "over the sampling mask"),
    ("prime-rl", {"eps": 0.2}, "max_importance_ratio", "note", "ours goes on"),
    ("prime-rl", {"max_importance_ratio": 8.0}, "max_importance_ratio", "surprise", "gradient of CISPO"),
    ("prime-rl", {"dppo_mask_low": 0.1}, "type", "note", "up to 559b4477"),
    ("slime", {"kl_loss_coef": 0.01, "eps_clip": 0.2}, "kl_loss_coef", "surprise", "no effect without --use-kl-loss"),
    ("prime-rl", {"type": "default"}, "type", "note", "advantage 0"),
    ("prime-rl", {"type": "default"}, "kl_tau", "note", "no ½"),
    ("prime-rl", {"token_mask_high": 4.0}, "ratio_type", "note", "02bdca2e4"),
    ("prime-rl", {"ratio_type": "sequence"}, "ratio_type", "surprise", "its own length"),
    ("prime-rl", {"orchestrator": {"algo": {"type": "grpo"}}}, "type", "note", "never divided by a deviation"),
]
OI = "advantage_normalization_type"
OPEN_INSTRUCT: list[Row] = [
    (
        "open-instruct",
        {"beta": 0.0, "non_stop_penalty": True, "non_stop_penalty_value": -1.0},
        "non_stop_penalty",
        "note",
        "get the reward -1.0",
    ),
    ("open-instruct", {"rho_mask_upper_bound": 2.0}, "rho_mask_upper_bound", "note", "stay in the denominator"),
    ("open-instruct", {"rho_mask_sequence_level": True}, "rho_mask_sequence_level", "note", "geometric mean"),
    (
        "open-instruct",
        {"rho_mask_tv_divergence": True, "rho_mask_lower_bound": 0.1},
        "rho_mask_lower_bound",
        "surprise",
        "close to on-policy",
    ),
    ("open-instruct", {"use_vllm_logprobs": True}, "use_vllm_logprobs", "note", "exclude"),
    ("open-instruct", {"exp_name": "x", "beta": 0.1}, "use_rho_correction", "surprise", "today's default holds"),
    ("open-instruct", {"exp_name": "x", "kl_estimator": "kl3"}, "kl_estimator", "note", "became 0 to 3"),
    ("open-instruct", {"tis_mask_upper": 2.0}, f"{T}_ratio_cap", "note", "became"),
    ("open-instruct", {"loss_fn": "cispo"}, "clip_higher", "surprise", "clip_lower is not read"),
    (
        "open-instruct",
        {"beta": 0.1, "mask_truncated_completions": True},
        "mask_truncated_completions",
        "note",
        "still vote",
    ),
    ("open-instruct", {OI: "standard"}, OI, "note", "biased"),
    ("open-instruct", {OI: "max_rl"}, OI, "note", "flips signs"),
    ("open-instruct", {"loss_fn": "dapo"}, "beta", "note", "By default"),
]
NOT_MILES = ("use_score_centering", "rollout_top_p")
MILES: list[Row] = [
    *(("miles", settings, key, level, words) for _, settings, key, level, words in SLIME if key not in NOT_MILES),
    ("miles", {"use_tis": True, "rollout_top_p": 0.9}, "rollout_top_p", "surprise", "do not replay what top-p kept"),
    ("miles", {"use_rs": True, "use_tis": False}, "use_rs", "surprise", "use_tis on"),
    ("miles", {"use_tis": True, "tis_batch_normalize": True}, "tis_batch_normalize", "surprise", "one micro-batch"),
    (
        "miles",
        {"use_tis": True, "tis_batch_normalize": True, "tis_level": "sequence"},
        "tis_batch_normalize",
        "surprise",
        "empty sequence",
    ),
    ("miles", {"use_opsm": True}, "opsm_delta", "surprise", "current with proximal"),
    ("miles", {"kl_loss_coef": 0.01, "eps_clip": 0.2}, "kl_loss_coef", "surprise", "no effect without --use-kl-loss"),
    (
        "miles",
        {"use_tis": True, "partial_rollout": True, "mask_offpolicy_in_partial_rollout": True},
        "mask_offpolicy_in_partial_rollout",
        "note",
        "earlier weights drew",
    ),
    (
        "miles",
        {"use_tis": True, "mask_offpolicy_in_partial_rollout": True},
        "mask_offpolicy_in_partial_rollout",
        "surprise",
        "no effect without --partial-rollout",
    ),
    (
        "miles",
        {"use_tis": True, "recompute_logprobs_via_prefill": True},
        "recompute_logprobs_via_prefill",
        "note",
        "a second pass",
    ),
    ("miles", {"use_tis": True, "skip_actor_forward_only": True}, "skip_actor_forward_only", "note", "as proximal"),
    ("miles", {"eps_clip_c": 3.0}, "eps_clip_c", "surprise", "never uses it"),
    (
        "miles",
        {"advantage_estimator": "ppo", "context_parallel_size": 2, "qkv_format": "bshd"},
        "advantage_estimator",
        "defect",
        "use thd",
    ),
    ("miles", {"use_tis": True, "tis_mode": "mask"}, "use_rs", "surprise", "that rejection left"),
]
ASYNC: dict[str, Any] = {"max_steps_off_policy": 3, "groups_per_batch": 64}
BOUNDS: dict[str, Any] = {"loss_fn_config": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}}
TINKER: list[Row] = [
    ("tinker", {"loss_fn": "cispo", **BOUNDS}, "loss_fn", "surprise", "sums over the tokens"),
    ("tinker", {"loss_fn": "ppo"}, "loss_fn", "surprise", "ratio to the sampler, not"),
    ("tinker", {"loss_fn": "importance_sampling"}, "loss_fn", "surprise", "most of a step"),
    ("tinker", {"loss_fn": "ppo", **BOUNDS}, "clip_low_threshold", "note", "the ratio itself"),
    ("tinker", {"loss_fn": "importance_sampling", **BOUNDS}, "clip_low_threshold", "surprise", "has no clipping"),
    ("tinker", {"loss_fn": "ppo", "loss_fn_config": {"beta": 0.1}}, "beta", "surprise", "a key of dro"),
    ("tinker", {"loss_fn": "dro", "loss_fn_config": {"beta": 0.1}}, "loss_fn", "defect", "takes the mask away"),
    ("tinker", {"loss_fn": "gspo", **BOUNDS}, "loss_fn", "note", "sequence_ratio_mask"),
    ("tinker", {"loss_fn": "cross_entropy", "group_size": 8}, "kl_penalty_coef", "note", "a group of one gets 0"),
    (
        "tinker",
        {"loss_fn": "importance_sampling", "async_config": {**ASYNC, "loss_fn": "ppo"}},
        "loss_fn",
        "surprise",
        "this loss_fn has no effect",
    ),
    ("tinker", {"async_config": {**ASYNC, "loss_fn": "cispo"}, **BOUNDS}, "loss_fn", "surprise", "itself warns"),
    (
        "tinker",
        {"group_size": 8, "async_config": ASYNC, "kl_penalty_coef": 0.0},
        "max_steps_off_policy",
        "surprise",
        "never discarded",
    ),
]
G = "agentic_grpo_config"
TUNIX: list[Row] = [
    ("tunix", {G: {"epsilon": 0.2}}, "use_rollout_logps", "surprise", "use up the clip"),
    ("tunix", {"sampler_is": "token", "use_rollout_logps": False}, "sampler_is", "surprise", "no effect"),
    ("tunix", {"sampler_is": "token"}, "sampler_is", "note", "small weights"),
    ("tunix", {G: {"sampler_is": "token"}}, "training_mode", "surprise", "does not read"),
    ("tunix", {"grpo_config": {"epsilon": 0.2}}, "num_iterations", "surprise", "the ratio is 1"),
    ("tunix", {"grpo_config": {"beta": 0.1}}, "kl_loss_mode", "surprise", "pulls nowhere"),
    ("tunix", {"loss_agg_mode": "sequence-mean-token-sum-norm"}, "loss_agg_mode", "surprise", "not by a norm"),
    ("tunix", {"loss_agg_mode": "token-mean"}, "loss_agg_mode", "note", "how the batch is split"),
    ("tunix", {"degenerate_group_masking": True}, "degenerate_group_masking", "note", "pass them masked"),
    ("tunix", {"loss_algo": "gspo-token", "beta": 0.0}, "loss_algo", "note", "before the mean"),
    ("tunix", {"grpo_config": {"algo_variant": "dapo", "beta": 0.0}}, "algo_variant", "surprise", "changes nothing"),
    ("tunix", {"ppo_config": {"epsilon": 0.2}}, "policy_loss_fn", "defect", "whole numbers: 0.7"),
    ("tunix", {"ppo_config": {"beta": 0.2, "gamma": 1.0}}, "kl_method", "note", "in the rewards"),
]
ROWS = [
    *VERL,
    *AREAL,
    *SKYRL,
    *TRL,
    *OPENRLHF,
    *SWIFT,
    *SLIME,
    *NEMO,
    *ROLL,
    *PRIME,
    *OPEN_INSTRUCT,
    *MILES,
    *TINKER,
    *TUNIX,
]


@pytest.mark.parametrize(("framework", "settings", "key", "level", "words"), ROWS)
def test_settings_set_off_the_remark_about_them(
    framework: str, settings: dict[str, Any], key: str, level: str, words: str
) -> None:
    found = [each for each in read(framework, settings).findings if words in each.text]
    assert [(each.level, each.key.rpartition(".")[2]) for each in found] == [(level, key)], found


@pytest.mark.parametrize("name", DIALECTS)
def test_every_remark_is_set_off_by_some_settings_and_not_by_all(name: str) -> None:
    remarks = DIALECTS[name].remarks
    asked = [
        look_up(DIALECTS[name], flat_settings(settings)) for each, settings, *_ in [*FINDINGS, *ROWS] if each == name
    ]
    for remark in remarks:
        said = [remark.when(one) for one in asked]
        assert any(said), f"never: {remark.key}: {remark.text}"
        assert not all(said), f"always: {remark.key}: {remark.text}"


def refusal(name: str, settings: Mapping[str, Any]) -> str:
    """Why a part is refused, whether the others are read beside it or nothing is left."""
    try:
        refused = read(name, settings).refused
    except ConfigError as error:
        return str(error)
    assert refused, settings
    return refused[0].text


@pytest.mark.parametrize(
    ("name", "option"), [(name, option) for name, examples in EXAMPLES.items() for option in examples.refused]
)
def test_what_cannot_be_said_is_refused_and_named(name: str, option: str) -> None:
    message = refusal(name, EXAMPLES[name].refused[option])
    named = option.replace(":", " ").split()[0].rpartition(".")[2]
    assert named in message.replace("-", "_") or named in ("a", "rho", "RLOOConfig"), message
    assert message.endswith((".", "?")), message
    assert DIALECTS[name].title in message


def test_the_lists_of_what_is_not_read_cover_every_framework() -> None:
    for dialect in DIALECTS.values():
        examples = EXAMPLES[dialect.name]
        assert examples.refused
        assert examples.passed
        known = {key.label for key in dialect.keys}
        for options, _ in examples.passed:
            assert not known & {each.strip() for each in options.split(",")}, (dialect.name, options)


def test_a_remark_names_no_bound_that_an_earlier_spelling_has_replaced() -> None:
    """vllm_importance_sampling_cap was clip_max; the default of clip_max is 3.0, and not in force where cap says 2."""
    read_as = read("trl", {f"{V}_correction": True, f"{V}_mode": "sequence_truncate", f"{V}_cap": 2.0})
    assert read_as.correction is not None
    assert read_as.correction.weight.upper == 2.0
    (product,) = [each.text for each in read_as.findings if "product over the tokens" in each.text]
    assert "3" not in product
