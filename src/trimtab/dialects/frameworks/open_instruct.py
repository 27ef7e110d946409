"""open-instruct (e6c3044a): `rho_*`, `loss_fn` and the group baseline of GRPOExperimentConfig.

A bound of 0 is no bound; the mask never changes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Estimator, Grpo, MaxRl
from trimtab.config.correction import Correction, Gate, Limit
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Dialect, Given, Key, Version, defect, remark, surprise
from trimtab.dialects.parts import OFF, AdvantagePart, Gates, LossPart, alone, ratio_gate, refuse, weight_of
from trimtab.dialects.registry import SIGNATURES
from trimtab.dialects.values import UNSAID, choice, flag, number, raw, text
from trimtab.errors import ConfigError

KEYS = (
    Key("use_rho_correction", flag, True),
    Key("rho_clamp_lower_bound", number, 0.0),
    Key("rho_clamp_upper_bound", number, 2.0),
    Key("rho_mask_lower_bound", number, 0.0),
    Key("rho_mask_upper_bound", number, 0.0),
    Key("rho_mask_sequence_level", flag, False),
    Key("rho_mask_tv_divergence", flag, False),
    Key("use_vllm_logprobs", flag, False),
    Key("truncated_importance_sampling_ratio_cap", number, 2.0, legacy=True),
    Key("use_icepop", flag, False, legacy=True),
    Key("tis_mask_lower", number, 0.0, legacy=True),
    Key("tis_mask_upper", number, 0.0, legacy=True),
    Key("loss_fn", text, "dapo", part="loss", options=(UNSAID, "dapo", "cispo")),
    Key("clip_lower", number, 0.2, part="loss"),
    Key("clip_higher", number, 0.272, part="loss"),
    Key("beta", number, 0.05, part="loss", toggle=True, joint=("kl_estimator",)),
    Key("kl_estimator", choice("0", "1", "2", "3", "kl1", "kl2", "kl3", "kl4"), "2", part="loss"),
    Key("load_ref_policy", flag, True, part="other"),
    Key("non_stop_penalty", flag, False, part="other"),
    Key("non_stop_penalty_value", number, 0.0, part="other"),
    Key("loss_denominator", raw, "token", part="loss", options=(UNSAID, 1024.0), holds=number),
    Key("mask_truncated_completions", flag, False, part="other"),
    Key("advantage_normalization_type", choice("centered", "standard", "max_rl"), "centered", part="advantage"),
)


# ── the correction ────────────────────────────────────────────────────────────────────────────────────────────────────

SAFETY = Limit(bound=10.0, at="token")
REMOVED = ("truncated_importance_sampling_ratio_cap", "tis_mask_lower", "tis_mask_upper")
RHO = ("use_rho_correction", "rho_clamp", "rho_mask")


def correction_of(given: Given) -> Correction:
    """A clamped weight, and a gate that zeroes."""
    if given["use_vllm_logprobs"]:
        return OFF.but(policies="bypass")
    if given["use_icepop"]:
        raise ConfigError(
            "open-instruct use_icepop is not supported: it was in no release and zeroes tokens outside [1/cap, cap]. Write "
            "rho_mask_lower_bound and rho_mask_upper_bound."
        )
    if given.has(*REMOVED) and not _says_rho(given):
        return _removed_keys(given)
    if not given["use_rho_correction"] or (is_early(given) and not says_correction(given)):
        return OFF
    _check(given)
    unit = "geometric" if given["rho_mask_sequence_level"] else "token"
    lower, upper = _bounds(given, "rho_clamp")
    return Correction(gates=_gates(given, unit), weight=weight_of(unit, lower, upper, limit=SAFETY))


def is_early(given: Given) -> bool:
    """Whether the file is of the versions that called the estimators kl1 to kl4: those began without a correction."""
    return given.has("kl_estimator") and given["kl_estimator"].startswith("kl")


def says_correction(given: Given) -> bool:
    """Whether a correction was asked for, by today's keys or by those before them."""
    return given.has(*REMOVED) or _says_rho(given)


def _says_rho(given: Given) -> bool:
    return any(label.startswith(RHO) for label in given.values)


def _removed_keys(given: Given) -> Correction:
    """Before the rho_* flags: a cap on the token weight, and a mask on current/behavior."""
    cap = given["truncated_importance_sampling_ratio_cap"]
    gates = ratio_gate(
        "token",
        given["tis_mask_lower"] or None,
        given["tis_mask_upper"] or None,
        action="zero",
        limit=SAFETY,
        pair="current/behavior",
    )
    if cap <= 0:
        return alone(given, gates)
    return Correction(gates=gates, weight=weight_of("token", upper=cap, limit=SAFETY))


