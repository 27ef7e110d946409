"""Where the gap sits, drawn: by ratio, probability, position, age, length and engine; and what a threshold would keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from trimtab.audit.audit import Audit
from trimtab.audit.gap import Gap, Ints
from trimtab.audit.whatif import KeepCurve
from trimtab.report.charts.classes import EDGE_NAMES, EDGES
from trimtab.report.draw.bars import BarChart, Bars
from trimtab.report.html import short_number

PROBABILITIES = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.1)
PROBABILITY_NAMES = ("< .01", ".01–.1", ".1–.5", ".5–.9", ".9–.99", "> .99")
OLDEST = 12
MOST_SOURCES = 24
MOST_CURVES = 6


def gap_charts(gap: Gap) -> Iterator[BarChart]:
    """A chart for each thing that is known of the tokens."""
    if not len(gap):
        return
    counts, _ = np.histogram(gap.log_r, EDGES)
    yield BarChart(
        "ratios",
        "Distribution of ratios",
        "Share of tokens by ratio trainer / sampler, on a log scale.",
        EDGE_NAMES,
        [Bars("tokens", (counts / counts.sum()).tolist(), 1)],
        log=True,
        labels=7,
    )
    place = np.searchsorted(PROBABILITIES, np.exp(np.minimum(gap.behavior, 0)), "right") - 1
    yield _bars(
        gap,
        "by-probability",
        "Gap by sampled probability",
        "Log scale. Noise of few bits is largest on rare tokens.",
        place,
        PROBABILITY_NAMES,
    )
    edges = np.unique(np.quantile(gap.place, np.linspace(0, 1, 9)).astype(np.int64))
    yield _bands(
        gap,
        "by-position",
        "Gap by position in the response",
        "Log scale. A slope points to the cache or to long contexts.",
        gap.place,
        edges,
    )
    if gap.age is not None and (gap.age >= 0).any():
        names = [*(str(age) for age in range(OLDEST)), f"{OLDEST}+"]
        held = np.where(gap.age < 0, len(names), np.minimum(gap.age, OLDEST))
        yield _bars(
            gap, "by-age", "Gap by age", "Log scale. High at age 0: not staleness. Growing: staleness.", held, names
        )
    lengths = np.bincount(gap.sequence)[gap.sequence]
    edges = np.unique(np.quantile(lengths, np.linspace(0, 1, 7)).astype(np.int64))
    yield _bands(
        gap,
        "by-length",
        "Gap by length of the response",
        "Log scale. Mean k3 of the tokens of responses of this length.",
        lengths,
        edges,
    )
    if gap.source is not None and 1 < len(gap.sources) <= MOST_SOURCES:
        yield _bars(
            gap,
            "by-source",
            "Gap by engine",
            "Log scale. One that stands out has other weights or settings.",
            gap.source,
            gap.sources,
        )


def _bands(gap: Gap, name: str, title: str, note: str, value: Ints, edges: Ints) -> BarChart:
    """Bands between edges, the last one closed."""
    if len(edges) < 2:  # all the same
        return _bars(gap, name, title, note, np.zeros_like(value), [f"{edges[0]}"])
    names = [f"{low}–{high - 1}" if high - low > 1 else f"{low}" for low, high in pairwise(edges)]
    names[-1] = f"{edges[-2]}–{edges[-1]}"
    place = np.clip(np.searchsorted(edges, value, "right") - 1, 0, len(names) - 1)
    return _bars(gap, name, title, note, place, names)


def _bars(gap: Gap, name: str, title: str, note: str, place: Ints, names: Sequence[str]) -> BarChart:
    """Mean k3 of each class that has tokens; classes beyond the names are left out."""
    many = len(names)
    k3 = np.expm1(gap.held) - gap.held
    inside = place < many
    count = np.bincount(place[inside], minlength=many)
    mean = np.bincount(place[inside], k3[inside], many) / np.maximum(count, 1)
    there = [each for each in range(many) if count[each]]
    return BarChart(
        name,
        title,
        note,
        [names[each] for each in there],
        [Bars("mean k3", [float(mean[each]) for each in there], 1)],
        log=True,
    )


def keep_charts(audit: Audit) -> Iterator[BarChart]:
    """For each form of gate once, what other thresholds would keep."""
    shown: dict[str, KeepCurve] = {}
    for each in audit.rules.outcomes:
        for curve in each.curves:
            if curve.points:
                shown.setdefault(curve.form, curve)
    for place, (form, curve) in enumerate(list(shown.items())[:MOST_CURVES]):
        classes = [short_number(point[0]) for point in curve.points]
        right = [point[2] for point in curve.points]
        if any(each is None for each in right):
            bars = [Bars("of tokens", [point[1] for point in curve.points], 1)]
        else:
            bars = [
                Bars("of right answers", [point[2] or 0.0 for point in curve.points], 3),
                Bars("of wrong answers", [point[3] or 0.0 for point in curve.points], 2),
            ]
        yield BarChart(
            f"keeps-{place}",
            f"Kept where {form}",
            "Share of tokens kept as the threshold t, under each pair of bars, gets stricter.",
            classes,
            bars,
            labels=7,
        )


def share_chart(audit: Audit) -> BarChart:
    """How much of the gap each cause explains."""
    found = [(step.cause.title, step.share or 0.0) for step in audit.with_verdict("found")]
    rest = audit.unexplained
    parts = [*found, ("not explained", rest)] if rest > 5e-4 else found
    return BarChart(
        "shares",
        "What explains the gap",
        "Share of the mean k2, taken off from cause to cause.",
        [name for name, _ in parts],
        [Bars("of the gap", [share for _, share in parts], 2)],
        labels=4,
    )
