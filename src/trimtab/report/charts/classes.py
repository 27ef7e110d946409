"""Bar charts of a report: token classes, ages, where the time goes, and what a gate would have kept under other bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from trimtab.report.draw.bars import BarChart, Bars
from trimtab.report.findings.filtering import gate_names
from trimtab.report.html import short_number
from trimtab.report.run import Run
from trimtab.report.series import Series
from trimtab.report.tokens import Band, Tokens, bool_column, by_age, by_place, by_probability

EDGES = np.array([-np.inf, -3, -1.6, -0.69, -0.3, -0.1, -0.01, 0.01, 0.1, 0.3, 0.69, 1.6, 3, np.inf])
EDGE_NAMES = ("< 1/20", "1/20", "1/5", "1/2", "1/1.35", "1/1.1", "1", "1.1", "1.35", "2", "5", "20", "> 20")


def class_charts(run: Run, trained: Tokens | None) -> Iterator[BarChart]:
    """Ratio distribution, staleness, and mismatch by age, probability and place; those the rollouts can give."""
    if trained is not None and len(trained):
        yield _ratios(trained, run.span)
    if run.rollouts is not None and run.rollouts.num_rows and "staleness" in run.rollouts.column_names:
        yield _staleness(run)
    if trained is None or not len(trained):
        return
    for name, title, note, bands in (
        (
            "by-age",
            "Mismatch by age of the token",
            "Log scale. High at age 0: engine, precision or settings. Growing with age: staleness.",
            by_age(trained),
        ),
        (
            "by-probability",
            "Mismatch by sampled probability",
            "Log scale. The mean is usually owned by rare tokens.",
            by_probability(trained),
        ),
        (
            "by-place",
            "Mismatch by place in the response",
            "Log scale. Growing along the response: a stale cache, or long contexts.",
            by_place(trained),
        ),
    ):
        if bands:
            yield _band_chart(name, title, note, bands)


def _ratios(trained: Tokens, span: tuple[int, int]) -> BarChart:
    tenth = max(1, (span[1] - span[0]) // 10)
    phases = (
        ("first tenth", 6, trained.step <= span[0] + tenth),
        ("all", 1, np.ones(len(trained), np.bool_)),
        ("last tenth", 2, trained.step >= span[1] - tenth),
    )
    bars: list[Bars] = []
    for label, colour, here in phases:
        counts, _ = np.histogram(trained.log_r[here], EDGES)
        if here.any():
            bars.append(Bars(label, (counts / counts.sum()).tolist(), colour))
    return BarChart(
        "ratios",
        "Distribution of ratios",
        "Share of tokens by ratio target / behavior, on a log scale: the tails are what corrections are for.",
        EDGE_NAMES,
        bars,
        log=True,
        labels=7,
    )


def _staleness(run: Run) -> BarChart:
    assert run.rollouts is not None
    ages = pc.fill_null(run.rollouts.column("staleness"), -1).to_numpy()
    correct = bool_column(run.rollouts, "correct")
    most = min(int(ages.max()), 24)
    ages = np.minimum(ages, most)
    names = [
        ("?" if age < 0 else f"{age}{'+' if age == most == 24 else ''}")
        for age in range(int(min(ages.min(), 0)), most + 1)
    ]
    count = [(ages == age) for age in range(int(min(ages.min(), 0)), most + 1)]
    return BarChart(
        "ages",
        "Staleness of the responses",
        "How old the oldest token of each recorded response was, in versions.",
        names,
        [
            Bars("right", [float((here & correct).sum()) for here in count], 3),
            Bars("wrong", [float((here & ~correct).sum()) for here in count], 2),
        ],
        stacked=True,
        unit=" responses",
    )


def _band_chart(name: str, title: str, note: str, bands: Sequence[Band]) -> BarChart:
    labels = [f"{band.label}" for band in bands]
    return BarChart(name, title, note, labels, [Bars("mean k3", [band.k3 for band in bands], 1)], log=True)


PARTS = (
    ("time/wait", "waiting for samples", 2),
    ("time/proximal", "proximal log-probs", 4),
    ("time/train", "training", 3),
    ("time/evaluate", "evaluation", 5),
)


def time_chart(run: Run, most: int = 60) -> BarChart | None:
    """Seconds per step, stacked by what they went to; None where the run has no times."""
    step = run.series("time/step").finite
    parts = [(label, run.series(metric).finite, colour) for metric, label, colour in PARTS]
    if run.setting("backend") == "lockstep":  # one process: waiting for samples is making them
        parts[0] = ("sampling", parts[0][1], 1)
    parts = [(label, series, colour) for label, series, colour in parts if len(series)]
    if not parts:
        return None
    first, last = run.span
    edges = np.unique(np.linspace(first, last + 1, min(most, last - first + 1) + 1).astype(np.int64))
    bars = [Bars(label, _means(series, edges), colour) for label, series, colour in parts]
    if len(step):
        whole = _means(step, edges)
        rest = [max(0.0, total - sum(bar.heights[place] for bar in bars)) for place, total in enumerate(whole)]
        bars.append(Bars("the rest of the step", rest, 6))
    names = [
        f"{low}" if high - low == 1 else f"{low}–{high - 1}"
        for low, high in zip(edges.tolist(), edges[1:].tolist(), strict=False)
    ]
    return BarChart(
        "time",
        "Seconds per step",
        "Means over the steps of each bar. Sampling beside the learner shows as waiting only where the learner had to wait.",
        names,
        bars,
        stacked=True,
        unit=" s",
        labels=6,
    )


def _means(series: Series, edges: np.ndarray) -> list[float]:
    sums, _ = np.histogram(series.steps, edges, weights=series.values)
    counts, _ = np.histogram(series.steps, edges)
    return (sums / np.maximum(counts, 1)).tolist()


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


def whatif_charts(run: Run, trained: Tokens | None) -> Iterator[BarChart]:
    """One chart per gate that can be worked out again from log-ratios: tokens or sequence means, bounded above."""
    if trained is None or not len(trained):
        return
    named = gate_names(run)
    for name, gate in named or [("gate/none", OFFERED)]:
        if not can_be_moved(gate):
            continue
        whose = f"gate {name.removeprefix('gate/').partition('-')[0]}" if named else "a gate this run does not have"
        kept = kept_shares(trained, gate)
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


def kept_shares(trained: Tokens, gate: Mapping[str, Any]) -> dict[bool, list[float]]:
    """For right and for wrong answers, the share of tokens inside the gate's bounds moved by each of `FACTORS`.

    The bounds of a ratio are moved in log space, both sides alike.
    """
    value = STATISTICS[gate["metric"]](trained.log_r.astype(np.float64))
    if gate["level"] == "sequence":
        rows, place = np.unique(trained.row, return_inverse=True)
        value = (np.bincount(place, value, len(rows)) / np.bincount(place, minlength=len(rows)))[place]
    in_log = gate["metric"] == "ratio"
    upper, lower = (_bound(gate, side, in_log=in_log) for side in ("upper", "lower"))
    shares: dict[bool, list[float]] = {}
    for right in (True, False):
        part = value[trained.right == right]
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
