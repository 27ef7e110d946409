"""What there is to say about verl: each finding as data."""

from __future__ import annotations

from trimtab.dialects.dialect import Given, Remark
from trimtab.dialects.parts import OFF
from trimtab.dialects.verl import removed
from trimtab.dialects.verl.correction import counts_within
from trimtab.dialects.verl.loss import FORCED, LOSSES
from trimtab.dialects.verl.removed import bypasses


def _options(given: Given, *, place: str = "") -> list[str]:
    return [part.strip() for part in (given[f"{place}rollout_rs"] or "").split(",") if part.strip()]


def _is_lopsided(given: Given) -> bool:
    """Whether a k1 band is not symmetric about 1, so that its inversion shows."""
    gates = [gate for gate in (given.dialect.correction_of(given) or OFF).gates if gate.metric == "k1"]
    return any(abs((gate.lower or 0) + (gate.upper or 0)) > 1e-9 for gate in gates)


def _mode(given: Given) -> str:
    """The reduction that is really used."""
    return FORCED.get(given["loss_mode"]) or given["loss_agg_mode"]


def _has(given: Given, *endings: str) -> bool:
    return any(option.endswith(endings) for option in _options(given) + _options(given, place="loss."))


def _has_k1(given: Given, *, place: str) -> bool:
    return any(option.endswith("k1") for option in _options(given, place=place))


def _inverts(given: Given) -> bool:
    """Whether a k1 band turns over, other than the documentation says."""
    return not given.documented and _has(given, "k1") and not bypasses(given) and _is_lopsided(given)


_INVERTED = (
    "act on the inverse ratio: k1 tests −log r, so r is kept in [1/high, 1/low], not in [low, high] as documented; write the reciprocal "
    "bounds to get what the documentation says."
)
OWN_ANCHOR = ("dppo_tv", "dppo_kl")
"""Losses that test how far current moved from the anchor themselves."""


def _bounds(given: Given) -> bool:
    """Whether something is set that bypass mode would have to carry out."""
    return given.is_on("rollout_is", "rollout_rs") or given["loss_type"] != "ppo_clip"


