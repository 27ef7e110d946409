"""SkyRL: `trainer.algorithm.off_policy_correction`.

Stages run in a fixed order, each on the mask the one before left: veto, token mask, weight, sequence mask.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Weight
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import Gates, limit, ratio_gate, refuse, weight_of
from trimtab.dialects.skyrl.keys import SECTION, A
from trimtab.dialects.skyrl.loss import two_policies
from trimtab.errors import ConfigError

SAFETY = 20.0
CAPS = {"token": "token_tis_ratio_clip_high", "sequence": "sequence_tis_ratio_clip_high"}
MASKS = {"geometric": ("geometric", "geo_mask"), "product": ("sequence", "product_mask")}
"""`sequence_mask_metric` → what is gathered, and how its bounds begin."""
STAGES = {"sequence every": "outlier_token_is_threshold", "token None": "token_mask_is_threshold"}
"""Level and agg of a gate → the stage that can say it."""


def correction_of(given: Given) -> Correction | None:
    """Veto, token mask, weight, sequence mask. None where use_tis turns every weight negative, for which there is no rule here."""
    refuse(
        given["score_centering"] not in (None, False),
        "SkyRL score_centering",
        "SkyRL#2244 proposes it and no release has it. Leave it out",
    )
    level, cap = tis_level_and_cap(given)
    two = two_policies(given)
    if two and level is not None:
        _refuse_two_weights(given)
    if level is not None and cap <= 0:
        refuse(not given["use_tis"], f"SkyRL {CAPS[level]} {cap:g}", "no weight is above 0 then. Set a cap above 1")
        return None
    gates = _masks(given, "proximal/behavior" if two else None)
    if level is None:
        return Correction(policies="bypass" if two else "decoupled", gates=gates, weight=Weight(level="one"))
    return Correction(gates=gates, weight=weight_of(level, upper=cap, scope="kept", limit=limit(SAFETY, level)))


def _refuse_two_weights(given: Given) -> None:
    """A loss that divides by behavior beside a weight that compares proximal with behavior."""
    name = given["policy_loss_type"]
    if name == "cispo":
        why = "SkyRL stops with an error, since the ratio of the loss is the whole correction already"
    else:
        why = "the ratio of the loss divides by behavior, the weight compares with proximal"
    raise ConfigError(
        f"SkyRL policy_loss_type {name} with tis_ratio_type is not supported: {why}. Keep the masks, drop tis_ratio_type."
    )


def _masks(given: Given, pair: str | None) -> Gates:
    """The three stages that reject, in order; the pair is named where it is not that of the loss."""
    gates = _pair(given, "every", "outlier_token_is_threshold", pair)
    if masks_both_sides(given):
        gates += _pair(given, "token", "token_mask_is_threshold", pair)
    if given["sequence_mask_metric"] is not None:
        gates += _pair(given, *MASKS[given["sequence_mask_metric"]], pair)
    return gates


def tis_level_and_cap(given: Given) -> tuple[str | None, float]:
    """What the weight is gathered over, none where there is no weight, and its cap; use_tis overrides the keys that replaced it."""
    if given["use_tis"]:
        return "token", given["tis_imp_ratio_cap"]
    level = given["tis_ratio_type"]
    return level, given[CAPS[level]] if level else 0.0


def masks_both_sides(given: Given) -> bool:
    """Whether the token mask has both bounds."""
    return given["token_mask_is_threshold_low"] is not None and given["token_mask_is_threshold_high"] is not None


def _pair(given: Given, unit: str, begins: str, pair: str | None) -> Gates:
    lower, upper = given[f"{begins}_low"], given[f"{begins}_high"]
    return ratio_gate(unit, lower, upper, scope="kept", limit=limit(SAFETY, unit), pair=pair)


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """Every gate to its stage; the order of stages is checked by reading back."""
    found: dict[str, Any] = {}
    for gate in rule.gates:
        stage = STAGES.get(f"{gate.level} {gate.agg}")
        if gate.level == "sequence" and gate.agg in ("mean", "sum"):
            name = "geometric" if gate.agg == "mean" else "product"
            found["sequence_mask_metric"] = name
            stage = MASKS[name][1]
        if stage is None:
            return
        defaults = (1e-12, 1e12) if "outlier" not in stage else (None, None)
        found |= {f"{stage}_low": gate.lower or defaults[0], f"{stage}_high": gate.upper or defaults[1]}
    weight = rule.weight
    if weight is not None and weight.level in CAPS:
        found |= {"tis_ratio_type": weight.level, CAPS[weight.level]: weight.upper or 1e12}
    full = {f"{SECTION}.{name}": value for name, value in found.items() if value is not None}
    yield full or {f"{SECTION}.tis_ratio_type": None}
    if rule.policies == "bypass":
        yield full | {f"{A}.cispo.cispo_anchor": "rollout"}
