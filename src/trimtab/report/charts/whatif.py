"""What a gate would have kept under other bounds, worked out from the recorded tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.report.draw.bars import BarChart, Bars
from trimtab.report.findings.filtering import gate_names
from trimtab.report.run import Run
from trimtab.report.text import short_number
from trimtab.report.tokens import Tokens

Floats = NDArray[np.float64]

STATISTICS: Mapping[str, Callable[[Floats], Floats]] = {
    "ratio": lambda log_r: log_r,  # gathered and compared in log space
    "abs_log_ratio": np.abs,
    "k2": lambda log_r: log_r**2 / 2,
    "k3": lambda log_r: np.expm1(np.clip(log_r, -20, 20)) - log_r,
}
FACTORS = tuple(10.0 ** (place / 4) for place in range(-5, 6))
"""By which the bound is moved, a quarter of a decade at a time."""
OFFERED: Mapping[str, Any] = {"metric": "k2", "level": "sequence", "agg": "mean", "upper": 0.02, "action": "reject"}
"""Shown for a run without a gate: what one would have done."""


def whatif_charts(run: Run, found: Tokens | None) -> Iterator[BarChart]:
    """One chart per gate that can be worked out again from log-ratios: tokens or sequence means, bounded above."""
    if found is None or not len(found):
        return
    named = gate_names(run)
    for name, gate in named or [("gate/none", OFFERED)]:
        if not can_be_moved(gate):
            continue
        whose = f"gate {name.removeprefix('gate/').partition('-')[0]}" if named else "a gate this run does not have"
        kept = kept_shares(found, gate)
        yield BarChart(
            f"whatif-{name.removeprefix('gate/')}",
            f"Other bounds for {whose}",
            f"Share of recorded tokens whose {gate['metric']} ({gate['level']}) lies inside, had its bound been moved. "
            f"Shaded: {'this run' if named else 'a usual bound'}.",
            [_label(gate, factor) for factor in FACTORS],
            [Bars("of right answers", kept[True], 3), Bars("of wrong answers", kept[False], 2)],
            labels=6,
            marked=FACTORS.index(1.0),
        )


def can_be_moved(gate: Mapping[str, Any]) -> bool:
    """Whether the recorded log-ratios and one bound are enough to judge again."""
    plain = (
        gate.get("pair") is None
        and gate.get("when", "always") == "always"
        and gate.get("scope", "trained") == "trained"
    )
    gathered = gate.get("level") == "token" or (gate.get("level") == "sequence" and gate.get("agg", "mean") == "mean")
    upper = gate.get("upper")
    movable = upper is not None and (gate.get("metric") != "ratio" or upper > 1)
    return plain and gathered and movable and gate.get("metric") in STATISTICS


def kept_shares(found: Tokens, gate: Mapping[str, Any]) -> dict[bool, list[float]]:
    """For right and for wrong answers, the share of tokens inside the gate's bounds moved by each of `FACTORS`.

    The bounds of a ratio are moved in log space, both sides alike.
    """
    value = STATISTICS[gate["metric"]](found.log_r.astype(np.float64))
    if gate["level"] == "sequence":
        rows, place = np.unique(found.row, return_inverse=True)
        value = (np.bincount(place, value, len(rows)) / np.bincount(place, minlength=len(rows)))[place]
    in_log = gate["metric"] == "ratio"
    upper, lower = (_bound(gate, side, in_log=in_log) for side in ("upper", "lower"))
    shares: dict[bool, list[float]] = {}
    for right in (True, False):
        part = value[found.right == right]
        inside = [
            np.mean((part <= upper * factor) & (part >= lower * factor)) if len(part) else 0.0 for factor in FACTORS
        ]
        shares[right] = [float(share) for share in inside]
    return shares


def _bound(gate: Mapping[str, Any], side: str, *, in_log: bool) -> float:
    bound = gate.get(side)
    if bound is None:
        return np.inf if side == "upper" else -np.inf
    return float(np.log(bound)) if in_log else float(bound)


def _label(gate: Mapping[str, Any], factor: float) -> str:
    upper = gate["upper"]
    return short_number(upper**factor if gate["metric"] == "ratio" else upper * factor, 2)
