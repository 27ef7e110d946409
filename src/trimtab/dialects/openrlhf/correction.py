"""OpenRLHF 0.11.2, `--algo.advantage.is_correction_*`: one gate, survivors weigh their own ratio, the mask stays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.dialects.framework import Given
from trimtab.dialects.openrlhf.keys import P
from trimtab.dialects.parts import OFF, ratio_gate, weight_of
from trimtab.errors import ConfigError

GATINGS: dict[str, dict[str, Any]] = {
    "binary_kl": {"metric": "binary_kl", "direction": "forward"},
    "tv": {"metric": "tv"},
}
REMOVED = {"tis": ("token", "clip"), "icepop": ("token", "mask"), "seq-mask-tis": ("seq", "mask")}
"""`vllm_is_correction_type` of 0.9.10 to 0.10.1, `is_correction_type` of 0.10.4 to 0.11.1 → level and mode."""


def correction_options(given: Given) -> tuple[str, str, str, float, float]:
    """Level, mode, gating and bounds, from today's flags, those of 0.10.4 to 0.11.1, or the ones before."""
    level, mode, gating = given["is_correction_level"], given["is_correction_mode"], given["is_correction_gating"]
    bounds = given["is_correction_threshold"]
    if given.is_on("enable_vllm_is_correction") and not given.has("is_correction_level"):
        level, mode = REMOVED["icepop" if given["use_icepop"] else given["vllm_is_correction_type"]]
        bounds = given["vllm_is_truncated_threshold"]
    elif given.is_on("is_correction_enable") and not given.has("is_correction_level"):
        level, mode = REMOVED[given["is_correction_type"]]
    if len(bounds) not in (1, 2):
        raise ConfigError(f"OpenRLHF is_correction_threshold needs one or two numbers, got {list(bounds)}.")
    lower, upper = (0.0, bounds[0]) if len(bounds) == 1 else bounds
    return level, mode, gating, lower, upper


def correction_of(given: Given) -> Correction:
    """A gate that zeroes, or a clamp; GSPO takes current/behavior as its ratio and ignores the rest."""
    level, mode, gating, lower, upper = correction_options(given)
    if level == "off":
        return OFF
    if given["policy_loss_type"] == "gspo":
        return OFF.but(policies="bypass")
    if mode == "clip":
        if (level, gating) != ("token", "ratio"):
            raise ConfigError("OpenRLHF is_correction_mode clip needs level token and gating ratio. Use mode mask.")
        return Correction(weight=weight_of("token", lower, upper))
    if gating == "ratio":
        if level == "token":
            return Correction(weight=weight_of("token", lower, upper, zero=True))
        return Correction(gates=ratio_gate("geometric", lower, upper, action="zero"), weight=Weight(level="token"))
    if lower > 0:
        raise ConfigError(
            f"OpenRLHF is_correction_threshold needs one number for {gating}, got a lower bound {lower:g}."
        )
    unit: dict[str, Any] = {"level": "token"} if level == "token" else {"level": "sequence", "agg": "mean"}
    gate = Gate(**GATINGS[gating], **unit, upper=upper, action="zero")
    return Correction(gates=(gate,), weight=Weight(level="token"))


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """One gate with token weights, or one bounded token weight."""
    weight = rule.weight
    if not rule.gates:
        if weight is None or weight.level == "one":
            gspo = rule.policies == "bypass"  # its ratio is current/behavior where a correction is on, and that is all
            yield {f"{P}_level": "token", "actor.policy_loss_type": "gspo"} if gspo else {f"{P}_level": "off"}
            return
        mode = "mask" if weight.outside == "zero" else "clip"
        bounds = [weight.lower or 0.0, weight.upper or 1e12]
        yield {f"{P}_level": "token", f"{P}_mode": mode, f"{P}_threshold": bounds}
        return
    gate = rule.gates[0]
    level = "token" if gate.level == "token" else "seq"
    gating = gate.metric
    bounds = [gate.lower or 0.0, gate.upper or 1e12] if gating == "ratio" else [gate.upper]
    yield {f"{P}_level": level, f"{P}_mode": "mask", f"{P}_gating": gating, f"{P}_threshold": bounds}
