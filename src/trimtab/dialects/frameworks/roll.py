"""ROLL: its keys and what is surprising about it. What it computes is in `roll_rules`."""

from __future__ import annotations

import re
from typing import Any

from trimtab.dialects.framework import Dialect, Given, Key, defect, remark, surprise
from trimtab.dialects.frameworks.roll_rules import (
    LEVELS,
    LOSSES,
    NORM,
    REDUCTIONS,
    SECTION,
    advantage_of,
    candidates,
    correction_of,
    filters,
    has_environments,
    loss_of,
    norm_types,
    recomputes,
    uses_variant,
)
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import UNSAID, choice, flag, number, raw, text, unsaid_or

LEVEL = choice("batch", "group", "running")
INERT: dict[str, Any] = {
    "cispo_epsilon_low": 0.1,
    "cispo_epsilon_high": 0.1,
    "cispo_use_unified_mask": 0.0,
    "tis_lower_bound": 0.0,
    "tis_upper_bound": 1.0,
    "kimi15_tau": 0.1,
}
"""Settings of pg_variant that are looked up in a dataclass without them, and the values that hold whatever is written."""
KEYS = (
    Key(f"{SECTION}.is_weight.enabled", flag, False),
    Key(f"{SECTION}.is_weight.weight_type", choice(*LEVELS), "token"),
    Key(f"{SECTION}.is_weight.upper_bound", number, 1.2, null="open"),
    Key(f"{SECTION}.is_weight.detach", flag, True),
    Key(f"{SECTION}.filters", raw),
    Key("enable_old_logprobs_recompute", flag, False),
    Key("force_disable_old_logprobs_recompute", flag, False),
    Key("num_return_sequences_in_group", number, part="other", also=("train_env_manager.group_size",)),
    Key("loss_agg_mode", text, "seq-mean-token-mean", part="loss",
        options=(*unsaid_or(REDUCTIONS), "seq-mean-token-sum-norm")),
    Key("pg_clip", number, 0.2, part="loss", field="loss.low"),
    Key("use_pg_clip_range", flag, False, part="loss", frees=True),
    Key("pg_clip_low", number, 0.2, part="loss", field="loss.low"),
    Key("pg_clip_high", number, 0.2, part="loss", field="loss.high"),
    Key("dual_clip_loss", flag, False, part="loss"),
    Key("importance_sampling", choice("token", "seq"), "token", part="loss"),
    Key("ratio_type", choice("token", "segment"), "token", part="loss"),
    Key("actor_train.pg_variant", text, part="loss", options=unsaid_or(LOSSES),
        joint=("importance_sampling", "ratio_type")),
    Key("use_kl_loss", flag, False, part="loss"),
    Key("kl_loss_coef", number, 0.0, part="loss"),
    Key("entropy_loss_coef", number, 0.0, part="loss"),
    Key("rl_loss_coef", number, 1.0, part="loss", field="advantage_scale"),
    Key("postive_loss_coef", number, 0.0, part="loss"),
    Key("use_topr_neg_loss_coef", number, 0.0, part="loss"),
    Key("difficulty_loss_weight", flag, False, part="loss"),
    Key("length_loss_weight", flag, False, part="loss"),
    Key("actor_train.topr_positive_weight", number, 1.0, part="loss", field="loss.positive"),
    Key("actor_train.topr_negative_weight", number, 1.0, part="loss", field="loss.negative"),
    *(Key(f"actor_train.{name}", number, part="other") for name in INERT),
    Key("actor_train.worker_cls", text, part="other"),
    Key("sequence_length", number, part="other", seed=1025.0),
    Key("max_len_mask", flag, False, part="other"),
    Key("difficulty_mask", flag, False, part="other"),
    Key("difficulty_low_threshold", number, 0.0, part="other"),
    Key("difficulty_high_threshold", number, 1.0, part="other"),
    Key("error_max_len_clip", flag, False, part="other"),
    Key("adv_estimator", text, "gae", part="advantage", options=(UNSAID, "gae", "reinforce", "grpo"),
        joint=("norm_mean_type", "norm_std_type")),
    Key("gamma", number, 1.0, part="advantage"),
    Key("lambd", number, 0.95, part="advantage"),
    Key("norm_mean_type", LEVEL, part="advantage"),
    Key("norm_std_type", LEVEL, part="advantage"),
    *(
        Key(f"{NORM}.{name}", kind, default, part="advantage", name=f"{NORM}.{name}")
        for name, kind, default in (
            ("grouping", text, "state"),
            ("method", text, "identity"),
            ("norm_mean_type", choice("batch", "group"), None),
            ("norm_std_type", choice("batch", "group"), None),
        )
    ),
    Key("reward_clip", number, part="advantage"),
    Key("whiten_rewards", flag, False, part="advantage"),
    Key("whiten_advantages", flag, False, part="advantage"),
    Key("advantage_clip", number, part="advantage", field="advantage_clip"),
    Key("use_reward_scaling", flag, False, part="advantage"),
    Key("add_len_reward", flag, False, part="advantage"),
    Key("add_token_level_kl", flag, False, part="advantage", joint=("kl_penalty",)),
    Key("init_kl_coef", number, 0.2, part="advantage"),
    Key("kl_penalty", choice("kl", "abs", "mse", "k3", "full"), "kl", part="advantage"),
    Key("target_kl", number, part="advantage"),
)  # fmt: skip


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────

WORKERS = r"roll\.pipeline\.(base_worker|(rlvr|agentic)\.(agentic_)?actor_(pg_)?worker)\.\w+"
"""The classes of the trained policy whose loss is read."""


def _has_own_worker(given: Given) -> bool:
    named = given.value_of("actor_train.worker_cls", None)
    return isinstance(named, str) and not re.fullmatch(WORKERS, named)


