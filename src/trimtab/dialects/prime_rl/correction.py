"""prime-rl: `trainer.loss`, two policies only: current against behavior, gated by the ratio or by how far a probability moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import Gates, ratio_gate, refuse, weight_of
from trimtab.dialects.prime_rl.keys import SECTION
from trimtab.dialects.prime_rl.kinds import OPD_FALL, REMOVED, distils, loss_kind, ratio_bounds, threshold


def correction_of(given: Given) -> Correction | None:
    """Which tokens' policy term survives; its ratio carries the gradient, so the weight is 1."""
    if distils(given):
        gate = Gate(metric="prob_diff", lower=-OPD_FALL)
        return Correction(policies="bypass", gates=(gate,), weight=Weight(level="one"))
    if loss_kind(given) == "custom":
        return None
    centers = bool(given["score_centering"])
    refuse(
        centers and loss_kind(given) != "ipo",
        f"prime-rl score_centering with {loss_kind(given)}",
        "only ipo has it. Leave it out, or set type to ipo",
    )
    if given.has(*REMOVED):
        return _removed_keys(given)
    centering = "score" if centers else None
    return Correction(policies="bypass", gates=_gates(given), weight=Weight(level="one"), centering=centering)


def _gates(given: Given) -> Gates:
    kind = loss_kind(given)
    if kind == "ipo":
        return (Gate(metric="tv", upper=threshold(given)),)
    if kind == "icepop":
        return ratio_gate("token", *ratio_bounds(given))
    if kind == "default":
        rising = Gate(metric="prob_diff", upper=given["dppo_mask_high"], when="positive_advantage")
        return (rising, Gate(metric="prob_diff", lower=-given["dppo_mask_low"], when="nonpositive_advantage"))
    return ()  # ppo and cispo bound the ratio in the loss itself


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
    """Today's losses, and the one that dropped tokens by the sign of their advantage, which today's have no word for."""
    if not rule.gates:
        yield from ({f"{SECTION}.type": name} for name in ("ppo", "cispo"))
    if len(rule.gates) == 1:
        low, high = rule.gates[0].lower, rule.gates[0].upper
        centered = {f"{SECTION}.score_centering": True} if rule.centering is not None else {}
        yield {f"{SECTION}.type": "ipo", f"{SECTION}.eps": high, **centered}
        yield {f"{SECTION}.type": "icepop", f"{SECTION}.ratio_low": low or 1e-12, f"{SECTION}.ratio_high": high or 1e12}
    if len(rule.gates) == 2:
        bounds = {"dppo_mask_high": rule.gates[0].upper, "dppo_mask_low": -(rule.gates[1].lower or 0.0)}
        yield {f"{SECTION}.type": "default", **{f"{SECTION}.{name}": value for name, value in bounds.items()}}
