"""What there is to say about verl: each finding as data."""

from __future__ import annotations

import re

from trimtab.dialects.framework import Given, Remark
from trimtab.dialects.parts import OFF
from trimtab.dialects.verl import removed
from trimtab.dialects.verl.correction import counts_within, gates_read
from trimtab.dialects.verl.keys import LOSS_SECTION, OPTIONS, SECTION, P
from trimtab.dialects.verl.loss import BYPASS, FORCED
from trimtab.dialects.verl.removed import bypasses

HELPER, ALGORITHMS = "trainer/ppo/rollout_corr_helper.py", "trainer/ppo/core_algos.py"
LAST_TOKEN = ("gae", "reinforce_plus_plus", "remax", "optimal_token_baseline", "tir_optimal_token_baseline")
"""Estimators that look for the reward on the last token, and find none where that token has left the mask."""
CLIPPED = ("vanilla", "gspo", "clip_cov", "geo_mean", "cispo", "dppo_tv", "dppo_kl", BYPASS)
"""Losses with bounds of the actor's."""


def _by_loss(given: Given) -> bool:
    """Whether the loss corrects by a section of its own."""
    return given["loss_mode"] == BYPASS


def _acts(given: Given, place: str) -> bool:
    """Whether rejection under a section takes place: that of the algorithm before the step, that of the loss inside it."""
    return _by_loss(given) if place else not bypasses(given)


def _options(given: Given, place: str = "") -> list[str]:
    """The options of rejection that a section asks for, where it takes place."""
    if not _acts(given, place):
        return []
    return [part.strip() for part in (given[f"{place}rollout_rs"] or "").split(",") if part.strip()]


def _weighs(given: Given, place: str = "") -> bool:
    """Whether a section's weights multiply the loss."""
    if place:
        acts = _by_loss(given) and bypasses(given) and given["loss.loss_type"] == "reinforce"
    else:
        acts = not bypasses(given) and not _by_loss(given)
    return acts and given.is_on(f"{place}rollout_is")


def _works_out_weights(given: Given, place: str = "") -> bool:
    """Whether a section's weights are worked out, be it only to be logged."""
    return _acts(given, place) and given.is_on(f"{place}rollout_is")


def _has_k1(given: Given, place: str = "") -> bool:
    return any(option.endswith("k1") for option in _options(given, place))


def _is_lopsided(given: Given, place: str) -> bool:
    """Whether a k1 band is not symmetric about 1, so that its inversion shows."""
    gates = [gate for gate in gates_read(given, place) if gate.metric == "k1"]
    return any(abs((gate.lower or 0) + (gate.upper or 0)) > 1e-9 for gate in gates)


def _inverts(given: Given, place: str = "") -> bool:
    """Whether a k1 band turns over, other than the documentation says."""
    return not given.documented and _has_k1(given, place) and _is_lopsided(given, place)


def _mode(given: Given) -> str:
    """The reduction that is really used."""
    return FORCED.get(given["loss_mode"]) or given["loss_agg_mode"]


def _asks(given: Given, place: str = "") -> bool:
    """Whether a section asks for anything that only the loss of bypass mode carries out beside it."""
    return given.is_on(f"{place}rollout_is", f"{place}rollout_rs") or given[f"{place}loss_type"] != "ppo_clip"


def _never_reaches(given: Given) -> bool:
    """Whether settings of bypass mode stay with the driver."""
    return bypasses(given) and not _by_loss(given) and not given.documented and _asks(given)


def _is_written(given: Given) -> bool:
    """Whether the loss's section says what to do."""
    return given.has(*(f"loss.{name}" for name in OPTIONS if name != BYPASS))


def _differs(given: Given) -> bool:
    """Whether bypass mode leaves out something of the algorithm's section: the loss reads its own, which says something else."""
    names = [name for name in OPTIONS if name != BYPASS and given.is_on(name) and given.has(name)]
    return _by_loss(given) and bypasses(given) and any(given[name] != given[f"loss.{name}"] for name in names)


def _overrides(given: Given) -> str:
    """The words for Hydra; its `+` stands before what verl's YAML does not have."""
    said = {name: given.values.get(name) for name in OPTIONS if name != BYPASS and given.has(name)}
    words = [_override(f"+{LOSS_SECTION}.{name}", value) for name, value in said.items() if value is not None]
    return " ".join((*(() if _by_loss(given) else (f"{P}.loss_mode={BYPASS}",)), *words))