def _is_a_group_of_one(given: Given) -> bool:
    """Whether RLVR divides by the deviation of one answer; the agentic pipelines give 0 there instead."""
    if has_environments(given) or norm_types(given)[1] != "group" or not given.has("adv_estimator", "norm_std_type"):
        return False
    left_out = given["num_return_sequences_in_group"] is None and given.whole and not given.builds_on_others
    return given["num_return_sequences_in_group"] == 1 or left_out


def _acts_unmasked(given: Given) -> bool:
    """Whether anything reaches the loss where the mask is 0: advantages and the KL are 0 there, unless filters came after them."""
    unmasked = given["entropy_loss_coef"] > 0 or (given["pg_variant"] == "kimi15" and uses_variant(given))
    return bool(filters(given)) or unmasked


MASKED = "leave the loss mask and the whitening, after they voted in the group's baseline; pass their rows masked."
REMARKS = (
    surprise("worker_cls", _has_own_worker,
        "This is none of the workers whose loss is read here; a loss that it puts in their place is not in this "
        "reading.",
        source="roll/configs/worker_config.py:93 WorkerConfig"),
    surprise("pg_variant", lambda g: g["pg_variant"] not in (None, "ppo") and not uses_variant(g),
        "pg_variant {pg_variant} is read by actor_pg_worker only, and this worker trains with PPO's clip; name "
        "actor_pg_worker as actor_train.worker_cls.",
        source="roll/pipeline/rlvr/actor_worker.py:86 ActorWorker.loss_func"),
    surprise("enable_old_logprobs_recompute", lambda g: recomputes(g) and bool(filters(g)),
        "With recomputed log-probs the filters run in the pipeline and the loss divides by what is left; without, by "
        "the tokens before.",
        source="roll/pipeline/rlvr/rlvr_pipeline.py:762 RLVRPipeline.run"),
    surprise("init_kl_coef",
        lambda g: (g.whole and bool(filters(g))
            and not g.has("init_kl_coef", "force_disable_old_logprobs_recompute", "enable_old_logprobs_recompute")),
        "By default init_kl_coef is 0.2, which switches enable_old_logprobs_recompute on, and then the loss divides "
        "by what the filters left; read here as off; write it down.",
        source="roll/configs/base_config.py:701 PPOConfig.set_old_logprobs_status"),
    surprise("weight_type", lambda g: g["enabled"] and g["weight_type"] == "sequence",
        "`sequence` is the product over the tokens; the geometric mean, which others call sequence, is `geometric` "
        "here.",
        source="roll/utils/train_infer_corrections.py:28 _compute_all_granularity"),
    remark("filters", lambda g: len(filters(g)) > 1,
        "Every filter is judged on the base mask; SkyRL judges each on what the one before left."),
    defect("loss_agg_mode", lambda g: g["loss_agg_mode"] == "token-mean" and _acts_unmasked(g),
        "token-mean ignores the loss mask: the filters remove nothing from the policy loss, and padding counts in "
        "the entropy and in kimi15's square; use seq-mean-token-mean.",
        source="roll/utils/functionals.py:253-256 agg_loss"),
    defect("loss_agg_mode", lambda g: g["loss_agg_mode"] == "seq-mean-token-sum-norm",
        "seq-mean-token-sum-norm is divided by the width and not by the number of sequences, so the step grows with "
        "the batch; use seq-mean-token-mean.",
        source="roll/utils/functionals.py:269-274 agg_loss"),
    remark("max_len_mask", lambda g: bool(g["max_len_mask"]),
        f"Answers that fill the width {MASKED}"),
    remark("difficulty_mask", lambda g: bool(g["difficulty_mask"]),
        "Prompts whose mean score is not between {difficulty_low_threshold} and {difficulty_high_threshold} " + MASKED),
    remark("error_max_len_clip", lambda g: bool(g["error_max_len_clip"]),
        f"Wrong answers beyond error_max_len_threshold tokens {MASKED}"),
    surprise("dual_clip_loss", lambda g: bool(g["dual_clip_loss"]),
        "The dual clip is 1 + 2·pg_clip ({pg_clip}) and cannot be set; others use 3.",
        source="roll/pipeline/rlvr/actor_worker.py:86 ActorWorker.loss_func"),
    defect("pg_variant", lambda g: any(g.has(name) and g[name] != held for name, held in INERT.items()),
        "The cispo_*, tis_* and kimi15_tau settings are looked up in a dataclass without them, so their defaults "
        "always hold; drop them.",
        source="roll/pipeline/rlvr/actor_pg_worker.py:23 _get_or_cache_config"),
    surprise("adv_estimator", lambda g: g["adv_estimator"] == "gae" and g.has("adv_estimator"),
        "gae reads critic values at masked positions, also between turns; zero them to get our numbers, as RLVR "
        "itself does in later commits (090ac94).",
        source="roll/utils/functionals.py:530 compute_gae_advantage_return"),
    defect("adv_estimator", _is_a_group_of_one,
        "The deviation of a group of one is NaN, and so is everything after it; sample at least two answers. Ours "
        "gives 0.",
        source="roll/utils/functionals.py:586 reward_norm"),
    remark("target_kl", lambda g: g.is_on("target_kl") and bool(g["add_token_level_kl"]),
        "With target_kl the coefficient follows the measured KL; init_kl_coef is only where it starts."),
    remark("entropy_loss_coef", lambda g: g["entropy_loss_coef"] > 0,
        "The entropy term keeps the tokens that the filters rejected; the KL term does not."),
)  # fmt: skip


DIALECT = Dialect(
    SIGNATURES["roll"],
    version="8eb27cc2",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    closed=(SECTION, f"{SECTION}.is_weight"),
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
)
