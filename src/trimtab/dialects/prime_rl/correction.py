"""prime-rl (559b4477): `trainer.loss`, two policies only: current against behavior, gated by how far a probability moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.dialects.dialect import Given
from trimtab.dialects.parts import Gates, ratio_gate, weight_of
from trimtab.dialects.prime_rl.keys import SECTION
from trimtab.dialects.prime_rl.loss import REMOVED


def correction_of(given: Given) -> Correction | None:
    """Which tokens' policy term survives; its ratio carries the gradient, so the weight is 1."""
    if given["type"] == "custom":
        return None
    if given.has(*REMOVED):
        return _removed_keys(given)
    if given["type"] == "ipo":
        gates = (Gate(metric="tv", upper=given["ipo_threshold"]),)
    else:
        rising = Gate(metric="prob_diff", upper=given["dppo_mask_high"], when="positive_advantage")
        falling = Gate(metric="prob_diff", lower=-given["dppo_mask_low"], when="nonpositive_advantage")
        gates = (rising, falling)
    return Correction(policies="bypass", gates=gates, weight=Weight(level="one"))


def _removed_keys(given: Given) -> Correction:
    """Before 02bdca2e4: bounds on ratios, and a detached ratio in front of log current."""
    masks = (("token", "token_mask"), ("geometric", "geo_mask"), ("every", "sequence_mask"))
    gates: Gates = sum((ratio_gate(unit, given[f"{name}_low"], given[f"{name}_high"]) for unit, name in masks), ())
    if given["ratio_type"] == "sequence":
        weight = weight_of("sequence", upper=given["sequence_clip_high"], limit=Limit(bound=10.0, at="gathered"))
    else:
        weight = Weight(level="token")
    return Correction(policies="bypass", gates=gates, weight=weight)


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Both kinds."""
    if len(rule.gates) == 1:
        yield {f"{SECTION}.type": "ipo", f"{SECTION}.ipo_threshold": rule.gates[0].upper}
    if len(rule.gates) == 2:
        bounds = {"dppo_mask_high": rule.gates[0].upper, "dppo_mask_low": -(rule.gates[1].lower or 0.0)}
        yield {f"{SECTION}.type": "default", **{f"{SECTION}.{name}": value for name, value in bounds.items()}}