def _check(given: Given) -> None:
    """What open-instruct refuses itself: bounds that do not contain 1. Those of a divergence are free."""
    for begins in ("rho_clamp", *(() if given["rho_mask_tv_divergence"] else ("rho_mask",))):
        lower, upper = _bounds(given, begins)
        if (lower is not None and lower >= 1) or (upper is not None and upper <= 1):
            raise ConfigError(
                f"open-instruct {begins} bounds need lower < 1 < upper, got [{lower}, {upper}]. 0 is open."
            )


def _bounds(given: Given, begins: str) -> tuple[float | None, float | None]:
    return given[f"{begins}_lower_bound"] or None, given[f"{begins}_upper_bound"] or None


def _gates(given: Given, unit: str) -> Gates:
    lower, upper = _bounds(given, "rho_mask")
    if not given["rho_mask_tv_divergence"]:
        return ratio_gate(unit, lower, upper, action="zero", limit=SAFETY)
    if (lower, upper) == (None, None):
        return ()
    fields: dict[str, Any] = {"lower": lower, "upper": upper, "when": "moving_away", "action": "zero", "limit": SAFETY}
    return (Gate(metric="ratio_deviation", level="sequence", **fields),)


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """A weight and at most one gate."""
    weight = rule.weight
    if weight is None or weight.level == "one":
        behavior = {"use_vllm_logprobs": True} if rule.policies == "bypass" else {}
        yield {**behavior, "use_rho_correction": False}  # on unless it is said, and refused beside vLLM's log-probs
        return
    found: dict[str, Any] = {"use_rho_correction": True, "rho_mask_sequence_level": weight.level == "geometric"}
    zeroed = weight.outside == "zero"
    clamp = (0.0, 0.0) if zeroed else (weight.lower or 0.0, weight.upper or 0.0)
    mask = (weight.lower or 0.0, weight.upper or 0.0) if zeroed else (0.0, 0.0)
    for gate in rule.gates:
        mask = (gate.lower or 0.0, gate.upper or 0.0)
        found["rho_mask_tv_divergence"] = gate.metric == "ratio_deviation"
    for begins, (lower, upper) in (("rho_clamp", clamp), ("rho_mask", mask)):
        found |= {f"{begins}_lower_bound": lower, f"{begins}_upper_bound": upper}
    yield found


# ── the loss ──────────────────────────────────────────────────────────────────────────────────────────────────────────

KL_ESTIMATORS: dict[str, dict[str, Any]] = {
    "0": {"estimator": "k1"},
    "1": {"estimator": "k2"},
    "2": {"estimator": "k3"},
    "3": {"estimator": "k1", "importance": "full"},
}
"""`kl_estimator` → ours; the last is the ratio times the log-ratio."""
FIRST_NAMES = {f"kl{int(name) + 1}": name for name in KL_ESTIMATORS}
FIRST_CLIP = 0.2
"""`clip_higher` of the versions that had kl1 to kl4, where it is left out."""


def loss_of(given: Given) -> LossPart:
    """DAPO's clip or CISPO without a lower bound; the KL term is not weighted."""
    return LossPart(loss=_loss(given), reduction=_reduction(given), kl=_kl(given))


def _loss(given: Given) -> Objective:
    name = given["loss_fn"]
    higher = FIRST_CLIP if is_early(given) and not given.has("clip_higher") else given["clip_higher"]
    if name == "dapo":
        return ours.Clip(low=given["clip_lower"], high=higher)
    if name == "cispo":
        return ours.Cispo(upper=1 + higher)
    refuse(name in ("dppo", "tvpo"), f"open-instruct loss_fn {name}", "it is younger than e6c3044a. Use dapo or cispo")
    raise ConfigError(f"open-instruct loss_fn needs dapo or cispo, got {name!r}.")


def _reduction(given: Given) -> Reduction:
    if given["loss_denominator"] == "token":
        return Reduction(mode="token-mean")
    constant = number("open-instruct loss_denominator", given["loss_denominator"])
    if constant <= 0:
        raise ConfigError(f"open-instruct loss_denominator needs token or a number above 0, got {constant:g}.")
    return Reduction(mode="token-sum", constant=constant)


def _kl(given: Given) -> KlPenalty | None:
    if not given["beta"] or not given["load_ref_policy"] or not given.has("beta", "kl_estimator"):
        return None
    name: str = given["kl_estimator"]
    return KlPenalty(coefficient=given["beta"], input_limit=40.0, **KL_ESTIMATORS[FIRST_NAMES.get(name, name)])


# ── advantages ────────────────────────────────────────────────────────────────────────────────────────────────────────