REMARKS = (
    Remark(
        "calculate_log_probs",
        "defect",
        "calculate_log_probs false leaves the correction without the sampler's log-probs, so it compares nothing; set it true.",
        lambda given: not given["calculate_log_probs"] and (given.dialect.correction_of(given) or OFF) != OFF,
    ),
    Remark(
        "use_kl_in_reward",
        "note",
        "The file says nothing of this switch; before it came (0.3) the KL was paid in the reward wherever use_kl_loss was off. --set "
        "algorithm.use_kl_in_reward=true reads it so.",
        lambda given: (
            given.has("kl_coef")
            and bool(given["kl_coef"])
            and not given.has("use_kl_in_reward")
            and not given["use_kl_loss"]
        ),
    ),
    Remark(
        "rollout_rs_threshold",
        "defect",
        f"The bounds {{rollout_rs_threshold}} {_INVERTED}",
        lambda given: _inverts(given) and _has_k1(given, place=""),
    ),
    Remark(
        "loss.rollout_rs_threshold",
        "defect",
        f"The bounds of the loss {_INVERTED}",
        lambda given: _inverts(given) and not _has_k1(given, place=""),
    ),
    Remark(
        "rollout_rs_threshold",
        "note",
        "k1 bounds act on the inverse ratio; these are reciprocal, so nothing changes, but asymmetric ones would turn over.",
        lambda given: not given.documented and _has(given, "k1") and not bypasses(given) and not _is_lopsided(given),
    ),
    Remark(
        "bypass_mode",
        "defect",
        "Bypass settings never reach the loss: the workers hold a copy of the configuration made earlier, so rollout_is, "
        "rollout_rs and loss_type are ignored and plain PPO against the rollout log-probs is computed; also set "
        "actor_rollout_ref.actor.policy_loss.loss_mode=bypass_mode and policy_loss.rollout_correction.*.",
        lambda given: (
            bypasses(given)
            and given["loss_mode"] not in ("bypass_mode", *OWN_ANCHOR)
            and not given.documented
            and _bounds(given)
        ),
    ),
    Remark(
        "bypass_mode",
        "note",
        "The proximal policy is the rollout's own: PPO's ratio is current/behavior, and with rollout_is and rollout_rs left out nothing "
        "else is corrected.",
        lambda given: bypasses(given) and given["loss_mode"] != "bypass_mode" and not _bounds(given),
    ),
    Remark(
        "loss.rollout_is",
        "note",
        "With loss_type ppo_clip the weight is only logged: the PPO ratio already is current/behavior; use loss_type reinforce "
        "to weigh by it.",
        lambda given: (
            given["loss_mode"] == "bypass_mode"
            and given["loss.loss_type"] == "ppo_clip"
            and given.is_on("loss.rollout_is")
        ),
    ),
    Remark(
        "loss.rollout_is",
        "surprise",
        "Left out under policy_loss it is `sequence` in the dataclass and null in the YAML of algorithm.rollout_correction; read "
        "here as null; write it down.",
        lambda given: (
            given["loss_mode"] == "bypass_mode"
            and given["loss.loss_type"] == "reinforce"
            and not given.has("loss.rollout_is")
        ),
    ),
    Remark(
        "rollout_is_batch_normalize",
        "surprise",
        "In bypass mode the mean is taken per micro-batch, so the step depends on how the batch is split; switch it off.",
        lambda given: given["loss_mode"] == "bypass_mode" and given.is_on("loss.rollout_is_batch_normalize"),
    ),
    Remark(
        "rollout_is_threshold",
        "surprise",
        "A sequence threshold of {rollout_is_threshold} bounds the product over the sequence; AReaL, ms-swift, OpenRLHF and "
        "open-instruct mean the geometric mean by `sequence`, which for long answers differs by orders of magnitude.",
        lambda given: given["rollout_is"] == "sequence" and not bypasses(given),
    ),
    Remark(
        "rollout_rs",
        "surprise",
        "Token rejection runs before advantages: where it removes the last token, REINFORCE++, GAE, ReMax and OTB lose the whole "
        "reward of the sequence; use GRPO or RLOO, or reject by sequence.",
        lambda given: any(option.startswith(("token", "binary")) for option in _options(given)) and not bypasses(given),
    ),
    Remark(
        "rollout_rs",
        "note",
        "Rejected rows still vote in group baselines (GRPO, RLOO), as with ours; baseline kept would leave them out.",
        lambda given: bool(_options(given)) and not bypasses(given),
    ),
    Remark(
        "use_v1",
        "surprise",
        "The legacy trainer divides by the tokens left after rejection, so rejected tokens raise the others' step; the v1 trainer "
        "and other frameworks count before rejection.",
        lambda given: not given["use_v1"] and bool(_options(given)),
    ),
    Remark(
        "rollout_rs",
        "note",
        "A mean per sequence runs over the tokens that rejection left of it, and is divided by ppo_mini_batch_size × n, rejected rows "
        "included; read as denominator kept: pass a Denominator with that number of rows.",
        lambda given: bool(_options(given)) and not bypasses(given) and counts_within(given, ""),
    ),
    Remark(
        "loss.rollout_rs",
        "note",
        "Bypass rejects inside the loss: a mean per sequence runs over what is left, while the step's tokens and rows are counted before; "
        "read as denominator kept where the mean is per sequence: pass a Denominator with the rows before rejection. Else trained.",
        lambda given: given["loss_mode"] == "bypass_mode" and bool(_options(given, place="loss.")),
    ),
    Remark(
        "rollout_rs",
        "note",
        "Rejected tokens leave the KL and entropy terms of the actor too, and the critic's loss; in bypass mode they do not.",
        lambda given: (
            bool(_options(given)) and not bypasses(given) and (given["use_kl_loss"] or given["entropy_coeff"])
        ),
    ),
    Remark(
        "rollout_rs_threshold",
        "note",
        "One number bounds k1 below by its inverse; AReaL and TRL leave that side open.",
        lambda given: _has(given, "k1") and "_" not in str(given["rollout_rs_threshold"]) and not bypasses(given),
    ),
    Remark(
        "rollout_is_threshold",
        "defect",
        "Where every weight falls outside the band {rollout_is_threshold}, the effective sample size divides by zero and the run stops; "
        "widen the band.",
        lambda given: given.is_on("rollout_is") and "_" in str(given["rollout_is_threshold"]) and not bypasses(given),
    ),
    Remark(
        "loss_agg_mode",
        "surprise",
        "A NaN log-prob at padding makes a NaN weight there, and {loss_agg_mode} multiplies it by the mask, so the loss is NaN; "
        "token-mean is safe.",
        lambda given: given.is_on("rollout_is") and str(_mode(given)).startswith("seq-") and not bypasses(given),
    ),
    Remark(
        "rollout_is",
        "note",
        "rollout_is_seq_*, perplexities and chi2_seq also average over rows without tokens.",
        lambda given: given["rollout_is"] == "sequence" and not bypasses(given),
    ),
    Remark(
        "adv_estimator",
        "surprise",
        "With the v1 trainer, where the last row of a session of several trajectories is rejected, every row of the session gets "
        "advantage 0; reject by token, or use the legacy trainer.",
        lambda given: (
            given["use_v1"]
            and bool(_options(given))
            and given.has("adv_estimator")
            and given["adv_estimator"] == "grpo"
        ),
    ),
    Remark(
        "rollout_rs",
        "note",
        "binary_kl (#6800) is not in verl 0.9.1; it is read as proposed there: the larger of both directions, probabilities held "
        "within [1e-6, 1 − 1e-6].",
        lambda given: "binary_kl" in _options(given) + _options(given, place="loss."),
    ),
    *removed.REMARKS,
    Remark(
        "clip_ratio_c",
        "surprise",
        "{loss_mode} caps its ratio at clip_ratio_c, {clip_ratio_c} by default: the 20 in its code is never reached.",
        lambda given: given["loss_mode"] in ("dppo_tv", "dppo_kl") and not given.has("clip_ratio_c"),
    ),
    Remark(
        "kl_ctrl.type",
        "note",
        "An adaptive controller moves the coefficient with the measured KL; kl_coef is only where it starts.",
        lambda given: bool(given["use_kl_in_reward"]) and given["kl_ctrl.type"] == "adaptive",
    ),
    Remark(
        "clip_ratio",
        "surprise",
        "clip_ratio is not read: clip_ratio_low and clip_ratio_high have defaults of their own (0.2); set those.",
        lambda given: (
            given.has("clip_ratio")
            and not (given.has("clip_ratio_low") and given.has("clip_ratio_high"))
            and given["loss_mode"] in LOSSES
        ),
    ),
    Remark(
        "clip_ratio_c",
        "note",
        "The dual clip is always on, at {clip_ratio_c}; most frameworks leave it out by default.",
        lambda given: given.speaks_of("loss") and given["loss_mode"] == "vanilla",
    ),
    Remark(
        "loss_mode",
        "surprise",
        "geo_mean takes a plain mean over the rows of the micro-batch, so its gradient grows with the number of micro-batches.",
        lambda given: given["loss_mode"] == "geo_mean",
    ),
    Remark(
        "loss_agg_mode",
        "surprise",
        "{loss_mode} always averages per sequence first, whatever loss_agg_mode says.",
        lambda given: (
            given["loss_mode"] in FORCED
            and given.has("loss_agg_mode")
            and given["loss_agg_mode"] != "seq-mean-token-mean"
        ),
    ),
    Remark(
        "loss_scale_factor",
        "surprise",
        "Without loss_scale_factor the sum is divided by the width of the micro-batch, so the step depends on the longest answer "
        "in it; set it to the longest answer allowed.",
        lambda given: given["loss_agg_mode"] == "seq-mean-token-sum-norm" and not given.is_on("loss_scale_factor"),
    ),
    Remark(
        "loss_mode",
        "note",
        "GSPO here keeps each token's own gradient under the sequence ratio and uses the configured loss_agg_mode; OpenRLHF and "
        "NeMo-RL differentiate the mean and force a sequence mean.",
        lambda given: given["loss_mode"] == "gspo",
    ),
    Remark(
        "adv_estimator",
        "note",
        "A group of one keeps its raw reward as advantage; ours gives 0 by default, ms-swift and NeMo-RL too.",
        lambda given: (
            given.has("adv_estimator") and given["adv_estimator"] in ("grpo", "rloo", "opo", "gpg", "grpo_vectorized")
        ),
    ),
    Remark(
        "adv_estimator",
        "note",
        "The reward of a row is the sum over all its tokens, masked or not.",
        lambda given: (
            given.has("adv_estimator") and given["adv_estimator"] not in ("gae", "reinforce_plus_plus", "remax")
        ),
    ),
    Remark(
        "loss_mode",
        "note",
        "bapo is a loss of its authors' recipe, not of verl itself. A clipped token counts with its bound, so that raising the lower bound "
        "never brings the balance up.",
        lambda given: given["loss_mode"] == "bapo",
    ),
    Remark(
        "adv_estimator",
        "note",
        "It needs Σπ² of every token (calculate_sum_pi_squared): pass it as `squares`, and the weights of rollout_is as `weight`.",
        lambda given: str(given["adv_estimator"]).endswith("optimal_token_baseline"),
    ),
    Remark(
        "adv_estimator",
        "surprise",
        "Rows are compared at the same place of the answer, untrained tokens counted; ours and tir_optimal_token_baseline count trained "
        "tokens. The two differ where tool output stands between.",
        lambda given: given["adv_estimator"] == "optimal_token_baseline",
    ),
)
