"""The charts of a report under their headings: which metrics, which scale, which bounds, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.report.charts.classes import class_charts, time_chart, whatif_charts
from trimtab.report.draw.axis import FREE, FROM_ZERO, LOG, SHARE, Scale
from trimtab.report.draw.bars import BarChart
from trimtab.report.draw.chart import Bound, Chart, ChartLine, Mark
from trimtab.report.draw.figure import DrawnChart, draw_chart
from trimtab.report.findings.filtering import bounds_text, gate_names
from trimtab.report.findings.judged import judged, with_start
from trimtab.report.html import short_number
from trimtab.report.metrics import METRICS
from trimtab.report.run import Run
from trimtab.report.tokens import Tokens


@dataclass(frozen=True)
class Curve:
    """A metric as a line; with `upper`, a band from one metric to another."""

    metric: str
    label: str
    colour: int
    upper: str | None = None
    faint: bool = False
    dots: bool = False
    started: bool = False
    """Whether the value before the first step belongs to it."""

    def line(self, run: Run) -> ChartLine:
        """The curve with the run's values."""
        upper = run.series(self.upper) if self.upper else None
        series = with_start(run, self.metric) if self.started else run.series(self.metric)
        return ChartLine(self.label, series, self.colour, upper, self.faint, self.dots)


def _no_bounds(run: Run) -> list[Bound]:
    return []


@dataclass(frozen=True)
class Panel:
    """A row of the table."""

    id: str
    title: str
    note: str
    curves: tuple[Curve, ...]
    scale: Scale = FREE
    bounds: Callable[[Run], list[Bound]] = _no_bounds

    def chart(self, run: Run) -> Chart:
        """The panel with the run's values."""
        lines = [line for line in (curve.line(run) for curve in self.curves) if len(line.series.finite)]
        return Chart(self.id, self.title, self.note, lines, self.scale, self.bounds(run))


def _panel_of(
    metric: str, label: str, note: str | None = None, bounds: Callable[[Run], list[Bound]] = _no_bounds
) -> Panel:
    """The panel of one metric alone; `note` where a report says more of it than a comparison."""
    shown = METRICS[metric]
    return Panel(
        shown.panel, shown.title, note or shown.note, (Curve(metric, label, 1),), scale=shown.scale, bounds=bounds
    )


def _clip_norm(run: Run) -> list[Bound]:
    limit = run.setting("learner.clip_norm")
    return [] if limit is None else [Bound(float(limit), f"clip_norm {short_number(limit)}")]


def _staleness_bound(run: Run) -> list[Bound]:
    bound = run.setting("rollout.max_staleness")
    return [] if bound is None else [Bound(float(bound), f"max_staleness {bound}")]


def _ratio_bounds(run: Run) -> list[Bound]:
    """Bounds of the weight, and of gates on single tokens' ratios."""
    rules: list[tuple[str, Any]] = [("weight", run.setting("correction.weight", {}))]
    rules += [
        ("gate", gate) for _, gate in gate_names(run) if gate.get("metric") == "ratio" and gate.get("level") == "token"
    ]
    bounds: list[Bound] = []
    for whose, rule in rules:
        if whose == "weight" and rule.get("level") != "token":
            continue
        bounds += [
            Bound(float(rule[side]), f"{whose} {side} {short_number(rule[side])}")
            for side in ("lower", "upper")
            if rule.get(side)
        ]
    return bounds


def _constant_bound(value: float, text: str) -> Callable[[Run], list[Bound]]:
    return lambda run: [Bound(value, text)]