def _override(key: str, value: object) -> str:
    """One word as a shell takes it: what Hydra might take for a number or a list is quoted."""
    if isinstance(value, bool):
        return f"{key}={str(value).lower()}"
    if isinstance(value, int | float) or (isinstance(value, str) and re.fullmatch(r"[A-Za-z]\w*", value)):
        return f"{key}={value}"
    return f"'{key}=\"{value}\"'" if isinstance(value, str) else f"{key}=VALUE"


_INVERTED = (
    "act on the inverse ratio: k1 tests −log r, so r is kept in [1/high, 1/low], not in [low, high] as documented; write the reciprocal "
    "bounds to get what the documentation says."
)
_RECIPROCAL = (
    "k1 bounds act on the inverse ratio; these are reciprocal, so nothing changes, but asymmetric ones would turn over."
)
_ONE_NUMBER = "One number bounds k1 below by its inverse; AReaL and TRL leave that side open."
_BAND = "the effective sample size divides by zero and the run stops; widen the band."
_PRODUCT = (
    "bounds the product over the sequence; AReaL, ms-swift, OpenRLHF and open-instruct mean the geometric mean by `sequence`, which for "
    "long answers differs by orders of magnitude."
)
_COPIED = "Bypass settings never reach the loss: the workers hold a copy of the configuration made earlier, so rollout_is, rollout_rs and"


