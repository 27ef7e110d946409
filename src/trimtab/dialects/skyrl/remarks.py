"""What there is to say about SkyRL: each finding as data."""

from __future__ import annotations

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.skyrl.correction import masks_both_sides, tis_level_and_cap
from trimtab.dialects.skyrl.loss import BROKEN


def _masks_sequences(given: Given) -> bool:
    return given.is_on("sequence_mask_metric")


def _is_truncated(given: Given) -> bool:
    """Whether answers are drawn from a part of the vocabulary."""
    return (given["top_p"] is not None and given["top_p"] < 1) or (given["top_k"] is not None and given["top_k"] > 0)


def _stops_at_capture(given: Given) -> bool:
    """Whether SkyRL refuses to record, or to replay, the ids that answers were drawn from."""
    if not given.is_on("enable_return_sample_support_set"):
        return given.is_on("enable_sample_support_replay")
    sampling = "generator.sampling_params"
    is_sampled = given.value_of(f"{sampling}.temperature", 1.0) not in (0, 0.0)
    is_penalised = given.value_of(f"{sampling}.repetition_penalty", 1.0) not in (1, 1.0)
    return (given["top_k"] or 0) <= 1 or not is_sampled or is_penalised


def _is_overridden(given: Given) -> bool:
    """Whether use_tis puts other values in the place of the keys that replaced it."""
    level, cap = given["tis_ratio_type"], given["token_tis_ratio_clip_high"]
    is_said = given.has("tis_ratio_type", "token_tis_ratio_clip_high")
    return given["use_tis"] and is_said and (level not in (None, "token") or cap != given["tis_imp_ratio_cap"])


ALGORITHMS = "backends/skyrl_train/utils/ppo_utils.py"
CORRECTIONS = "backends/skyrl_train/utils/off_policy_correction_utils.py"


