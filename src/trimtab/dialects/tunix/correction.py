"""Tunix 0.1.7: the sampler's log-probs as the anchor of the ratio, or `sampler_is`, a weight cut at a threshold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Weight
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import OFF, limit, refuse, weight_of
from trimtab.dialects.tunix.keys import AGENTIC, PROPOSED, is_agentic, is_ppo

SAFETY = 20.0


def correction_of(given: Given) -> Correction:
    """Of the agentic learner: three policies and a token's weight with sampler_is, two without; the others compare with nothing."""
    refuse(
        given.is_on(*PROPOSED),
        f"Tunix {', '.join(name for name in PROPOSED if given.is_on(name))}",
        "keep-bands (tunix#2129, #2270) and score centering are proposed and stand in no release. Leave them out",
    )
    if is_ppo(given) or not is_agentic(given) or not given["use_rollout_logps"]:
        return OFF
    if given["sampler_is"] is None:
        return Correction(policies="bypass", weight=Weight(level="one"))
    return Correction(weight=weight_of("token", upper=given["sampler_is_threshold"], limit=limit(SAFETY, "token")))


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Settings of the agentic learner."""
    found: dict[str, Any] = {"training_mode": "agentic_grpo"}
    if rule.gates or rule.centering is not None:
        return
    if rule.weight is not None and rule.weight.level == "token":
        bounds = {f"{AGENTIC}.sampler_is_threshold": rule.weight.upper or 1e12}
        yield {**found, f"{AGENTIC}.sampler_is": "token", **bounds}
        return
    yield {**found, f"{AGENTIC}.use_rollout_logps": rule.policies == "bypass"}