def advantage_of(given: Given) -> AdvantagePart:
    """The group's mean subtracted and, for `standard`, divided by its biased deviation."""
    kinds: dict[str, Estimator] = {
        "centered": Grpo(std=False, baseline="all"),
        "standard": Grpo(unbiased=False, eps=1e-8, baseline="all"),
        "max_rl": MaxRl(eps=1e-8, baseline="all"),
    }
    return AdvantagePart(advantage=kinds[given["advantage_normalization_type"]])


# ── findings ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _masks(given: Given) -> bool:
    """Whether the mask has a bound; 0 is none."""
    return bool(given["rho_mask_upper_bound"] or given["rho_mask_lower_bound"])


REMARKS = (
    defect("rho_mask_sequence_level",
        lambda g: (g["use_rho_correction"]
            and (g["rho_mask_sequence_level"] or (g["rho_mask_tv_divergence"] and _masks(g))) and not g.documented),
        "Sequence statistics are taken per packed row and mix the responses in it; pack one response per row, or use "
        "token level. Ours judges each response.",
        source="open_instruct/grpo_utils.py:372 _sequence_level_mean"),
    remark("rho_mask_sequence_level", lambda g: g["use_rho_correction"] and g["rho_mask_sequence_level"],
        "`sequence` is the geometric mean; verl, TRL, SkyRL and slime mean the product by it."),
    remark("rho_mask_upper_bound", lambda g: g["use_rho_correction"] and _masks(g),
        "Masked tokens weigh 0 and stay in the denominator."),
    surprise("rho_mask_lower_bound",
        lambda g: g["use_rho_correction"] and g["rho_mask_tv_divergence"] and g["rho_mask_lower_bound"] > 0,
        "With rho_mask_tv_divergence a lower bound drops tokens of sequences that are close to on-policy; leave it 0.",
        source="open_instruct/grpo_utils.py:426 compute_rho_correction"),
    remark("use_vllm_logprobs", lambda g: bool(g["use_vllm_logprobs"] and g["use_rho_correction"]),
        "use_vllm_logprobs and use_rho_correction (on by default) exclude each other; open-instruct stops unless the "
        "latter is false."),
    remark("truncated_importance_sampling_ratio_cap", lambda g: g.has(*REMOVED),
        "truncated_importance_sampling_ratio_cap and tis_mask_* became rho_clamp_upper_bound and rho_mask_*; the "
        "removed mask compared current, not proximal, with behavior."),
    surprise("clip_higher", lambda g: g["loss_fn"] == "cispo",
        "With cispo the ratio is bounded above by 1 + clip_higher and clip_lower is not read; verl, slime, NeMo-RL "
        "and ROLL also bound it below, TRL and ms-swift bound it by epsilon_high itself.",
        source="open_instruct/grpo_utils.py:515 compute_grpo_loss"),
    remark("mask_truncated_completions", lambda g: bool(g["mask_truncated_completions"]),
        "Answers that did not end leave the batch and its counts but still vote in the baseline; pass their rows "
        "masked."),
    remark("non_stop_penalty", lambda g: bool(g["non_stop_penalty"]),
        "Answers that did not end get the reward {non_stop_penalty_value} in place of their own; set it before the "
        "advantages."),
    remark("advantage_normalization_type", lambda g: g["advantage_normalization_type"] == "standard",
        "standard divides by the biased deviation plus 1e-8; most frameworks divide by the unbiased one plus 1e-6 or "
        "1e-4."),
    remark("advantage_normalization_type", lambda g: g["advantage_normalization_type"] == "max_rl",
        "max_rl divides by the group's mean reward, so it flips signs where that is negative; ours gives 0 there."),
    surprise("use_rho_correction", lambda g: g.whole and not says_correction(g) and not is_early(g),
        "No correction is named, so today's default holds: each ratio is cut at {rho_clamp_upper_bound}. Earlier "
        "versions began without one, and with clip_higher 0.2; --set use_rho_correction=false reads the file so.",
        source="open_instruct/grpo_utils.py:104-133 GRPOExperimentConfig"),
    remark("kl_estimator", is_early,
        "kl1 to kl4 became 0 to 3; the versions that had those names began without a correction and with clip_higher "
        "0.2, and the file is read so where it says nothing else."),
    remark("beta",
        lambda g: (g.speaks_of("loss") or g.whole) and not g.has("beta", "kl_estimator") and g["load_ref_policy"],
        "By default beta is {beta} and kl_estimator {kl_estimator} (k3): a KL term is added where a reference policy "
        "is loaded; set beta to have it read."),
)  # fmt: skip

DIALECT = Dialect(
    SIGNATURES["open-instruct"],
    version="e6c3044a",
    versions=(Version("before the rho_* flags", REMOVED),),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    entry_points=r"(?!.*\.py$).*|mason\.py|(.*/)?(grpo|grpo_fast)\.py",
    apart=("The log-ratio is held within ±10.",),
    candidates=candidates,
)
