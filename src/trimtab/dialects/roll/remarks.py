"""What there is to say about ROLL: each finding as data."""

from __future__ import annotations

import re

from trimtab.dialects.dialect import Given, Remark
from trimtab.dialects.roll.correction import filters, recomputes
from trimtab.dialects.roll.keys import KEYS

INERT = tuple(
    key.label for key in KEYS if key.path.startswith("actor_train.") and key.label not in ("pg_variant", "worker_cls")
)
"""Keys that are looked up in a dataclass without them, so that their defaults always hold."""
WORKERS = r"roll\.pipeline\.(base_worker|(rlvr|agentic)\.(agentic_)?actor_(pg_)?worker)\.\w+"
"""The classes of the trained policy whose loss is read."""


def _has_own_worker(given: Given) -> bool:
    named = given.value_of("actor_train.worker_cls", None)
    return isinstance(named, str) and not re.fullmatch(WORKERS, named)


MASKED = "leave the loss mask and the whitening, after they voted in the group's baseline; pass their rows masked."

REMARKS = (
    Remark(
        "worker_cls",
        "surprise",
        "This is none of the workers whose loss is read here; a loss that it puts in their place is not in this reading.",
        _has_own_worker,
    ),
    Remark(
        "reward_normalization.method",
        "surprise",
        "The agentic pipelines normalise their rewards by this section; it is not read here, so that baseline is not in this reading.",
        lambda given: given.has_section("reward_normalization"),
    ),
    Remark(
        "enable_old_logprobs_recompute",
        "surprise",
        "With recomputed log-probs the filters run in the pipeline and the loss divides by what is left; without, by the tokens "
        "before.",
        lambda given: recomputes(given) and bool(filters(given)),
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
    ),
    Remark(
        "weight_type",
        "surprise",
        "`sequence` is the product over the tokens; the geometric mean, which others call sequence, is `geometric` here.",
        lambda given: given["enabled"] and given["weight_type"] == "sequence",
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
        "token-mean ignores the loss mask, so the filters remove nothing from the policy loss and padding counts in the entropy; use "
        "seq-mean-token-mean.",
        lambda given: given["loss_agg_mode"] == "token-mean",
    ),
    Remark(
        "loss_agg_mode",
        "defect",
        "seq-mean-token-sum-norm is divided by the width and not by the number of sequences, so the step grows with the batch; use "
        "seq-mean-token-mean.",
        lambda given: given["loss_agg_mode"] == "seq-mean-token-sum-norm",
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
    ),
    Remark(
        "pg_variant",
        "defect",
        "The cispo_*, tis_*, topr_* and kimi15_tau settings are looked up in a dataclass without them, so their defaults always hold; "
        "drop them.",
        lambda given: given.has(*INERT),
    ),
    Remark(
        "adv_estimator",
        "surprise",
        "gae reads critic values at masked positions, also between turns; zero them to get our numbers.",
        lambda given: given["adv_estimator"] == "gae" and given.has("adv_estimator"),
    ),
    Remark(
        "adv_estimator",
        "defect",
        "The deviation of a group of one is NaN, and so is everything after it; sample at least two answers. Ours gives 0.",
        lambda given: (
            (given["adv_estimator"] == "grpo" or (given["norm_std_type"] == "group" and given.has("norm_std_type")))
            and given["num_return_sequences_in_group"] in (None, 1)
        ),
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
