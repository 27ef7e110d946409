"""What there is to say about TRL: each finding as data."""

from __future__ import annotations

from trimtab.dialects.framework import Remark
from trimtab.dialects.trl.correction import is_weighed, weight_bounds
from trimtab.dialects.trl.keys import MODES, P, is_async, is_rloo
from trimtab.dialects.trl.loss import caps_below_the_clip

REMARKS = (
    Remark(
        f"{P}_mode",
        "surprise",
        "`sequence` bounds the product over the tokens: a hundred tokens at ratio 1.02 make 7.2; AReaL, ms-swift, OpenRLHF and NeMo-RL "
        "test the geometric mean; use token_truncate for long answers.",
        lambda given: is_weighed(given) and MODES[given[f"{P}_mode"]][0] == "sequence",
        source="trainer/grpo_trainer.py:2669 GRPOTrainer._generate_and_score_completions",
    ),
    Remark(
        f"{P}_mode",
        "note",
        "Left out, the mode is sequence_mask, though the documentation names token_truncate; write it down.",
        lambda given: is_weighed(given) and not given.has(f"{P}_mode"),
    ),
    Remark(
        f"{P}_cap",
        "note",
        f"{P}_cap is deprecated; now {P}_clip_max.",
        lambda given: given.has(f"{P}_cap"),
    ),
    Remark(
        f"{P}_clip_max",
        "surprise",
        "Without clip_max the exponential of a summed log-ratio can overflow to infinity; set one.",
        lambda given: (
            is_weighed(given) and weight_bounds(given)[1] is None and MODES[given[f"{P}_mode"]][0] == "sequence"
        ),
        source="trainer/grpo_trainer.py:2674 GRPOTrainer._generate_and_score_completions",
    ),
    Remark(
        f"{P}_mode",
        "note",
        "Masked tokens weigh 0 and stay in the denominator; AReaL, SkyRL and verl take them out of the mask.",
        lambda given: is_weighed(given) and MODES[given[f"{P}_mode"]][1],
    ),
    Remark(
        "off_policy_mask_threshold",
        "note",
        "The sequence mask compares current with behavior and multiplies the policy term only; ms-swift also takes the tokens out "
        "of the mask, slime compares with proximal.",
        lambda given: given.is_on("off_policy_mask_threshold"),
    ),
    Remark(
        "max_staleness",
        "note",
        "AsyncGRPO has two policies: PPO's ratio divides by behavior, nothing bounds it below or above the clip, and samples older than "
        "max_staleness {max_staleness} are dropped.",
        is_async,
    ),
    Remark(
        "epsilon_high",
        "surprise",
        "With cispo epsilon_high {epsilon_high} bounds the ratio itself; verl, slime, NeMo-RL and ROLL mean 1 + epsilon_high.",
        lambda given: given["loss_type"] == "cispo" and given.has("loss_type"),
        source="trainer/grpo_trainer.py:3110 GRPOTrainer._compute_loss",
    ),
    Remark(
        "delta",
        "surprise",
        "delta {delta} is below the clip's upper bound, and caps the ratio where the advantage is positive too; dual clip elsewhere acts "
        "where it is negative.",
        caps_below_the_clip,
        source="trainer/grpo_trainer.py:3116 GRPOTrainer._compute_loss",
    ),
    Remark(
        "use_bias_correction_kl",
        "note",
        "By default the KL term is multiplied by the ratio, differentiated through both.",
        lambda given: given.is_on("beta") and given["use_bias_correction_kl"] and not is_rloo(given),
    ),
    Remark(
        "loss_type",
        "surprise",
        "{loss_type} divides by the tokens of one micro-batch, so the step depends on how the batch is split; dapo divides by those of "
        "the whole batch.",
        lambda given: given.has("loss_type") and given["loss_type"] == "bnpo",
        source="trainer/grpo_trainer.py:3158 GRPOTrainer._compute_loss",
    ),
    Remark(
        "entropy_coef",
        "note",
        "The entropy is a mean over the tokens of one micro-batch under every loss_type; ours is one over the step.",
        lambda given: bool(given["entropy_coef"]),
    ),
    Remark(
        "use_adaptive_entropy",
        "note",
        "entropy_coef {entropy_coef} is only where the coefficient starts: each step moves it by {entropy_coef_delta} within "
        "[{entropy_coef_min}, {entropy_coef_max}], up where the entropy is at most {entropy_target}, and it acts there only. That is not "
        "computed here.",
        lambda given: bool(given["use_adaptive_entropy"]),
    ),
    Remark(
        "mask_truncated_completions",
        "note",
        "Truncated answers leave the mask and its counts but still vote in the baseline; pass their rows masked.",
        lambda given: bool(given["mask_truncated_completions"]),
    ),
    Remark(
        "scale_rewards",
        "note",
        "1e-4 is added to the deviation; verl and SkyRL add 1e-6, OpenRLHF 1e-9.",
        lambda given: given.has("scale_rewards") and given["scale_rewards"] in (True, "group", "batch"),
    ),
)
