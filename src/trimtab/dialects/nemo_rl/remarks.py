"""What there is to say about NeMo-RL: each finding as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.nemo_rl.keys import T

LOSS = "nemo_rl/algorithms/loss/loss_functions.py"
CALL = "ClippedPGLossFn.__call__"


def _of_whole_answers(given: Given) -> bool:
    """Whether the estimate is one number for each answer; a file that builds on another may leave the type to it."""
    held = given["logprob_estimation"]
    return isinstance(held, Mapping) and "espo" in str(cast("Mapping[str, Any]", held).get("type", ""))


REMARKS = (
    Remark(
        "logprob_estimation",
        "note",
        "The trainer's log-probs are estimates of a diffusion model's, from passes with masked answers, not those of the next token: "
        "pass them as current, proximal and reference and the formulas here hold, but a ratio to the sampler's compares two estimates.",
        lambda given: given.is_on("logprob_estimation") and not _of_whole_answers(given),
    ),
    Remark(
        "logprob_estimation",
        "note",
        "The trainer's log-probs are one number for each answer, a diffusion model's bound on its log-likelihood over the length: give it "
        "to every token of the answer as current, proximal and reference; ratios of single tokens do not exist here.",
        _of_whole_answers,
    ),
    Remark(
        "worker_cls_fqn",
        "note",
        "This class of its own takes the place of the policy's worker, which computes log-probs and hands them to the loss; what it "
        "changes is not in this reading.",
        lambda given: given.is_on("worker_cls_fqn"),
    ),
    Remark(
        f"{T}_ratio",
        "surprise",
        "A ratio that overflows weighs 0 instead of the cap; bound the log-probs, or use seq_logprob_error_threshold.",
        lambda given: given["use_importance_sampling_correction"] and given[f"{T}_type"] == "tis",
        source=f"{LOSS}:582 {CALL}",
    ),
    Remark(
        f"{T}_type",
        "surprise",
        "seq-mask-tis tests the geometric mean and lets survivors keep their own token ratios, unbounded, in spite of its name.",
        lambda given: given[f"{T}_type"] == "seq-mask-tis" and given["use_importance_sampling_correction"],
        source=f"{LOSS}:637-664 {CALL}",
    ),
    Remark(
        "use_importance_sampling_correction",
        "note",
        "Without a truncation type the weights are unbounded; add {T_} tis with a ratio.".replace("{T_}", f"{T}_type"),
        lambda given: (
            given["use_importance_sampling_correction"] and given[f"{T}_type"] is None and given[f"{T}_ratio"] is None
        ),
    ),
    Remark(
        "seq_logprob_error_threshold",
        "surprise",
        "Rejected sequences leave the denominator, so each one raises the step of the others, while zeroed ratios stay in it; "
        "slime, SkyRL and AReaL count before rejection.",
        lambda given: given.is_on("seq_logprob_error_threshold"),
        source="nemo_rl/algorithms/grpo.py:2513-2640 compute_and_apply_seq_logprob_error_masking",
    ),
    Remark(
        "sequence_level_importance_ratios",
        "surprise",
        "The weight is the product over the sequence; AReaL, ms-swift and OpenRLHF mean the geometric mean by `sequence`.",
        lambda given: given["use_importance_sampling_correction"] and given["sequence_level_importance_ratios"],
        source=f"{LOSS}:570 {CALL}",
    ),
    Remark(
        "use_leave_one_out_baseline",
        "surprise",
        "Mean and deviation are both those of the others: rewards [1, 0, 0, 0] give [1, −0.58, −0.58, −0.58] where GRPO gives "
        "[1.5, −0.5, −0.5, −0.5], and groups of two are never divided.",
        lambda given: (
            given.speaks_of("advantage")
            and given["adv_estimator.name"] in ("grpo", "gdpo")
            and given["use_leave_one_out_baseline"]
            and given["normalize_rewards"]
        ),
        source="nemo_rl/algorithms/utils.py:104 calculate_baseline_and_std_per_prompt",
    ),
    Remark(
        "force_on_policy_ratio",
        "surprise",
        "force_on_policy_ratio sets the PPO ratio to 1, so nothing is ever clipped; pass current as proximal to get the same.",
        lambda given: bool(given["force_on_policy_ratio"]),
        source=f"{LOSS}:520 {CALL}",
    ),
    Remark(
        "sequence_level_importance_ratios",
        "note",
        "GSPO here differentiates the mean ratio and forces a mean per sequence; verl and SkyRL keep each token's own gradient.",
        lambda given: given["sequence_level_importance_ratios"] and given.speaks_of("loss"),
    ),
    Remark(
        "reference_policy_kl_penalty",
        "note",
        "The gradient also runs through the probability of the sample, which makes that of k3 the gradient of the KL, d. Where a clamp "
        "holds d or the estimate NeMo-RL's is 0, ours still d.",
        lambda given: bool(given["reference_policy_kl_penalty"]) and not given["use_kl_in_reward"],
    ),
    Remark(
        "reference_policy_kl_penalty",
        "note",
        "With use_kl_in_reward the KL is paid in the reward and not in the loss, and only reinforce_plus_plus and gae read it there.",
        lambda given: bool(given["use_kl_in_reward"]),
    ),
)
