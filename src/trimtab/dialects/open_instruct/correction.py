"""open-instruct (e6c3044a): `rho_*` of GRPOExperimentConfig. A bound of 0 is no bound; the mask never changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Limit
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import OFF, Gates, alone, ratio_gate, weight_of
from trimtab.errors import ConfigError

SAFETY = Limit(bound=10.0, at="token")
REMOVED = ("truncated_importance_sampling_ratio_cap", "tis_mask_lower", "tis_mask_upper")
RHO = ("use_rho_correction", "rho_clamp", "rho_mask")


def correction_of(given: Given) -> Correction:
    """A clamped weight, and a gate that zeroes."""
    if given["use_vllm_logprobs"]:
        return OFF.but(policies="bypass")
    if given["use_icepop"]:
        raise ConfigError(
            "open-instruct use_icepop cannot be said: it stood in no release and zeroes tokens outside [1/cap, cap]. Write "
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