SECTIONS: tuple[tuple[str, str, tuple[Panel, ...]], ...] = (
    (
        "glance",
        "At a glance",
        (
            Panel(
                "accuracy",
                "Accuracy",
                "Held-out problems by the learner's own weights; rollouts lag behind by their staleness.",
                (
                    Curve("rollout/accuracy", "rollouts", 6, faint=True),
                    Curve("eval/accuracy", "held out", 1, dots=True, started=True),
                ),
                scale=SHARE,
            ),
            Panel(
                "mismatch",
                METRICS["drift/k3"].title,
                "Learner against sampler, and what one step moved. Before a collapse it is high more often than it jumps.",
                (
                    Curve("policy/k3", "update: current vs. anchor", 6, faint=True),
                    Curve("drift/k3", "mismatch: target vs. behavior", 1),
                ),
                scale=LOG,
            ),
            _panel_of(
                "train/grad_norm", "norm", "Seldom a warning: it often moves only when accuracy does.", _clip_norm
            ),
        ),
    ),
    (
        "policies",
        "How far apart the policies are",
        (
            Panel(
                "ratio",
                "Ratio of a token",
                "Before any bound. A widening lower tail: tokens that were sampled and that the learner has turned away from.",
                (
                    Curve("ratio/min", "min to max", 6, upper="ratio/max"),
                    Curve("ratio/p01", "1 % to 99 %", 1, upper="ratio/p99"),
                    Curve("ratio/p50", "median", 1),
                ),
                scale=LOG,
                bounds=_ratio_bounds,
            ),
            Panel(
                "staleness",
                "Staleness",
                "Versions between the weights that sampled and the weights that learn.",
                (
                    Curve("staleness/oldest_max", "oldest of the batch", 2),
                    Curve("staleness/oldest_mean", "oldest token, mean", 1),
                    Curve("staleness/token_mean", "all tokens, mean", 6, faint=True),
                ),
                bounds=_staleness_bound,
                scale=FROM_ZERO,
            ),
        ),
    ),
    (
        "correction",
        "What the correction does",
        (
            Panel(
                "kept",
                METRICS["kept_fraction"].title,
                "Tokens left after every gate. Under 5 % a run starves; at 100 % the gates are as good as absent.",
                (
                    Curve("kept_fraction", "kept", 1),
                    Curve("missing_fraction", "log-probs missing", 2),
                ),
                scale=SHARE,
            ),
            _panel_of("weight/ess", "ESS", bounds=_constant_bound(0.3, "0.3: few tokens own the batch")),
            Panel(
                "selection",
                "Selection bias",
                "Negative above positive: the filter keeps wrong answers and throws right ones away. The other way round is usual.",
                (
                    Curve("selection/kept_given_positive", "kept of A > 0", 3),
                    Curve("selection/kept_given_negative", "kept of A < 0", 2),
                ),
                scale=SHARE,
            ),
            Panel(
                "advantage",
                "Mean advantage",
                "Kept below trained: what is left mostly pushes down.",
                (
                    Curve("selection/mean_advantage", "of trained tokens", 6, faint=True),
                    Curve("selection/net_advantage", "of kept tokens", 2),
                ),
                bounds=_constant_bound(0.0, ""),
            ),
            Panel(
                "clipping",
                "Clipped by the loss",
                "Share of kept tokens held at a bound of the policy loss.",
                (
                    Curve("policy/clip_high", "upper bound", 3),
                    Curve("policy/clip_low", "lower bound", 2),
                    Curve("policy/clip_dual", "dual bound", 5),
                ),
                scale=FROM_ZERO,
            ),
        ),
    ),
    (
        "policy",
        "The policy and its answers",
        (
            Panel(
                "reward",
                "Reward",
                "Held-out problems by the learner's own weights; rollouts lag behind by their staleness.",
                (
                    Curve("rollout/reward", "rollouts", 6, faint=True),
                    Curve("eval/reward", "held out", 1, dots=True, started=True),
                ),
            ),
            _panel_of("policy/entropy", "entropy"),
            _panel_of("rollout/length", "tokens"),
            Panel(
                "finish",
                "Truncated and failed",
                "Responses cut at the length limit; responses no verifier could score.",
                (Curve("rollout/truncated", "truncated", 2), Curve("rollout/failed", "failed", 5)),
                scale=FROM_ZERO,
            ),
            Panel(
                "signal",
                "Groups without a signal",
                "All answers alike, so that no advantage is left, out of all groups of the step.",
                (
                    Curve("advantage/groups", "groups", 6, faint=True),
                    Curve("advantage/zero_variance_groups", "all alike", 2),
                ),
                scale=FROM_ZERO,
            ),
            _panel_of("train/loss", "loss"),
        ),
    ),
    (
        "machine",
        "The machine",
        (
            _panel_of("throughput/samples", "samples/s"),
            _panel_of("throughput/tokens", "tokens/s"),
            Panel(
                "queue",
                "Groups on their way",
                "Being sampled, waiting to be trained, and dropped as too stale.",
                (
                    Curve("staleness/in_flight", "in flight", 1),
                    Curve("staleness/in_queue", "in queue", 6),
                    Curve("staleness/dropped", "dropped", 2),
                ),
                scale=FROM_ZERO,
            ),
            _panel_of("train/lr", "lr"),
        ),
    ),
)