REMARKS = (
    Remark(
        "top_p",
        "surprise",
        "0.3.0 hands no sampling mask to the trainer: answers are drawn from a part of the vocabulary, and the trainer's log-probs run "
        "over all of it. Sample with top_p 1 and top_k -1, or record the ids and pass them as `support`.",
        _is_truncated,
        source="backends/skyrl_train/workers/model_wrapper.py:337 HFModelWrapper.forward",
        fixed="0.4.0, #2237",
    ),
    Remark(
        "top_p",
        "surprise",
        "Answers are drawn from a part of the vocabulary, and the trainer's log-probs run over all of it, so the ratio is not that of "
        "what was sampled. Set enable_sample_support_replay and inference_engine.enable_return_sample_support_set with a top_k above 1, or "
        "sample with top_p 1 and top_k -1.",
        lambda given: _is_truncated(given) and not given["enable_sample_support_replay"],
        source="backends/skyrl_train/workers/model_wrapper.py:434 HFModelWrapper.forward",
        since="0.4.0",
    ),
    Remark(
        "enable_sample_support_replay",
        "note",
        "The log-probs of sampler, trainer and reference all run over the ids that each token was drawn from: pass those ids as "
        "`support` to get the same numbers. The reference is scored at the sampling temperature then.",
        lambda given: given.is_on("enable_sample_support_replay") and not _stops_at_capture(given),
        since="0.4.0",
    ),
    Remark(
        "enable_return_sample_support_set",
        "surprise",
        "SkyRL stops before it starts: replay needs enable_return_sample_support_set, and that a temperature above 0, a top_k above 1 and "
        "a repetition_penalty of 1; set those, or leave both keys out.",
        _stops_at_capture,
        source="train/config/config.py:1883 SkyRLTrainConfig.__post_init__",
        since="0.4.0",
    ),
    Remark(
        "tis_imp_ratio_cap",
        "defect",
        "use_tis with cap {tis_imp_ratio_cap} makes every weight that number and flips the sign of the gradient; set "
        "tis_ratio_type: token and token_tis_ratio_clip_high: 2.0 instead.",
        lambda given: given["use_tis"] and given["tis_imp_ratio_cap"] < 0,
        source="train/utils/utils.py:515 validate_cfg",
    ),
    Remark(
        "use_tis",
        "surprise",
        "use_tis overrides tis_ratio_type and token_tis_ratio_clip_high with token and {tis_imp_ratio_cap}; leave it out.",
        _is_overridden,
        source="train/utils/utils.py:514 validate_cfg",
    ),
    Remark(
        "use_tis",
        "note",
        "use_tis and tis_imp_ratio_cap are deprecated; now off_policy_correction.tis_ratio_type: token and "
        "token_tis_ratio_clip_high.",
        lambda given: given.has("use_tis", "tis_imp_ratio_cap"),
    ),
    Remark(
        "token_mask_is_threshold_high",
        "surprise",
        "A token mask with one bound only is ignored; set both token_mask_is_threshold_low and _high.",
        lambda given: (
            given.is_on("token_mask_is_threshold_low", "token_mask_is_threshold_high") and not masks_both_sides(given)
        ),
        source=f"{CORRECTIONS}:298 compute_off_policy_correction",
    ),
    Remark(
        "policy_loss_type",
        "defect",
        "{policy_loss_type} receives advantages already divided by the counts of loss_reduction: clip_cov holds covariances that are "
        "as many times smaller to its bounds, and kl_cov adds a plain sum of its penalty, so no loss is shown here; use it with another "
        "framework or a reduction of your own.",
        lambda given: given["policy_loss_type"] in BROKEN,
        source=f"{ALGORITHMS}:1181 apply_loss_reduction_to_advantages_minibatch",
    ),
    Remark(
        "policy_loss_type",
        "surprise",
        "Outlier and token masks are silently not applied to {policy_loss_type}; use another loss.",
        lambda given: (
            given["policy_loss_type"] in BROKEN
            and (
                given.is_on("outlier_token_is_threshold_low", "outlier_token_is_threshold_high")
                or masks_both_sides(given)
            )
            and not given.is_on("tis_ratio_type", "sequence_mask_metric", "use_tis")  # which it refuses
        ),
        source=f"{ALGORITHMS}:996 compute_policy_loss_clip_cov",
    ),
    Remark(
        "policy_loss_type",
        "surprise",
        "SkyRL stops before it starts: tis_ratio_type and sequence_mask_metric are not supported with {policy_loss_type}; drop them.",
        lambda given: (
            given["policy_loss_type"] in BROKEN and given.is_on("tis_ratio_type", "sequence_mask_metric", "use_tis")
        ),
        source="train/utils/utils.py:548 validate_cfg",
    ),
    Remark(
        "sequence_tis_ratio_clip_high",
        "surprise",
        "The cap {sequence_tis_ratio_clip_high} bounds the product over the tokens that earlier stages left; AReaL, ms-swift and "
        "OpenRLHF mean the geometric mean by `sequence`.",
        lambda given: tis_level_and_cap(given)[0] == "sequence",
        source=f"{CORRECTIONS}:63 compute_tis_ratio",
    ),
    Remark(
        "sequence_mask_metric",
        "note",
        "Each stage sees the mask the one before left; verl and ROLL judge every stage on the original mask, so the same bounds "
        "keep other tokens there.",
        lambda given: (
            _masks_sequences(given) and (masks_both_sides(given) or given.is_on("outlier_token_is_threshold_low"))
        ),
    ),
    Remark(
        "tis_ratio_type",
        "note",
        "is_ratio_min, is_ratio_max and is_ratio_std are taken over padding too, so the least is 0 and the spread is not; look at ours.",
        lambda given: given.is_on("tis_ratio_type", "sequence_mask_metric") or masks_both_sides(given),
    ),
    Remark(
        "outlier_token_is_threshold_low",
        "note",
        "Without tis_ratio_type or sequence_mask_metric these masks are not validated and silently skipped where the sampler "
        "returns no log-probs; set sampling logprobs.",
        lambda given: (
            given.is_on("outlier_token_is_threshold_low", "outlier_token_is_threshold_high")
            and not given.is_on("tis_ratio_type", "sequence_mask_metric")
        ),
    ),
    Remark(
        "cispo_eps_clip_low",
        "defect",
        "With cispo_eps_clip_low {cispo_eps_clip_low} the lower bound is 1, so no token weighs less than 1; set it to 1.0 for an open "
        "lower side.",
        lambda given: given["policy_loss_type"] == "cispo" and given["cispo_eps_clip_low"] == 0,
        source="train/config/config.py:543 CISPOConfig",
        fixed="0.4.0, #1928",
    ),
    Remark(
        "cispo_eps_clip_low",
        "surprise",
        "cispo_eps_clip_low 0, the default before 0.4.0, puts the lower bound at 1, so that no token weighs less than 1; leave it out "
        "for 1.0, an open lower side.",
        lambda given: given["policy_loss_type"] == "cispo" and given["cispo_eps_clip_low"] == 0,
        source=f"{ALGORITHMS}:783 compute_policy_loss_cispo",
        since="0.4.0",
    ),
    Remark(
        "policy_loss_type",
        "surprise",
        "rollout_is zeroes the factor outside the band, and with it the gradient, though its documentation says the gradient is "
        "unchanged.",
        lambda given: given["policy_loss_type"] == "rollout_is",
        source=f"{ALGORITHMS}:851 rollout_is_policy_loss",
    ),
    Remark(
        "advantage_estimator",
        "note",
        "A group of one keeps its raw reward as advantage with grpo, and gets 0 with rloo; ours gives 0 by default.",
        lambda given: given["advantage_estimator"] == "grpo" and given.has("advantage_estimator"),
    ),
    Remark(
        "zero_variance_filter",
        "note",
        "Groups whose rewards agree leave the loss mask and its counts; pass their rows masked to get the same number.",
        lambda given: bool(given["zero_variance_filter"]),
    ),
    Remark(
        "use_kl_loss",
        "note",
        "Left out, a KL term of {kl_loss_coef} ({kl_estimator_type}) is paid; write use_kl_loss down to read it.",
        lambda given: (
            (given.speaks_of("loss") or given.whole)
            and not given.has("use_kl_loss", "kl_loss_coef", "kl_estimator_type", "use_kl_in_reward")
        ),
    ),
    Remark(
        "policy_loss_type",
        "note",
        "gspo keeps each token's own gradient under the sequence ratio and uses the configured loss_reduction; OpenRLHF and NeMo-RL "
        "differentiate the mean and force a sequence mean.",
        lambda given: given["policy_loss_type"] == "gspo",
    ),
    Remark(
        "loss_reduction",
        "surprise",
        "token_mean_legacy is the mean over micro-batches of their token means; read as prompt-mean: pass the index of the "
        "micro-batch as group, or use token_mean.",
        lambda given: given["loss_reduction"] == "token_mean_legacy",
        source=f"{ALGORITHMS}:1193 apply_loss_reduction_to_advantages_minibatch",
    ),
    Remark(
        "loss_reduction",
        "note",
        "Rows without tokens count in sequence means; ours leave them out unless the denominator says otherwise.",
        lambda given: given["loss_reduction"] in ("sequence_mean", "seq_mean_token_sum_norm"),
    ),
    Remark(
        "advantage_estimator",
        "surprise",
        "reinforce++ starts anew after each observation, so tokens before it never see a later reward; verl carries it across.",
        lambda given: given["advantage_estimator"] == "reinforce++",
        source=f"{ALGORITHMS}:1251 compute_reinforce_plus_plus_outcome_advantage",
    ),
    Remark(
        "advantage_estimator",
        "surprise",
        "maxrl divides by the group's mean, so it flips signs where that is negative and explodes near 0; keep rewards positive. "
        "Ours gives 0 there.",
        lambda given: given["advantage_estimator"] == "maxrl",
        source=f"{ALGORITHMS}:1423 compute_maxrl_advantage",
    ),
    Remark(
        "advantage_estimator",
        "surprise",
        "gae reads critic values at masked positions, also between turns and past the end; zero them to get our numbers. With lambd 1 "
        "they cancel.",
        lambda given: given["advantage_estimator"] == "gae" and given["lambd"] != 1,
        source=f"{ALGORITHMS}:1332 compute_gae_advantage_return",
    ),
)
