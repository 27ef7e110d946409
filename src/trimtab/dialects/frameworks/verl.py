"""verl: its keys and what is surprising about it. What it computes is in `verl_correction` and `verl_loss`."""

from __future__ import annotations

import re
from typing import Any

from trimtab.dialects.framework import Dialect, Given, Key, Null, Part, Version, defect, remark, surprise
from trimtab.dialects.frameworks.verl_correction import (
    BYPASS,
    FIELDS,
    FIRST_KEYS,
    FORCED,
    LOSS_SECTION,
    OPTIONS,
    RATIO_REJECTIONS,
    REMOVED_KEYS,
    SECTION,
    A,
    P,
    bypasses,
    candidates,
    correction_of,
    counts_within,
    gates_read,
    is_removed,
)
from trimtab.dialects.frameworks.verl_loss import ESTIMATORS, KL, LOSSES, RECIPE, REDUCTIONS, advantage_of, loss_of
from trimtab.dialects.parts import OFF
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import UNSAID, Kind, choice, flag, number, numbers, raw, text, unsaid_or

TEACHER = "distillation.distillation_loss"
_TEACHING: tuple[tuple[str, Kind, Any, Part, Null], ...] = (
    ("loss_mode", text, "k3", "advantage", "refused"),
    ("use_task_rewards", flag, True, "advantage", "refused"),
    ("use_policy_gradient", flag, False, "advantage", "refused"),
    ("loss_max_clamp", number, None, "advantage", "open"),
    ("distillation_loss_coef", number, 1.0, "loss", "refused"),
    ("clip_ratio", number, 0.2, "loss", "refused"),
    ("clip_ratio_low", number, 0.2, "loss", "open"),
    ("clip_ratio_high", number, 0.2, "loss", "open"),
)
"""As the YAML has them; the dataclass behind it has other defaults."""
KEYS = (
    *(
        Key(
            f"{SECTION}.{name}",
            kind,
            default,
            also=(f"algorithm.{name}",) if name.startswith("rollout_is") else (),
            null="open" if kind is raw else "refused",
        )
        for name, kind, default in FIELDS
    ),
    *(
        Key(
            f"{LOSS_SECTION}.{name}",
            kind,
            default,
            name=f"loss.{name}",
            null="open" if kind is raw else "refused",
        )
        for name, kind, default in FIELDS
    ),
    Key("trainer.use_v1", flag, True),
    Key("actor_rollout_ref.rollout.calculate_log_probs", flag, True, part="other"),
    *REMOVED_KEYS,
    Key(f"{P}.loss_mode", text, "vanilla", part="loss",
        options=unsaid_or(name for name in LOSSES if name not in (BYPASS, RECIPE))),
    Key(f"{P}.clip_cov_ratio", number, 2e-4, part="loss"),
    Key(f"{P}.clip_cov_lb", number, 1.0, part="loss"),
    Key(f"{P}.clip_cov_ub", number, 5.0, part="loss"),
    Key(f"{P}.kl_cov_ratio", number, 2e-4, part="loss"),
    Key(f"{P}.ppo_kl_coef", number, 0.1, part="loss"),
    Key(f"{P}.dro_beta", number, part="loss", seed=0.1),
    Key(f"{P}.adv_ratio_target", number, 1.0, part="loss"),
    *(Key(f"{P}.ratio_{side}_{end}", number, part="loss") for side in ("lower", "upper") for end in ("start", "max")),
    *(Key(f"{P}.ratio_{side}_step", number, 0.05, part="loss") for side in ("lower", "upper")),
    Key(f"{A}.clip_ratio", number, 0.2, part="loss"),
    Key(f"{A}.clip_ratio_low", number, 0.2, part="loss", null="open"),
    Key(f"{A}.clip_ratio_high", number, 0.2, part="loss", null="open"),
    Key(f"{A}.clip_ratio_c", number, 3.0, part="loss"),
    Key(f"{A}.loss_agg_mode", text, "token-mean", part="loss", options=unsaid_or(REDUCTIONS)),
    Key(f"{A}.use_token_level_loss", flag, True, part="loss", legacy=True),
    Key(f"{A}.use_gpg_loss", flag, False, part="loss", legacy=True),
    Key(f"{A}.loss_scale_factor", number, part="loss", seed=1024.0),
    Key(f"{A}.tau_pos", number, 1.0, part="loss"),
    Key(f"{A}.tau_neg", number, 1.05, part="loss"),
    Key(f"{A}.use_kl_loss", flag, False, part="loss", joint=("kl_loss_type",)),
    Key(f"{A}.kl_loss_coef", number, 0.001, part="loss"),
    Key(f"{A}.kl_loss_type", text, "low_var_kl", part="loss", options=(UNSAID, *KL, *(f"{name}+" for name in KL))),
    Key(f"{A}.entropy_coeff", number, 0.0, part="loss"),
    Key("distillation.enabled", flag, False, part="loss", name="distillation.enabled"),
    *(
        Key(f"{TEACHER}.{name}", kind, default, part=part, name=f"teacher.{name}", null=null)
        for name, kind, default, part, null in _TEACHING
    ),
    Key("data.max_response_length", number, part="other"),
    Key("algorithm.adv_estimator", text, "gae", part="advantage", options=unsaid_or(ESTIMATORS),
        joint=("norm_adv_by_std_in_grpo",)),
    Key("algorithm.gamma", number, 1.0, part="advantage"),
    Key("algorithm.lam", number, 1.0, part="advantage"),
    Key("algorithm.norm_adv_by_std_in_grpo", flag, True, part="advantage"),
    Key("algorithm.gdpo_reward_weights", numbers, part="advantage"),
    Key("algorithm.gdpo_reward_keys", raw, part="advantage"),
    Key("algorithm.use_kl_in_reward", flag, False, part="advantage", joint=("kl_penalty",)),
    Key("algorithm.kl_penalty", text, "kl", part="advantage", options=unsaid_or(KL)),
    Key("algorithm.kl_ctrl.kl_coef", number, 0.001, part="advantage"),
    Key("algorithm.kl_ctrl.type", choice("fixed", "adaptive"), "fixed", part="advantage", name="kl_ctrl.type"),
    Key("algorithm.use_pf_ppo", flag, False, part="advantage"),
)  # fmt: skip


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────

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
    defect("calculate_log_probs",
        lambda g: (not g["calculate_log_probs"] and not bypasses(g)
            and (bool(_options(g)) if _by_loss(g) else (g.dialect.correction_of(g) or OFF) != OFF)),
        "calculate_log_probs false leaves the correction without the sampler's log-probs, so it compares nothing; "
        "set it true.",
        source="trainer/ppo/v1/trainer_base.py:1768 PPOTrainer._compute_advantage"),
    defect("calculate_log_probs", lambda g: not g["calculate_log_probs"] and bypasses(g),
        "bypass_mode puts the sampler's log-probs in the place of the trainer's, and calculate_log_probs false "
        "leaves it without them: the first step fails; set it true.",
        source=f"{HELPER}:1131 apply_bypass_mode"),
    remark("use_kl_in_reward",
        lambda g: g.has("kl_coef") and bool(g["kl_coef"]) and not g.has("use_kl_in_reward") and not g["use_kl_loss"],
        "The file does not set this switch. Before 0.3, which brought it, the KL was paid in the reward wherever "
        "use_kl_loss was off; --set algorithm.use_kl_in_reward=true reads it that way."),
    defect("rollout_rs_threshold", _inverts,
        f"The bounds {{rollout_rs_threshold}} {_INVERTED}",
        source=f"{HELPER}:263 compute_rollout_rejection_mask"),
    defect("loss.rollout_rs_threshold", lambda g: _inverts(g, "loss."),
        f"The bounds of the loss {_INVERTED}",
        source=f"{HELPER}:263 compute_rollout_rejection_mask"),
    remark("rollout_rs_threshold", lambda g: not g.documented and _has_k1(g) and not _is_lopsided(g, ""),
        _RECIPROCAL),
    remark("loss.rollout_rs_threshold",
        lambda g: not g.documented and _has_k1(g, "loss.") and not _is_lopsided(g, "loss."),
        _RECIPROCAL),
    defect("bypass_mode", lambda g: _never_reaches(g) and g["loss_mode"] == "vanilla",
        f"{_COPIED} loss_type are ignored and plain PPO against the rollout log-probs is computed; also pass "
        "{remedy} on the command line.",
        source="workers/engine_workers.py:593 ActorRolloutRefWorker.init_model", remedy=_overrides),
    defect("bypass_mode", lambda g: _never_reaches(g) and g["loss_mode"] != "vanilla",
        f"{_COPIED} loss_type are ignored beside loss_mode {{loss_mode}}, whose ratio is current/behavior; drop them, or bypass_mode.",
        source="workers/engine_workers.py:593 ActorRolloutRefWorker.init_model"),
    remark("bypass_mode", lambda g: bypasses(g) and not _by_loss(g) and not _asks(g),
        "The proximal policy is the rollout's own: PPO's ratio is current/behavior, and with rollout_is and "
        "rollout_rs left out nothing else is corrected."),
    defect("loss_mode", lambda g: _by_loss(g) and not bypasses(g),
        f"loss_mode bypass_mode takes the old log-probs for the sampler's, and without {SECTION}.bypass_mode=true "
        "the trainer works them out anew: ratio, weights and rejection of the loss compare current with proximal and "
        f"correct nothing of the sampler's; set {SECTION}.bypass_mode=true.",
        source="trainer/ppo/v1/trainer_base.py:1642 PPOTrainer._compute_old_log_prob"),
    surprise("rollout_is", lambda g: _by_loss(g) and not bypasses(g) and g.is_on("rollout_is"),
        f"loss_mode bypass_mode leaves out the weights of {SECTION}: it works out its own, by policy_loss.rollout_correction.",
        source=f"{ALGORITHMS}:2540 compute_policy_loss_bypass_mode"),
    defect("bypass_mode", lambda g: _differs(g) and not _is_written(g),
        "loss_mode bypass_mode reads policy_loss.rollout_correction, which is not there: rollout_is, rollout_rs and "
        f"loss_type of {SECTION} are ignored and plain PPO against the rollout log-probs is computed; also pass "
        "{remedy} on the command line.",
        source=f"{ALGORITHMS}:2475 compute_policy_loss_bypass_mode", remedy=_overrides),
    surprise("bypass_mode", lambda g: _differs(g) and _is_written(g),
        f"loss_mode bypass_mode reads policy_loss.rollout_correction, which differs here from {SECTION}: what stands "
        "there is ignored; write the same in both.",
        source=f"{ALGORITHMS}:2475 compute_policy_loss_bypass_mode"),
    surprise("loss_mode", lambda g: not _by_loss(g) and _asks(g, "loss.") and not _never_reaches(g),
        "policy_loss.rollout_correction is read by loss_mode bypass_mode alone: under {loss_mode} it is ignored; set "
        f"loss_mode and {SECTION}.bypass_mode, or write it under {SECTION}.",
        source=f"{ALGORITHMS}:2475 compute_policy_loss_bypass_mode"),
    remark("loss.rollout_is",
        lambda g: _by_loss(g) and bypasses(g) and g["loss.loss_type"] == "ppo_clip" and g.is_on("loss.rollout_is"),
        "With loss_type ppo_clip the weight is only logged: the PPO ratio already is current/behavior; use loss_type "
        "reinforce to weigh by it."),
    surprise("loss.rollout_is_batch_normalize",
        lambda g: _weighs(g, "loss.") and g.is_on("loss.rollout_is_batch_normalize"),
        "In bypass mode the mean is taken per micro-batch, so the step depends on how the batch is split; switch it "
        "off.",
        source=f"{HELPER}:636 compute_rollout_correction_weights"),
    surprise("rollout_is_threshold", lambda g: _weighs(g) and g["rollout_is"] == "sequence",
        f"A sequence threshold of {{rollout_is_threshold}} {_PRODUCT}",
        source=f"{HELPER}:580 compute_rollout_correction_weights"),
    surprise("loss.rollout_is_threshold", lambda g: _weighs(g, "loss.") and g["loss.rollout_is"] == "sequence",
        f"The sequence threshold of the loss {_PRODUCT}",
        source=f"{HELPER}:580 compute_rollout_correction_weights"),
    surprise("rollout_rs",
        lambda g: (g["adv_estimator"] in LAST_TOKEN
            and any(option.startswith(("token", "binary")) for option in _options(g))),
        "Token rejection runs before advantages: where it removes the last token, {adv_estimator} loses the whole "
        "reward of the sequence; use GRPO or RLOO, or reject by sequence.",
        source="trainer/ppo/v1/trainer_base.py:1771 PPOTrainer._compute_advantage"),
    remark("rollout_rs", lambda g: bool(_options(g)),
        "Rejected rows still vote in group baselines (GRPO, RLOO), as with ours; baseline kept would leave them out."),
    surprise("use_v1", lambda g: not g["use_v1"] and bool(_options(g)) and _mode(g) == "token-mean",
        "The legacy trainer divides by the tokens left after rejection, so rejected tokens raise the others' step; "
        "the v1 trainer and other frameworks count before rejection.",
        source="workers/utils/padding.py:71 left_right_2_no_padding"),
    remark("rollout_rs", lambda g: bool(_options(g)) and counts_within(g, ""),
        "A mean per sequence runs over the tokens that rejection left of it, and is divided by ppo_mini_batch_size × "
        "n, rejected rows included; read as denominator kept: pass a Denominator with that number of rows."),
    remark("loss.rollout_rs", lambda g: bool(_options(g, "loss.")),
        "Bypass rejects inside the loss: a mean per sequence runs over what is left, while the step's tokens and "
        "rows are counted before; read as denominator kept where the mean is per sequence: pass a Denominator with "
        "the rows before rejection. Else trained."),
    remark("rollout_rs", lambda g: bool(_options(g)) and (g["use_kl_loss"] or g["entropy_coeff"]),
        "Rejected tokens leave the KL and entropy terms of the actor too, and the critic's loss; in bypass mode they "
        "do not."),
    remark("rollout_rs_threshold", lambda g: _has_k1(g) and "_" not in str(g["rollout_rs_threshold"]),
        _ONE_NUMBER),
    remark("loss.rollout_rs_threshold",
        lambda g: _has_k1(g, "loss.") and "_" not in str(g["loss.rollout_rs_threshold"]),
        _ONE_NUMBER),
    defect("rollout_is_threshold", lambda g: _works_out_weights(g) and "_" in str(g["rollout_is_threshold"]),
        f"Where every weight falls outside the band {{rollout_is_threshold}}, {_BAND}",
        source=f"{HELPER}:758 compute_is_metrics"),
    defect("loss.rollout_is_threshold",
        lambda g: _works_out_weights(g, "loss.") and "_" in str(g["loss.rollout_is_threshold"]),
        f"Where every weight of a micro-batch falls outside the band of the loss, {_BAND}",
        source=f"{HELPER}:758 compute_is_metrics"),
    remark("loss_agg_mode", lambda g: _weighs(g) and str(_mode(g)).startswith("seq-"),
        "A NaN log-prob at a masked token makes a NaN weight there, and {loss_agg_mode} multiplies it by the mask, "
        "so the loss is NaN; token-mean is safe."),
    remark("rollout_is", lambda g: _works_out_weights(g) and g["rollout_is"] == "sequence",
        "rollout_is_seq_*, perplexities and chi2_seq also average over rows without tokens."),
    surprise("adv_estimator",
        lambda g: (g["use_v1"] and g.has("adv_estimator") and g["adv_estimator"] == "grpo"
            and any(option.startswith("seq") or option in ("sequence", "geometric") for option in _options(g))),
        "With the v1 trainer, where the last row of a session of several trajectories is rejected, every row of the "
        "session gets advantage 0; reject by token, or use the legacy trainer.",
        source="trainer/ppo/v1/utils.py:208 compute_advantage_for_multi_trajectories"),
    remark("rollout_rs", lambda g: "binary_kl" in _options(g) + _options(g, "loss."),
        "binary_kl (#6800) is not in verl 0.9.1; it is read as proposed there: the larger of both directions, "
        "probabilities held within [1e-6, 1 − 1e-6]."),
    remark("rollout_rs", lambda g: g["rollout_rs"] in RATIO_REJECTIONS,
        "The option {rollout_rs} was removed in #4544, where it tested the ratio itself; its successor tests the "
        "inverse, so migrating keeps the meaning only with reciprocal bounds."),
    remark("rollout_token_veto_threshold",
        lambda g: g.has("rollout_token_veto_threshold") and g.is_on("rollout_token_veto_threshold"),
        "The veto was removed in #4544; seq_max_k2 with {rollout_token_veto_threshold} → ½·log² is the nearest "
        "option and also rejects on the high side."),
    remark("rollout_is_level", lambda g: g.has(*FIRST_KEYS),
        "rollout_is_level, rollout_is_mode and rollout_is_veto_threshold were removed in #3984; read as they were: "
        "now rollout_is, rollout_rs and their thresholds."),
    remark("tis_imp_ratio_cap", lambda g: g.has("tis_imp_ratio_cap"),
        "tis_imp_ratio_cap was removed in #3694; now rollout_is: token with rollout_is_threshold: "
        "{tis_imp_ratio_cap}."),
    surprise("clip_ratio_c", lambda g: g["loss_mode"] in ("dppo_tv", "dppo_kl") and not g.has("clip_ratio_c"),
        "{loss_mode} caps its ratio at clip_ratio_c, {clip_ratio_c} by default: the 20 in its code is never reached.",
        source=f"{ALGORITHMS}:1427 compute_policy_loss_dppo_tv"),
    remark("kl_ctrl.type", lambda g: bool(g["use_kl_in_reward"]) and g["kl_ctrl.type"] == "adaptive",
        "An adaptive controller moves the coefficient with the measured KL; kl_coef is only where it starts."),
    surprise("clip_ratio",
        lambda g: (g.has("clip_ratio") and g["loss_mode"] in CLIPPED
            and any(not g.has(side) and g[side] != g["clip_ratio"] for side in ("clip_ratio_low", "clip_ratio_high"))),
        "clip_ratio is not read: clip_ratio_low and clip_ratio_high have defaults of their own (0.2); set those.",
        source=f"{ALGORITHMS}:1321 compute_policy_loss_vanilla"),
    remark("clip_ratio_c", lambda g: g.speaks_of("loss") and g["loss_mode"] == "vanilla",
        "The dual clip is always on, at {clip_ratio_c}; most frameworks leave it out by default."),
    surprise("loss_mode", lambda g: g["loss_mode"] == "geo_mean",
        "geo_mean takes a plain mean over the rows of the micro-batch, so its gradient grows with the number of "
        "micro-batches.",
        source=f"{ALGORITHMS}:2000 compute_policy_loss_geo_mean"),
    surprise("loss_agg_mode",
        lambda g: g["loss_mode"] in FORCED and g.has("loss_agg_mode") and g["loss_agg_mode"] != "seq-mean-token-mean",
        "{loss_mode} always averages per sequence first, whatever loss_agg_mode says.",
        source=f"{ALGORITHMS}:1688 compute_policy_loss_sapo"),
    surprise("loss_scale_factor",
        lambda g: g["loss_agg_mode"] == "seq-mean-token-sum-norm" and not g.is_on("loss_scale_factor"),
        "Without loss_scale_factor the sum is divided by the width of the micro-batch, so the step depends on the "
        "longest answer in it; set it to the longest answer allowed.",
        source=f"{ALGORITHMS}:1191 agg_loss"),
    remark("loss_mode", lambda g: g["loss_mode"] == "gspo",
        "GSPO here keeps each token's own gradient under the sequence ratio and uses the configured loss_agg_mode; "
        "OpenRLHF and NeMo-RL differentiate the mean and force a sequence mean."),
    remark("adv_estimator",
        lambda g: g.has("adv_estimator") and g["adv_estimator"] in ("grpo", "rloo", "opo", "gpg", "grpo_vectorized"),
        "A group of one keeps its raw reward as advantage; ours gives 0 by default, ms-swift and NeMo-RL too."),
    remark("adv_estimator", lambda g: g.has("adv_estimator") and g["adv_estimator"] not in LAST_TOKEN,
        "The reward of a row is the sum over all its tokens, masked or not."),
    remark("loss_mode", lambda g: g["loss_mode"] == "bapo",
        "bapo is a loss of its authors' recipe, not of verl itself. A clipped token counts with its bound, so that "
        "raising the lower bound never brings the balance up."),
    remark("adv_estimator", lambda g: str(g["adv_estimator"]).endswith("optimal_token_baseline"),
        "It needs Σπ² of every token (calculate_sum_pi_squared): pass it as `squares`, and the weights of rollout_is "
        "as `weight`."),
    surprise("adv_estimator", lambda g: g["adv_estimator"] == "optimal_token_baseline",
        "Rows are compared at the same place of the answer, untrained tokens counted; ours and "
        "tir_optimal_token_baseline count trained tokens. The two differ where tool output stands between.",
        source=f"{ALGORITHMS}:964 compute_optimal_token_baseline_advantage"),
)  # fmt: skip


DIALECT = Dialect(
    SIGNATURES["verl"],
    version="0.9.1",
    versions=(
        Version("before #3694", ("tis_imp_ratio_cap",)),
        Version("#3694 until #3984", FIRST_KEYS),
        Version(
            "#3984 until #4544",
            (
                "rollout_rs_threshold_lower",
                "rollout_token_veto_threshold",
                "bypass_old_logprob_for_rollout",
                "use_pure_rollout_correction",
                "use_policy_gradient",
            ),
        ),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    closed=(SECTION, LOSS_SECTION),
    entry_points=r"verl\..*|recipe\.dapo\..*|(?!recipe\.).*main_(ppo|dapo)\w*(\.py)?",
    implied=(
        (
            r"verl\.experimental\.(fully_async_policy|one_step_off_policy)\..*",
            {f"{SECTION}.bypass_mode": True, "actor_rollout_ref.rollout.calculate_log_probs": True},
        ),
    ),
    others=("rollout_is_fn", "enable", "distillation"),
    apart=(
        "A NaN log-prob is rejected by rollout_rs and makes rollout_is NaN; ours takes the token as never trained.",
        "The mean over a sequence divides by length + 1e-8; ours by the length.",
    ),
    candidates=candidates,
    outdated=is_removed,
)
