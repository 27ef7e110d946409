"""Bar charts of a report: token classes, ages, and where the time goes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow.compute as pc

from trimtab.report.draw.bars import BarChart, Bars
from trimtab.report.run import Run
from trimtab.report.series import Series
from trimtab.report.tokens import Band, Tokens, bool_column, by_age, by_place, by_probability

EDGES = np.array([-np.inf, -3, -1.6, -0.69, -0.3, -0.1, -0.01, 0.01, 0.1, 0.3, 0.69, 1.6, 3, np.inf])
EDGE_NAMES = ("< 1/20", "1/20", "1/5", "1/2", "1/1.35", "1/1.1", "1", "1.1", "1.35", "2", "5", "20", "> 20")


def class_charts(run: Run, found: Tokens | None) -> Iterator[BarChart]:
    """Ratio distribution, staleness, and mismatch by age, probability and place; those the rollouts can give."""
    if found is not None and len(found):
        yield _ratios(found, run.span)
    if run.rollouts is not None and run.rollouts.num_rows and "staleness" in run.rollouts.column_names:
        yield _staleness(run)
    if found is None or not len(found):
        return
    for name, title, note, bands in (
        (
            "by-age",
            "Mismatch by age of the token",
            "Log scale. High at age 0: engine, precision or settings. Growing with age: staleness.",
            by_age(found),
        ),
        (
            "by-probability",
            "Mismatch by sampled probability",
            "Log scale. The mean is usually owned by rare tokens.",
            by_probability(found),
        ),
        (
            "by-place",
            "Mismatch by place in the response",
            "Log scale. Growing along the response: a stale cache, or long contexts.",
            by_place(found),
        ),
    ):
        if bands:
            yield _band_chart(name, title, note, bands)


def _ratios(found: Tokens, span: tuple[int, int]) -> BarChart:
    tenth = max(1, (span[1] - span[0]) // 10)
    phases = (
        ("first tenth", 6, found.step <= span[0] + tenth),
        ("all", 1, np.ones(len(found), np.bool_)),
        ("last tenth", 2, found.step >= span[1] - tenth),
    )
    bars: list[Bars] = []
    for label, colour, here in phases:
        counts, _ = np.histogram(found.log_r[here], EDGES)
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
    ("time/sample", "sampling", 1),
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
