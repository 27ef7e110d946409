"""A gate as one threshold: which gates have one, what it is compared with, and what it means in words."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.errors import ConfigWarning

SHARES = (0.999, 0.99, 0.95, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)
PRINTED_SHARES = (0.99, 0.9, 0.5)
"""Shares whose thresholds are printed."""

Values = NDArray[np.float64]


def gates_of(rule: Correction) -> list[Gate]:
    """The tests of a correction that have one threshold per side, on their own; weights that become 0 outside are tests too."""
    with warnings.catch_warnings():  # said when the correction was read
        warnings.simplefilter("ignore", ConfigWarning)
        found = [
            gate.but(scope="trained", action="reject", pair=None)
            for gate in rule.gates
            if gate.when == "always" and gate.agg != "budget" and gate.action != "observe" and _is_constant(gate)
        ]
    weight = rule.weight
    if weight is not None and weight.outside == "zero" and weight.level == "token" and _is_constant(weight):
        found.append(Gate(metric="ratio", lower=weight.lower, upper=weight.upper))
    return found


def _is_constant(part: Gate | Weight) -> bool:
    """Whether its bounds are one threshold for all batches and units."""
    return part.bounds is None and part.bound_scale == "none"


def gate_distance(gate: Gate, low: Values, high: Values) -> Values:
    """One number that the gate compares with one threshold; ratios come in log space."""
    two_sided = gate.lower is not None and gate.upper is not None
    farthest = np.maximum(np.abs(low), np.abs(high)) if two_sided else -low if gate.upper is None else high
    return np.exp(farthest) if gate.metric == "ratio" else farthest


def threshold_form(gate: Gate) -> str:
    """What a threshold t of this gate means."""
    name = _name(gate)
    if gate.lower is not None and gate.upper is not None:
        return f"1/t ≤ {name} ≤ t" if gate.metric == "ratio" else f"|{name}| ≤ t"
    if gate.upper is None:
        return f"{name} ≥ 1/t" if gate.metric == "ratio" else f"{name} ≥ −t"
    return f"{name} ≤ t"


def _name(gate: Gate) -> str:
    """Metric and level in words; the mean of log-ratios is the geometric mean, their sum the product."""
    gathered = {"mean": "geometric mean", "sum": "product"} if gate.metric == "ratio" else {}
    agg = gathered.get(str(gate.agg), {"every": "every token's"}.get(str(gate.agg), gate.agg or ""))
    return " ".join(part for part in (gate.level, agg, gate.metric.replace("_", " ")) if part)


def gate_sentence(gate: Gate) -> str:
    """The gate with its bounds, in words."""
    lower = "" if gate.lower is None else f"{gate.lower:g} ≤ "
    upper = "" if gate.upper is None else f" ≤ {gate.upper:g}"
    return f"{lower}{_name(gate)}{upper}"
