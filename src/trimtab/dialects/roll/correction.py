"""ROLL (8eb27cc2): `train_infer_correction`, a weight and a list of filters, all judged on the base mask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from trimtab.config.algebra import Correction, Gate, Weight
from trimtab.config.base import excerpt
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import UNITS, Gates, ratio_gate, weight_of
from trimtab.dialects.roll.keys import LEVELS, SECTION
from trimtab.dialects.values import choice, flag, number
from trimtab.errors import ConfigError, UnknownNameError, nearest

FILTER: dict[str, tuple[Any, Any]] = {
    "enabled": (flag, False),
    "agg_type": (choice(*LEVELS), "token"),
    "ratio_enabled": (flag, True),
    "ratio_low": (number, 0.8),
    "ratio_high": (number, 1.2),
    "diff_enabled": (flag, False),
    "diff_low": (number, -0.2),
    "diff_high": (number, 0.2),
}
"""Field of one filter → kind and default."""


def correction_of(given: Given) -> Correction:
    """The weight, and every enabled filter as one or two gates."""
    if given["enabled"] and not given["detach"]:
        raise ConfigError(
            f"ROLL {SECTION}.is_weight.detach false cannot be said: a weight carries no gradient. Set it true."
        )
    gates: Gates = sum((_gates(each) for each in filters(given)), ())
    upper = given["upper_bound"]
    return Correction(
        gates=gates,
        weight=weight_of(given["weight_type"], upper=upper) if given["enabled"] else Weight(level="one"),
        denominator="kept" if gates and recomputes(given) else "trained",
    )


def recomputes(given: Given) -> bool:
    """Whether proximal log-probs are recomputed, as they also are where a KL coefficient is set."""
    paid = given.has("init_kl_coef") and given["init_kl_coef"] > 0
    return bool(not given["force_disable_old_logprobs_recompute"] and (given["enable_old_logprobs_recompute"] or paid))


def filters(given: Given) -> list[dict[str, Any]]:
    """The enabled filters with their defaults."""
    listed = given["filters"] or []
    if not isinstance(listed, list | tuple):
        raise ConfigError(f"ROLL {SECTION}.filters needs a list, got {excerpt(listed)}. Each item is one filter.")
    found: list[dict[str, Any]] = []
    for place, each in enumerate(cast("list[Any]", listed)):
        path = f"ROLL {SECTION}.filters.{place}"
        if not isinstance(each, dict):
            raise ConfigError(f"{path} needs a mapping, got {excerpt(each)}.")
        fields = cast("dict[str, Any]", each)
        for name in fields:
            if name not in FILTER:
                raise UnknownNameError(f"{path} has no key {name!r}. {nearest(name, FILTER)}")
        filled = {
            name: kind(f"{path}.{name}", fields[name]) if fields.get(name) is not None else default
            for name, (kind, default) in FILTER.items()
        }
        if filled["enabled"]:
            found.append(filled)
    return found


def _gates(each: dict[str, Any]) -> Gates:
    unit = each["agg_type"]
    found: Gates = ratio_gate(unit, each["ratio_low"], each["ratio_high"]) if each["ratio_enabled"] else ()
    if each["diff_enabled"]:
        found += (Gate(metric="prob_diff", **UNITS[unit], lower=each["diff_low"], upper=each["diff_high"]),)
    return found


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """One filter per gate."""
    units = {tuple(sorted(shape.items())): unit for unit, shape in UNITS.items() if unit in LEVELS}
    found: dict[str, Any] = {}
    listed: list[dict[str, Any]] = []
    for gate in rule.gates:
        shape = {"level": gate.level} | ({"agg": gate.agg} if gate.agg else {})
        unit = units.get(tuple(sorted(shape.items())))
        if unit is None or gate.metric not in ("ratio", "prob_diff"):
            return
        kind = "ratio" if gate.metric == "ratio" else "diff"
        open_sides = (1e-12, 1e12) if kind == "ratio" else (-1e12, 1e12)
        low = gate.lower if gate.lower is not None else open_sides[0]
        high = gate.upper if gate.upper is not None else open_sides[1]
        listed.append(
            {
                "enabled": True,
                "agg_type": unit,
                "ratio_enabled": kind == "ratio",
                "diff_enabled": kind == "diff",
                f"{kind}_low": low,
                f"{kind}_high": high,
            }
        )
    if listed:
        found[f"{SECTION}.filters"] = listed
    weight = rule.weight
    if weight is not None and weight.level != "one":
        level = {"enabled": True, "weight_type": weight.level, "upper_bound": weight.upper}
        found |= {f"{SECTION}.is_weight.{name}": value for name, value in level.items()}
    if rule.denominator == "kept":
        found["enable_old_logprobs_recompute"] = True
    yield found or {f"{SECTION}.is_weight.enabled": False}
