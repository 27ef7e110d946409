"""A log of another trainer, its names read as ours: what was measured, and in which order curves broke away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from trimtab.errors import ConfigError, UnknownNameError, nearest
from trimtab.logged.names import LoggedName, Relation, framework_logging, logged_names, rows_of
from trimtab.records.logs import Log, LoggedCurve, read_log_files
from trimtab.report.findings.signs import WATCHED, WatchedCurve, predictors
from trimtab.report.html import short_number
from trimtab.report.metrics import METRICS
from trimtab.report.run import EMPTY
from trimtab.report.series import LAST_STEP, Onset, Series, onsets

CLIP_FRACTION = "policy/clip_high + policy/clip_low"
EXACTNESS: Sequence[Relation] = ("same", "negative", "complement", "near", "bound")
"""Which of several names of one metric is taken."""
IN_WORDS = {
    "drift/k3": "mismatch KL",
    "drift/kl": "mismatch KL (k1)",
    "drift/abs_log_r": "mean |log ratio|",
    "drift/abs_log_r_max": "greatest |log ratio|",
    "drift/prob_diff": "difference of probabilities",
    "kept_fraction": "kept fraction",
    "weight/ess": "effective sample size",
    "weight/mean": "mean weight",
    "ratio/mean": "mean ratio",
    CLIP_FRACTION: "clip fraction",
    "policy/k1": "KL of the update",
    "policy/entropy": "entropy",
    "staleness/oldest_mean": "age of the oldest token",
    "staleness/token_mean": "age of a token",
    "train/grad_norm": "gradient norm",
    "rollout/reward": "reward",
    "rollout/length": "response length",
    "rollout/truncated": "share of cut responses",
}
"""The metrics that are shown, in this order, and how a sentence calls them."""
GAP = (
    "drift/k3",
    "drift/kl",
    "drift/abs_log_r",
    "drift/prob_diff",
    "ratio/mean",
    "drift/kl_reverse",
    "drift/k3_reverse",
)
"""What measures sampler against trainer."""
MORE_WATCHED = (
    WatchedCurve("drift/abs_log_r", "rise", 3.0, 0.05),
    WatchedCurve(CLIP_FRACTION, "rise", 5.0, 0.1),
)
"""What logs have where they lack a watched metric: |ℓ| rises by the root of what k3 rises by."""
LOST = 0.5
"""Share of what the reward had gained whose loss is a fall."""


@dataclass(frozen=True)
class Move:
    """A curve that broke away: at which step, and how."""

    step: int
    metric: str
    words: str


@dataclass(frozen=True, eq=False)
class ReadLog:
    """A log with its names read as ours."""

    log: Log
    framework: str | None
    """Whose names they are; None where that is not clear, and then only names of one meaning are read."""
    rows: Mapping[str, tuple[str, LoggedName]]
    """By metric of ours: the logged name, and its row."""
    known: int
    """How many names of the log have a row."""

    @cached_property
    def _series(self) -> dict[str, Series]:
        return {metric: _as_ours(self.log.curves[name], row) for metric, (name, row) in self.rows.items()}

    def series(self, metric: str) -> Series:
        """A metric of ours over the steps of the log; empty where it was not logged."""
        return self._series.get(metric, EMPTY)

    def row(self, metric: str) -> LoggedName | None:
        """The row by which a metric was read."""
        return self.rows[metric][1] if metric in self.rows else None

    @property
    def title(self) -> str:
        """The file, and the run where a file holds several."""
        return f"{self.log.path.name}{f', {self.log.name}' if self.log.name and self.log.name != self.log.path.name else ''}"

    @property
    def measured(self) -> list[str]:
        """The metrics of ours that the log has, the most telling first."""
        return [*(name for name in IN_WORDS if name in self.rows), *sorted(self.rows.keys() - IN_WORDS.keys())]

    @cached_property
    def moves(self) -> list[Move]:
        """The first break of each watched curve, and the fall of the reward, earliest first."""
        watched = [
            *WATCHED,
            *(each for each in MORE_WATCHED if each.metric != "drift/abs_log_r" or "drift/k3" not in self.rows),
        ]
        moves: dict[tuple[str, str], Move] = {}
        for watch in watched:
            found = onsets(
                self.series(watch.metric), factor=watch.factor, window=watch.window, floor=watch.floor, way=watch.way
            )
            for onset in found[:1]:
                moves[watch.metric, watch.way] = Move(onset.step, watch.metric, _words(watch, onset))
        if (fall := reward_fall(self.series("rollout/reward"))) is not None:
            moves["rollout/reward", "fall"] = fall
        return sorted(moves.values(), key=lambda move: move.step)


def read_logs(path: str | Path, framework: str | None = None, mapped: Mapping[str, str] | None = None) -> list[ReadLog]:
    """Every run of a file or folder. `mapped`: logged names by metric of ours, over what is known."""
    return [as_ours(log, framework, mapped or {}) for log in read_log_files(Path(path))]


def as_ours(log: Log, framework: str | None = None, mapped: Mapping[str, str] | None = None) -> ReadLog:
    """A log with its names read as ours."""
    whose = framework or framework_logging(log.curves)
    if framework is not None and framework not in (known_names := {row.framework for row in logged_names()}):
        raise UnknownNameError(f"--from needs a framework, got {framework!r}. {nearest(framework, known_names)}")
    chosen: dict[str, tuple[str, LoggedName]] = {}
    known = 0
    for name in log.curves:
        rows = rows_of(name, whose)
        rows = rows if whose else [row for row in rows if {each.ours for each in rows} == {row.ours}]
        known += bool(rows)
        for row in rows[:1]:
            better = row.metric not in chosen or _rank(row) < _rank(chosen[row.metric][1])
            if row.metric and better:
                chosen[row.metric] = (name, row)
    for ours, theirs in (mapped or {}).items():
        if theirs not in log.curves:
            raise UnknownNameError(f"{log.path} has no curve {theirs!r}. {nearest(theirs, log.curves)}")
        chosen[ours] = (theirs, _mapped_row(ours, theirs))
    return ReadLog(log, whose, chosen, known)


def mappings(given: Iterable[str]) -> dict[str, str]:
    """`--map OURS=THEIRS`, each with a metric of ours."""
    found: dict[str, str] = {}
    for each in given:
        name, _, theirs = each.partition("=")
        found[name] = theirs
    ours = {row.metric for row in logged_names() if row.ours} | METRICS.keys()
    for name, theirs in found.items():
        if not theirs:
            raise ConfigError(f"--map needs OURS=THEIRS, got {name!r}. As in drift/k3=my/kl.")
        if name not in ours:
            raise UnknownNameError(f"--map needs a metric of ours, got {name!r}. {nearest(name, ours)}")
    return found


def _mapped_row(ours: str, theirs: str) -> LoggedName:
    return replace(
        logged_names()[0], framework="", name=theirs, formula="", ours=ours, source="", hides="", trap="", mask=""
    )


def _rank(row: LoggedName) -> int:
    return EXACTNESS.index(row.relation)


def _as_ours(curve: LoggedCurve, row: LoggedName) -> Series:
    """The curve by step, the last of several values at one step, in our sign."""
    steps = np.frombuffer(curve.steps, dtype=np.int64)
    values = np.frombuffer(curve.values, dtype=np.float64)
    kept = np.abs(steps) <= LAST_STEP
    order, first = np.unique(steps[kept][::-1], return_index=True)
    latest = values[kept][::-1][first]
    with np.errstate(all="ignore"):
        turned = {"negative": -latest, "complement": 1 - latest, "bound": np.log(np.maximum(latest, 1e-300))}
    return Series(order, turned.get(row.relation, latest))


def _words(watch: WatchedCurve, onset: Onset) -> str:
    change = onset.after / onset.before if watch.way == "rise" else onset.before / onset.after
    times = (
        f"{'×' if watch.way == 'rise' else '÷'}{short_number(change, 2)}"
        if np.isfinite(change) and change < 1e4
        else watch.way
    )
    return f"{IN_WORDS.get(watch.metric) or METRICS[watch.metric].name} {times}"


def reward_fall(series: Series) -> Move | None:
    """Where the smoothed reward has lost half of what it had gained since its start, and a tenth of what it was."""
    part = series.smooth(5)
    if len(part) < 10:
        return None
    start = float(np.median(part.values[:5]))
    best = np.maximum.accumulate(part.values)
    lost = best - part.values
    falls = (best > start) & (lost >= LOST * (best - start)) & (lost >= 0.1 * np.abs(best)) & (lost > _noise(part))
    places = np.flatnonzero(falls)
    return Move(int(part.steps[places[0]]), "rollout/reward", "reward falls") if len(places) else None


def _noise(part: Series) -> float:
    """Three times the usual change from step to step."""
    return 3 * float(np.median(np.abs(np.diff(part.values))))


def lab_sentence(read: ReadLog) -> str:
    """How reliable the one measured sign is, where mismatch KL moved or passed its threshold."""
    sign = next((each for each in predictors() if each.metric == "drift/k3"), None)
    if sign is None or not any(move.metric == "drift/k3" for move in read.moves):
        return ""
    passed = sign.first_passing(read.series("drift/k3"))
    seen = f"passed at step {passed[0]}" if passed else "not reached here"
    return f"{sign.title}, over ten steps ({seen}): {sign.reliability}"
