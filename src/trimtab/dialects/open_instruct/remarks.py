"""What there is to say about open-instruct: each finding as data."""

from __future__ import annotations

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.open_instruct.correction import REMOVED, is_early, says_correction


def _masks(given: Given) -> bool:
    """Whether the mask has a bound; 0 is none."""
    return bool(given["rho_mask_upper_bound"] or given["rho_mask_lower_bound"])


REMARKS = (
    Remark(
        "rho_mask_sequence_level",
        "defect",
        "Sequence statistics are taken per packed row and mix the responses in it; pack one response per row, or use token level. "
        "Ours judges each response.",
        lambda given: (
            given["use_rho_correction"]
            and (given["rho_mask_sequence_level"] or (given["rho_mask_tv_divergence"] and _masks(given)))
            and not given.documented
        ),
        source="open_instruct/grpo_utils.py:372 _sequence_level_mean",
    ),
    Remark(
        "rho_mask_sequence_level",
        "note",
        "`sequence` is the geometric mean; verl, TRL, SkyRL and slime mean the product by it.",
        lambda given: given["use_rho_correction"] and given["rho_mask_sequence_level"],
    ),
    Remark(
        "rho_mask_upper_bound",
        "note",
        "Masked tokens weigh 0 and stay in the denominator.",
        lambda given: given["use_rho_correction"] and _masks(given),
    ),
    Remark(
        "rho_mask_lower_bound",
        "surprise",
        "With rho_mask_tv_divergence a lower bound drops tokens of sequences that are close to on-policy; leave it 0.",
        lambda given: (
            given["use_rho_correction"] and given["rho_mask_tv_divergence"] and given["rho_mask_lower_bound"] > 0
        ),
        source="open_instruct/grpo_utils.py:426 compute_rho_correction",
    ),
    Remark(
        "use_vllm_logprobs",
        "note",
        "use_vllm_logprobs and use_rho_correction (on by default) exclude each other; open-instruct stops unless the latter is false.",
        lambda given: bool(given["use_vllm_logprobs"] and given["use_rho_correction"]),
    ),
    Remark(
        "truncated_importance_sampling_ratio_cap",
        "note",
        "truncated_importance_sampling_ratio_cap and tis_mask_* became rho_clamp_upper_bound and rho_mask_*; the removed mask compared "
        "current, not proximal, with behavior.",
        lambda given: given.has(*REMOVED),
    ),
    Remark(
        "clip_higher",
        "surprise",
        "With cispo the ratio is bounded above by 1 + clip_higher and clip_lower is not read; verl, slime, NeMo-RL and ROLL also bound "
        "it below, TRL and ms-swift bound it by epsilon_high itself.",
        lambda given: given["loss_fn"] == "cispo",
        source="open_instruct/grpo_utils.py:515 compute_grpo_loss",
    ),
    Remark(
        "mask_truncated_completions",
        "note",
        "Answers that did not end leave the batch and its counts but still vote in the baseline; pass their rows masked.",
        lambda given: bool(given["mask_truncated_completions"]),
    ),
    Remark(
        "non_stop_penalty",
        "note",
        "Answers that did not end get the reward {non_stop_penalty_value} in place of their own; set it before the advantages.",
        lambda given: bool(given["non_stop_penalty"]),
    ),
    Remark(
        "advantage_normalization_type",
        "note",
        "standard divides by the biased deviation plus 1e-8; most frameworks divide by the unbiased one plus 1e-6 or 1e-4.",
        lambda given: given["advantage_normalization_type"] == "standard",
    ),
    Remark(
        "advantage_normalization_type",
        "note",
        "max_rl divides by the group's mean reward, so it flips signs where that is negative; ours gives 0 there.",
        lambda given: given["advantage_normalization_type"] == "max_rl",
    ),
    Remark(
        "use_rho_correction",
        "surprise",
        "No correction is named, so today's default holds: each ratio is cut at {rho_clamp_upper_bound}. Earlier versions began "
        "without one, and with clip_higher 0.2; --set use_rho_correction=false reads the file so.",
        lambda given: given.whole and not says_correction(given) and not is_early(given),
        source="open_instruct/grpo_utils.py:104-133 GRPOExperimentConfig",
    ),
    Remark(
        "kl_estimator",
        "note",
        "kl1 to kl4 became 0 to 3; the versions that had those names began without a correction and with clip_higher 0.2, and the "
        "file is read so where it says nothing else.",
        is_early,
    ),
    Remark(
        "beta",
        "note",
        "Left out, beta is {beta} and kl_estimator {kl_estimator} (k3): a KL term is paid where a reference policy is loaded; write "
        "beta down to read it.",
        lambda given: (
            (given.speaks_of("loss") or given.whole)
            and not given.has("beta", "kl_estimator")
            and given["load_ref_policy"]
        ),
    ),
)
