"""What there is to say about ROLL: each finding as data."""

from __future__ import annotations

import re

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.roll.advantage import norm_types
from trimtab.dialects.roll.correction import filters, recomputes
from trimtab.dialects.roll.keys import INERT, has_environments, uses_variant

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
    Remark(
        "worker_cls",
        "surprise",
        "This is none of the workers whose loss is read here; a loss that it puts in their place is not in this reading.",
        _has_own_worker,
        source="roll/configs/worker_config.py:93 WorkerConfig",
    ),
    Remark(
        "pg_variant",
        "surprise",
        "pg_variant {pg_variant} is read by actor_pg_worker only, and this worker trains with PPO's clip; name actor_pg_worker as "
        "actor_train.worker_cls.",
        lambda given: given["pg_variant"] not in (None, "ppo") and not uses_variant(given),
        source="roll/pipeline/rlvr/actor_worker.py:86 ActorWorker.loss_func",
    ),
    Remark(
        "enable_old_logprobs_recompute",
        "surprise",
        "With recomputed log-probs the filters run in the pipeline and the loss divides by what is left; without, by the tokens "
        "before.",
        lambda given: recomputes(given) and bool(filters(given)),
        source="roll/pipeline/rlvr/rlvr_pipeline.py:762 RLVRPipeline.run",
    ),
    Remark(
        "init_kl_coef",
        "surprise",
        "Left out, init_kl_coef is 0.2, which switches enable_old_logprobs_recompute on, and then the loss divides by what the filters "
        "left; read here as off; write it down.",
        lambda given: (
            given.whole
            and bool(filters(given))
            and not given.has("init_kl_coef", "force_disable_old_logprobs_recompute", "enable_old_logprobs_recompute")
        ),
        source="roll/configs/base_config.py:701 PPOConfig.set_old_logprobs_status",
    ),
    Remark(
        "weight_type",
        "surprise",
        "`sequence` is the product over the tokens; the geometric mean, which others call sequence, is `geometric` here.",
        lambda given: given["enabled"] and given["weight_type"] == "sequence",
        source="roll/utils/train_infer_corrections.py:28 _compute_all_granularity",
    ),
    Remark(
        "filters",
        "note",
        "Every filter is judged on the base mask; SkyRL judges each on what the one before left.",
        lambda given: len(filters(given)) > 1,
    ),
    Remark(
        "loss_agg_mode",
        "defect",
        "token-mean ignores the loss mask: the filters remove nothing from the policy loss, and padding counts in the entropy and in "
        "kimi15's square; use seq-mean-token-mean.",
        lambda given: given["loss_agg_mode"] == "token-mean" and _acts_unmasked(given),
        source="roll/utils/functionals.py:253-256 agg_loss",
    ),
    Remark(
        "loss_agg_mode",
        "defect",
        "seq-mean-token-sum-norm is divided by the width and not by the number of sequences, so the step grows with the batch; use "
        "seq-mean-token-mean.",
        lambda given: given["loss_agg_mode"] == "seq-mean-token-sum-norm",
        source="roll/utils/functionals.py:269-274 agg_loss",
    ),
    Remark(
        "max_len_mask",
        "note",
        f"Answers that fill the width {MASKED}",
        lambda given: bool(given["max_len_mask"]),
    ),
    Remark(
        "difficulty_mask",
        "note",
        "Prompts whose mean score is not between {difficulty_low_threshold} and {difficulty_high_threshold} " + MASKED,
        lambda given: bool(given["difficulty_mask"]),
    ),
    Remark(
        "error_max_len_clip",
        "note",
        f"Wrong answers beyond error_max_len_threshold tokens {MASKED}",
        lambda given: bool(given["error_max_len_clip"]),
    ),
    Remark(
        "dual_clip_loss",
        "surprise",
        "The dual clip is 1 + 2·pg_clip ({pg_clip}) and cannot be set; others use 3.",
        lambda given: bool(given["dual_clip_loss"]),
        source="roll/pipeline/rlvr/actor_worker.py:86 ActorWorker.loss_func",
    ),
    Remark(
        "pg_variant",
        "defect",
        "The cispo_*, tis_* and kimi15_tau settings are looked up in a dataclass without them, so their defaults always hold; drop "
        "them.",
        lambda given: any(given.has(name) and given[name] != held for name, held in INERT.items()),
        source="roll/pipeline/rlvr/actor_pg_worker.py:23 _get_or_cache_config",
    ),
    Remark(
        "adv_estimator",
        "surprise",
        "gae reads critic values at masked positions, also between turns; zero them to get our numbers, as RLVR itself does in later "
        "commits (090ac94).",
        lambda given: given["adv_estimator"] == "gae" and given.has("adv_estimator"),
        source="roll/utils/functionals.py:530 compute_gae_advantage_return",
    ),
    Remark(
        "adv_estimator",
        "defect",
        "The deviation of a group of one is NaN, and so is everything after it; sample at least two answers. Ours gives 0.",
        _is_a_group_of_one,
        source="roll/utils/functionals.py:586 reward_norm",
    ),
    Remark(
        "target_kl",
        "note",
        "With target_kl the coefficient follows the measured KL; init_kl_coef is only where it starts.",
        lambda given: given.is_on("target_kl") and bool(given["add_token_level_kl"]),
    ),
    Remark(
        "entropy_loss_coef",
        "note",
        "The entropy term keeps the tokens that the filters rejected; the KL term does not.",
        lambda given: given["entropy_loss_coef"] > 0,
    ),
)