REMARKS = (
    Remark(
        "calculate_log_probs",
        "defect",
        "calculate_log_probs false leaves the correction without the sampler's log-probs, so it compares nothing; set it true.",
        lambda given: (
            not given["calculate_log_probs"]
            and not bypasses(given)
            and (bool(_options(given)) if _by_loss(given) else (given.dialect.correction_of(given) or OFF) != OFF)
        ),
        source="trainer/ppo/v1/trainer_base.py:1768 PPOTrainer._compute_advantage",
    ),
    Remark(
        "calculate_log_probs",
        "defect",
        "bypass_mode puts the sampler's log-probs in the place of the trainer's, and calculate_log_probs false leaves it without them: the "
        "first step fails; set it true.",
        lambda given: not given["calculate_log_probs"] and bypasses(given),
        source=f"{HELPER}:1131 apply_bypass_mode",
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
        _inverts,
        source=f"{HELPER}:263 compute_rollout_rejection_mask",
    ),
    Remark(
        "loss.rollout_rs_threshold",
        "defect",
        f"The bounds of the loss {_INVERTED}",
        lambda given: _inverts(given, "loss."),
        source=f"{HELPER}:263 compute_rollout_rejection_mask",
    ),
    Remark(
        "rollout_rs_threshold",
        "note",
        _RECIPROCAL,
        lambda given: not given.documented and _has_k1(given) and not _is_lopsided(given, ""),
    ),
    Remark(
        "loss.rollout_rs_threshold",
        "note",
        _RECIPROCAL,
        lambda given: not given.documented and _has_k1(given, "loss.") and not _is_lopsided(given, "loss."),
    ),
    Remark(
        "bypass_mode",
        "defect",
        f"{_COPIED} loss_type are ignored and plain PPO against the rollout log-probs is computed; also pass {{remedy}} on the command "
        "line.",
        lambda given: _never_reaches(given) and given["loss_mode"] == "vanilla",
        source="workers/engine_workers.py:593 ActorRolloutRefWorker.init_model",
        remedy=_overrides,
    ),
    Remark(
        "bypass_mode",
        "defect",
        f"{_COPIED} loss_type are ignored beside loss_mode {{loss_mode}}, whose ratio is current/behavior; drop them, or bypass_mode.",
        lambda given: _never_reaches(given) and given["loss_mode"] != "vanilla",
        source="workers/engine_workers.py:593 ActorRolloutRefWorker.init_model",
    ),
    Remark(
        "bypass_mode",
        "note",
        "The proximal policy is the rollout's own: PPO's ratio is current/behavior, and with rollout_is and rollout_rs left out nothing "
        "else is corrected.",
        lambda given: bypasses(given) and not _by_loss(given) and not _asks(given),
    ),
    Remark(
        "loss_mode",
        "defect",
        f"loss_mode bypass_mode takes the old log-probs for the sampler's, and without {SECTION}.bypass_mode=true the trainer works them "
        "out anew: ratio, weights and rejection of the loss compare current with proximal and correct nothing of the sampler's; set "
        f"{SECTION}.bypass_mode=true.",
        lambda given: _by_loss(given) and not bypasses(given),
        source="trainer/ppo/v1/trainer_base.py:1642 PPOTrainer._compute_old_log_prob",
    ),
    Remark(
        "rollout_is",
        "surprise",
        f"loss_mode bypass_mode leaves out the weights of {SECTION}: it works out its own, by policy_loss.rollout_correction.",
        lambda given: _by_loss(given) and not bypasses(given) and given.is_on("rollout_is"),
        source=f"{ALGORITHMS}:2540 compute_policy_loss_bypass_mode",
    ),
    Remark(
        "bypass_mode",
        "defect",
        f"loss_mode bypass_mode reads policy_loss.rollout_correction, which is not there: rollout_is, rollout_rs and loss_type of "
        f"{SECTION} are ignored and plain PPO against the rollout log-probs is computed; also pass {{remedy}} on the command line.",
        lambda given: _differs(given) and not _is_written(given),
        source=f"{ALGORITHMS}:2475 compute_policy_loss_bypass_mode",
        remedy=_overrides,
    ),
    Remark(
        "bypass_mode",
        "surprise",
        f"loss_mode bypass_mode reads policy_loss.rollout_correction, which differs here from {SECTION}: what stands there is ignored; "
        "write the same in both.",
        lambda given: _differs(given) and _is_written(given),
        source=f"{ALGORITHMS}:2475 compute_policy_loss_bypass_mode",
    ),
    Remark(
        "loss_mode",
        "surprise",
        "policy_loss.rollout_correction is read by loss_mode bypass_mode alone: under {loss_mode} it is ignored; set loss_mode and "
        f"{SECTION}.bypass_mode, or write it under {SECTION}.",
        lambda given: not _by_loss(given) and _asks(given, "loss.") and not _never_reaches(given),
        source=f"{ALGORITHMS}:2475 compute_policy_loss_bypass_mode",
    ),
    Remark(
        "loss.rollout_is",
        "note",
        "With loss_type ppo_clip the weight is only logged: the PPO ratio already is current/behavior; use loss_type reinforce "
        "to weigh by it.",
        lambda given: (
            _by_loss(given)
            and bypasses(given)
            and given["loss.loss_type"] == "ppo_clip"
            and given.is_on("loss.rollout_is")
        ),
    ),
    Remark(
        "loss.rollout_is_batch_normalize",
        "surprise",
        "In bypass mode the mean is taken per micro-batch, so the step depends on how the batch is split; switch it off.",
        lambda given: _weighs(given, "loss.") and given.is_on("loss.rollout_is_batch_normalize"),
        source=f"{HELPER}:636 compute_rollout_correction_weights",
    ),
    Remark(
        "rollout_is_threshold",
        "surprise",
        f"A sequence threshold of {{rollout_is_threshold}} {_PRODUCT}",
        lambda given: _weighs(given) and given["rollout_is"] == "sequence",
        source=f"{HELPER}:580 compute_rollout_correction_weights",
    ),
    Remark(
        "loss.rollout_is_threshold",
        "surprise",
        f"The sequence threshold of the loss {_PRODUCT}",
        lambda given: _weighs(given, "loss.") and given["loss.rollout_is"] == "sequence",
        source=f"{HELPER}:580 compute_rollout_correction_weights",
    ),
    Remark(
        "rollout_rs",
        "surprise",
        "Token rejection runs before advantages: where it removes the last token, {adv_estimator} loses the whole reward of the sequence; "
        "use GRPO or RLOO, or reject by sequence.",
        lambda given: (
            given["adv_estimator"] in LAST_TOKEN
            and any(option.startswith(("token", "binary")) for option in _options(given))
        ),
        source="trainer/ppo/v1/trainer_base.py:1771 PPOTrainer._compute_advantage",
    ),
    Remark(
        "rollout_rs",
        "note",
        "Rejected rows still vote in group baselines (GRPO, RLOO), as with ours; baseline kept would leave them out.",
        lambda given: bool(_options(given)),
    ),
    Remark(
        "use_v1",
        "surprise",
        "The legacy trainer divides by the tokens left after rejection, so rejected tokens raise the others' step; the v1 trainer "
        "and other frameworks count before rejection.",
        lambda given: not given["use_v1"] and bool(_options(given)) and _mode(given) == "token-mean",
        source="workers/utils/padding.py:71 left_right_2_no_padding",
    ),
    Remark(
        "rollout_rs",
        "note",
        "A mean per sequence runs over the tokens that rejection left of it, and is divided by ppo_mini_batch_size × n, rejected rows "
        "included; read as denominator kept: pass a Denominator with that number of rows.",
        lambda given: bool(_options(given)) and counts_within(given, ""),
    ),
    Remark(
        "loss.rollout_rs",
        "note",
        "Bypass rejects inside the loss: a mean per sequence runs over what is left, while the step's tokens and rows are counted before; "
        "read as denominator kept where the mean is per sequence: pass a Denominator with the rows before rejection. Else trained.",
        lambda given: bool(_options(given, "loss.")),
    ),
    Remark(
        "rollout_rs",
        "note",
        "Rejected tokens leave the KL and entropy terms of the actor too, and the critic's loss; in bypass mode they do not.",
        lambda given: bool(_options(given)) and (given["use_kl_loss"] or given["entropy_coeff"]),
    ),
    Remark(
        "rollout_rs_threshold",
        "note",
        _ONE_NUMBER,
        lambda given: _has_k1(given) and "_" not in str(given["rollout_rs_threshold"]),
    ),
    Remark(
        "loss.rollout_rs_threshold",
        "note",
        _ONE_NUMBER,
        lambda given: _has_k1(given, "loss.") and "_" not in str(given["loss.rollout_rs_threshold"]),
    ),
    Remark(
        "rollout_is_threshold",
        "defect",
        f"Where every weight falls outside the band {{rollout_is_threshold}}, {_BAND}",
        lambda given: _works_out_weights(given) and "_" in str(given["rollout_is_threshold"]),
        source=f"{HELPER}:758 compute_is_metrics",
    ),
    Remark(
        "loss.rollout_is_threshold",
        "defect",
        f"Where every weight of a micro-batch falls outside the band of the loss, {_BAND}",
        lambda given: _works_out_weights(given, "loss.") and "_" in str(given["loss.rollout_is_threshold"]),
        source=f"{HELPER}:758 compute_is_metrics",
    ),
    Remark(
        "loss_agg_mode",
        "note",
        "A NaN log-prob at a masked token makes a NaN weight there, and {loss_agg_mode} multiplies it by the mask, so the loss is NaN; "
        "token-mean is safe.",
        lambda given: _weighs(given) and str(_mode(given)).startswith("seq-"),
    ),
    Remark(
        "rollout_is",
        "note",
        "rollout_is_seq_*, perplexities and chi2_seq also average over rows without tokens.",
        lambda given: _works_out_weights(given) and given["rollout_is"] == "sequence",
    ),
    Remark(
        "adv_estimator",
        "surprise",
        "With the v1 trainer, where the last row of a session of several trajectories is rejected, every row of the session gets "
        "advantage 0; reject by token, or use the legacy trainer.",
        lambda given: (
            given["use_v1"]
            and given.has("adv_estimator")
            and given["adv_estimator"] == "grpo"
            and any(option.startswith("seq") or option in ("sequence", "geometric") for option in _options(given))
        ),
        source="trainer/ppo/v1/utils.py:208 compute_advantage_for_multi_trajectories",
    ),
    Remark(
        "rollout_rs",
        "note",
        "binary_kl (#6800) is not in verl 0.9.1; it is read as proposed there: the larger of both directions, probabilities held "
        "within [1e-6, 1 − 1e-6].",
        lambda given: "binary_kl" in _options(given) + _options(given, "loss."),
    ),
    *removed.REMARKS,
    Remark(
        "clip_ratio_c",
        "surprise",
        "{loss_mode} caps its ratio at clip_ratio_c, {clip_ratio_c} by default: the 20 in its code is never reached.",
        lambda given: given["loss_mode"] in ("dppo_tv", "dppo_kl") and not given.has("clip_ratio_c"),
        source=f"{ALGORITHMS}:1427 compute_policy_loss_dppo_tv",
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
            and given["loss_mode"] in CLIPPED
            and any(
                not given.has(side) and given[side] != given["clip_ratio"]
                for side in ("clip_ratio_low", "clip_ratio_high")
            )
        ),
        source=f"{ALGORITHMS}:1321 compute_policy_loss_vanilla",
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
        source=f"{ALGORITHMS}:2000 compute_policy_loss_geo_mean",
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
        source=f"{ALGORITHMS}:1688 compute_policy_loss_sapo",
    ),
    Remark(
        "loss_scale_factor",
        "surprise",
        "Without loss_scale_factor the sum is divided by the width of the micro-batch, so the step depends on the longest answer "
        "in it; set it to the longest answer allowed.",
        lambda given: given["loss_agg_mode"] == "seq-mean-token-sum-norm" and not given.is_on("loss_scale_factor"),
        source=f"{ALGORITHMS}:1191 agg_loss",
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
        lambda given: given.has("adv_estimator") and given["adv_estimator"] not in LAST_TOKEN,
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
        source=f"{ALGORITHMS}:964 compute_optimal_token_baseline_advantage",
    ),
)
