"""What there is to say about ms-swift: each finding as data."""

from __future__ import annotations

from trimtab.dialects.framework import Remark
from trimtab.dialects.swift.keys import TEACHER, P
from trimtab.dialects.swift.loss import pays_kl_in_reward
from trimtab.dialects.trl.loss import caps_below_the_clip

REMARKS = (
    Remark(
        f"{P}_mode",
        "surprise",
        "The weight multiplies the KL term too, so beta acts less where the ratio is small; no other framework does this.",
        lambda given: given.is_on(f"{P}_mode") and bool(given["beta"]) and not pays_kl_in_reward(given),
        source="rlhf_trainers/grpo_trainer.py:1067 GRPOTrainer._compute_loss_and_metrics",
    ),
    Remark(
        f"{P}_mode",
        "surprise",
        "sequence_mask tests the geometric mean and lets survivors keep their own token ratios, unbounded; TRL's option of the "
        "same name tests and weighs by the product.",
        lambda given: given[f"{P}_mode"] == "sequence_mask",
        source="rlhf_trainers/grpo_trainer.py:2386 GRPOTrainer._apply_rollout_importance_sampling",
    ),
    Remark(
        f"{P}_mode",
        "surprise",
        "sequence_truncate caps the geometric mean at {"
        + P
        + "_threshold}; TRL's option of the same name caps the product.",
        lambda given: given[f"{P}_mode"] == "sequence_truncate",
        source="rlhf_trainers/grpo_trainer.py:2381 GRPOTrainer._apply_rollout_importance_sampling",
    ),
    Remark(
        f"{P}_threshold",
        "note",
        "There is no lower bound: a token whose ratio fell to 0 is kept.",
        lambda given: given.is_on(f"{P}_mode"),
    ),
    Remark(
        "off_policy_sequence_mask_delta",
        "surprise",
        "Masked sequences leave the mask, so their KL term and, with loss_type bnpo, their place in the denominator go too; TRL "
        "multiplies the policy term only.",
        lambda given: given.is_on("off_policy_sequence_mask_delta"),
        source="rlhf_trainers/grpo_trainer.py:1080 GRPOTrainer._compute_loss_and_metrics",
    ),
    Remark(
        "log_rollout_offpolicy_metrics",
        "note",
        "chi2_seq is computed from the geometric mean, not the product, and ess counts masked tokens as 1/threshold.",
        lambda given: given.is_on("log_rollout_offpolicy_metrics"),
    ),
    Remark(
        "beta",
        "note",
        "Left out, beta is {beta}: a KL term is paid; write beta down to read it.",
        lambda given: (given.speaks_of("loss") or given.whole) and not given.has("beta"),
    ),
    Remark(
        "kl_in_reward",
        "note",
        "With {advantage_estimator} the KL is paid in the reward by default, before the baseline, and not in the loss.",
        lambda given: given["advantage_estimator"] != "grpo" and given["kl_in_reward"] is None,
    ),
    Remark(
        "overlong_filter",
        "note",
        "Truncated answers leave the mask before the correction under transformers and after it under Megatron; pass their rows masked.",
        lambda given: bool(given["overlong_filter"]),
    ),
    Remark(
        "epsilon_high",
        "surprise",
        "With cispo epsilon_high {epsilon_high} bounds the ratio itself; verl, slime, NeMo-RL and ROLL mean 1 + epsilon_high.",
        lambda given: given["loss_type"] == "cispo",
        source="rlhf_trainers/grpo_trainer.py:1037 GRPOTrainer._compute_loss_and_metrics",
    ),
    Remark(
        "loss_type",
        "surprise",
        "bnpo divides by the tokens of one micro-batch here and by those of the global batch under Megatron.",
        lambda given: given["loss_type"] == "bnpo",
        source="rlhf_trainers/grpo_trainer.py:1085 GRPOTrainer._compute_loss_and_metrics",
    ),
    Remark(
        "delta",
        "surprise",
        "delta {delta} is below the clip's upper bound, and caps the ratio where the advantage is positive too; dual clip elsewhere acts "
        "where it is negative.",
        caps_below_the_clip,
        source="rlhf_trainers/grpo_trainer.py:1054 GRPOTrainer._compute_loss_and_metrics",
    ),
    Remark(
        "teacher_model",
        "note",
        "Each token's advantage gets teacher_kl_coef ({teacher_kl_coef}) times the teacher's log-ratio to the trainer's log-probs before "
        "the step, on top of what was normalised.",
        lambda given: bool(given["teacher_model"] or given["teacher_model_server"]),
    ),
    Remark(
        "teacher_model",
        "note",
        "TEACHER stands for a teacher these settings do not know; put its path there.",
        lambda given: given["teacher_model"] == TEACHER,
    ),
)
