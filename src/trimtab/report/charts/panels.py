"""The charts of a report under their headings: which metrics, which scale, which bounds, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab.report.charts.classes import class_charts, time_chart, whatif_charts
from trimtab.report.draw.bars import BarChart
from trimtab.report.draw.chart import Bound, Chart, ChartLine, Mark
from trimtab.report.draw.figure import DrawnChart, draw_chart
from trimtab.report.findings.filtering import bounds_text, gate_names
from trimtab.report.findings.learning import with_start
from trimtab.report.html import short_number
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
        series = with_start(run) if self.started else run.series(self.metric)
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
    log: bool = False
    ends: tuple[float, float] | None = None
    bounds: Callable[[Run], list[Bound]] = _no_bounds
    from_zero: bool = False

    def chart(self, run: Run) -> Chart:
        """The panel with the run's values."""
        lines = [line for line in (curve.line(run) for curve in self.curves) if len(line.series.finite)]
        return Chart(self.id, self.title, self.note, lines, self.log, self.ends, self.from_zero, self.bounds(run))


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
    found: list[Bound] = []
    for whose, rule in rules:
        if whose == "weight" and rule.get("level") != "token":
            continue
        found += [
            Bound(float(rule[side]), f"{whose} {side} {short_number(rule[side])}")
            for side in ("lower", "upper")
            if rule.get(side)
        ]
    return found


def _constant_bound(value: float, text: str) -> Callable[[Run], list[Bound]]:
    return lambda run: [Bound(value, text)]


SHARE = (0.0, 1.0)
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
                ends=SHARE,
            ),
            Panel(
                "mismatch",
                "Mismatch KL (k3)",
                "Learner against sampler, and what one step moved. Before a collapse it is high more often than it jumps.",
                (
                    Curve("policy/k3", "update: current vs. anchor", 6, faint=True),
                    Curve("drift/k3", "mismatch: target vs. behavior", 1),
                ),
                log=True,
            ),
            Panel(
                "gradient",
                "Gradient norm, before clipping",
                "Seldom a warning: it often moves only when accuracy does.",
                (Curve("train/grad_norm", "norm", 1),),
                log=True,
                bounds=_clip_norm,
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
                log=True,
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
                from_zero=True,
            ),
        ),
    ),
    (
        "correction",
        "What the correction does",
        (
            Panel(
                "kept",
                "Kept fraction",
                "Tokens left after every gate. Under 5 % a run starves; at 100 % the gates are as good as absent.",
                (
                    Curve("kept_fraction", "kept", 1),
                    Curve("missing_fraction", "log-probs missing", 2),
                ),
                ends=SHARE,
            ),
            Panel(
                "ess",
                "Effective sample size",
                "Share of the batch that the weights leave; rejected tokens count as weight 0.",
                (Curve("weight/ess", "ESS", 1),),
                ends=SHARE,
                bounds=_constant_bound(0.3, "0.3: few tokens own the batch"),
            ),
            Panel(
                "selection",
                "Selection bias",
                "The two should lie together. Negative above positive: the filter keeps wrong answers and throws right ones away.",
                (
                    Curve("selection/kept_given_positive", "kept of A > 0", 3),
                    Curve("selection/kept_given_negative", "kept of A < 0", 2),
                ),
                ends=SHARE,
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
                from_zero=True,
            ),
        ),
    ),
    (
        "policy",
        "The policy and its answers",
        (
            Panel("reward", "Reward", "Mean over the responses of the step.", (Curve("rollout/reward", "reward", 1),)),
            Panel("entropy", "Entropy", "Nats per token.", (Curve("policy/entropy", "entropy", 1),), from_zero=True),
            Panel(
                "length",
                "Response length",
                "Mean tokens per response.",
                (Curve("rollout/length", "tokens", 1),),
                from_zero=True,
            ),
            Panel(
                "finish",
                "Truncated and failed",
                "Responses cut at the length limit; responses no verifier could score.",
                (Curve("rollout/truncated", "truncated", 2), Curve("rollout/failed", "failed", 5)),
                from_zero=True,
            ),
            Panel(
                "signal",
                "Groups without a signal",
                "All answers alike, so that no advantage is left, out of all groups of the step.",
                (
                    Curve("advantage/groups", "groups", 6, faint=True),
                    Curve("advantage/zero_variance_groups", "all alike", 2),
                ),
                from_zero=True,
            ),
            Panel("loss", "Loss", "Not comparable between steps: its data changes.", (Curve("train/loss", "loss", 1),)),
        ),
    ),
    (
        "machine",
        "The machine",
        (
            Panel(
                "throughput",
                "Samples per second",
                "Trained samples over wall time.",
                (Curve("throughput/samples", "samples/s", 1),),
                from_zero=True,
            ),
            Panel(
                "tokens",
                "Tokens per second",
                "Trained tokens over wall time.",
                (Curve("throughput/tokens", "tokens/s", 1),),
                from_zero=True,
            ),
            Panel(
                "queue",
                "Groups on their way",
                "Being sampled, waiting to be trained, and dropped as too stale.",
                (
                    Curve("staleness/in_flight", "in flight", 1),
                    Curve("staleness/in_queue", "in queue", 6),
                    Curve("staleness/dropped", "dropped", 2),
                ),
                from_zero=True,
            ),
            Panel("lr", "Learning rate", "Of the optimiser.", (Curve("train/lr", "lr", 1),), from_zero=True),
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
        yield Chart(name, title, note, [curve.line(run) for curve in curves], log=True, bounds=sides)
        label = f"{place}: {gate.get('metric')} {gate.get('level')}"
        shares.append(Curve(f"{name}/rejected_tokens", label, colours[place % 5]).line(run))
    if shares:
        yield Chart(
            "rejected", "Rejected by each gate", "Share of tokens outside, whatever the action.", shares, ends=SHARE
        )


@dataclass(frozen=True)
class ChartSection:
    """Charts under one heading."""

    title: str
    charts: Sequence[DrawnChart]
    absent: Sequence[str]
    """Titles of charts whose metrics the run does not have."""


def chart_sections(run: Run, found: Tokens | None, marks: Sequence[Mark] = ()) -> Iterator[ChartSection]:
    """Every chart of the run, drawn."""
    extra: dict[str, Sequence[Chart | BarChart]] = {
        "policies": list(class_charts(run, found)),
        "correction": [*gate_charts(run), *whatif_charts(run, found)],
    }
    span = chart_span(run)
    for name, title, panels in SECTIONS:
        time = time_chart(run) if name == "machine" else None
        charts = [*([time] if time else []), *(panel.chart(run) for panel in panels), *extra.get(name, ())]
        shown = [
            draw_chart(chart, span, marks) for chart in charts if isinstance(chart, BarChart) or not chart.is_empty
        ]
        yield ChartSection(
            title, shown, [chart.title for chart in charts if isinstance(chart, Chart) and chart.is_empty]
        )


def chart_span(run: Run) -> tuple[int, int]:
    """The steps that charts share: from before the first one, where that was evaluated."""
    first, last = run.span
    start = with_start(run).steps
    return (min(first, int(start[0])) if len(start) else first), last