def gate_charts(run: Run) -> Iterator[Chart]:
    """One panel per gate: its statistic against its bounds; and one of what each rejected."""
    colours = (1, 2, 3, 4, 5)
    shares: list[ChartLine] = []
    for place, (name, gate) in enumerate(gate_names(run)):
        curves = (
            Curve(f"{name}/p01", "1 % to 99 %", 1, upper=f"{name}/p99"),
            Curve(f"{name}/mean", "mean", 2, faint=True),
            Curve(f"{name}/p50", "median", 1),
        )
        title = f"Gate {place}: {gate.get('metric')} of each {gate.get('level')}"
        note = f"The statistic that bounds {bounds_text(gate)} judge; outside: {gate.get('action')}."
        sides = [
            Bound(float(gate[side]), f"{side} {short_number(gate[side])}")
            for side in ("lower", "upper")
            if gate.get(side) is not None
        ]
        yield Chart(name, title, note, [curve.line(run) for curve in curves], scale=LOG, bounds=sides)
        label = f"{place}: {gate.get('metric')} {gate.get('level')}"
        shares.append(Curve(f"{name}/rejected_tokens", label, colours[place % 5]).line(run))
    if shares:
        yield Chart(
            "rejected", "Rejected by each gate", "Share of tokens outside, whatever the action.", shares, scale=SHARE
        )


@dataclass(frozen=True)
class ChartSection:
    """Charts under one heading."""

    title: str
    charts: Sequence[DrawnChart]
    absent: Sequence[str]
    """Titles of charts whose metrics the run does not have."""


def chart_sections(run: Run, trained: Tokens | None, marks: Sequence[Mark] = ()) -> Iterator[ChartSection]:
    """Every chart of the run, drawn."""
    extra: dict[str, Sequence[Chart | BarChart]] = {
        "policies": list(class_charts(run, trained)),
        "correction": [*gate_charts(run), *whatif_charts(run, trained)],
    }
    span = chart_span(run)
    for name, title, panels in sections_of(run):
        time = time_chart(run) if name == "machine" else None
        charts = [*([time] if time else []), *(panel.chart(run) for panel in panels), *extra.get(name, ())]
        shown = [
            draw_chart(chart, span, marks) for chart in charts if isinstance(chart, BarChart) or not chart.is_empty
        ]
        yield ChartSection(
            title, shown, [chart.title for chart in charts if isinstance(chart, Chart) and chart.is_empty]
        )


def sections_of(run: Run) -> Iterator[tuple[str, str, Sequence[Panel]]]:
    """The table; with the reward at the place of the accuracy, and the other way round, where the run is judged by it."""
    by_id = {panel.id: panel for _, _, panels in SECTIONS for panel in panels}
    moved = {"accuracy": "reward", "reward": "accuracy"} if judged(run).word == "reward" else {}
    for name, title, panels in SECTIONS:
        yield name, title, [by_id[moved.get(panel.id, panel.id)] for panel in panels]


def chart_span(run: Run) -> tuple[int, int]:
    """The steps that charts share: from before the first one, where that was evaluated."""
    first, last = run.span
    start = with_start(run).steps
    return (min(first, int(start[0])) if len(start) else first), last
