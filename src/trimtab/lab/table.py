"""The tables of a lab: per scenario, sorted by the worst seed, every seed shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.config.visible import on_one_line
from trimtab.lab.results import CellResult, LabResults
from trimtab.lab.scenario import CONTROL
from trimtab.lab.verdict import FULL, ORDER, LabWord, tally
from trimtab.report.html import percent, short_number, with_decimals

CAUTION = (
    "It reproduces mechanisms at toy scale; it predicts nothing about your model. Corrections are ranked within a scenario only, "
    "never over scenarios: what helps in one can do harm in another."
)
FEWEST_SEEDS = 3
"""Two runs that differ by one token can end at 0.2 and at 0.9: fewer say nothing."""
HEAD = (
    "correction",
    "last accuracy by seed",
    "late lowest",
    "verdict",
    "mismatch KL median / max",
    "grad norm median / max",
    "kept; trained of right / wrong",
    "ESS",
)


@dataclass(frozen=True)
class CorrectionRow:
    """One correction in one scenario."""

    correction: str
    cells: tuple[CellResult, ...]
    """By seed."""

    @property
    def worst(self) -> tuple[float, float]:
        """What rows are sorted by: the lowest last accuracy, then their mean."""
        last = [each.last for each in self.cells]
        return min(last), float(np.mean(last))

    @property
    def words(self) -> list[LabWord]:
        """The verdict of each seed."""
        return [each.word for each in self.cells]

    @property
    def word(self) -> LabWord:
        """The worst of them."""
        return max(self.words, key=ORDER.index)


def correction_rows(results: LabResults, scenario: str) -> list[CorrectionRow]:
    """The corrections of a scenario, the best of the worst seeds first."""
    names = dict.fromkeys(each.correction for each in results.of(scenario))
    rows = [CorrectionRow(name, tuple(results.cells(scenario, name))) for name in names]
    return sorted(rows, key=lambda row: row.worst, reverse=True)


def equal_rows(results: LabResults, scenario: str, quote: bool = False) -> str:
    """Which corrections gave the same runs, so that equal rows are not read as agreement; nothing where none did."""
    classes: dict[object, list[str]] = {}
    for row in correction_rows(results, scenario):
        if all(each.verdict is not None for each in row.cells):
            trail = [(each.seed, each.accuracy, each.curves.get("grad_norm")) for each in row.cells]
            classes.setdefault(tuple(trail), []).append(in_code(row.correction) if quote else row.correction)
    alike = [names for names in classes.values() if len(names) > 1]
    if not alike:
        return ""
    said = "; ".join(f"{', '.join(names[:-1])} and {names[-1]}" for names in alike)
    return f"The same run in every seed: {said}. What tells these corrections apart never acted here."


def row_texts(row: CorrectionRow) -> tuple[str, ...]:
    """A row as text, under `HEAD`."""
    done = [each for each in row.cells if each.verdict is not None]
    return (
        row.correction,
        "  ".join(_accuracy(each) for each in row.cells),
        "  ".join("–" if each.verdict is None else with_decimals(each.verdict.late_low) for each in row.cells),
        tally(row.words),
        _pair(done, "mismatch"),
        _pair(done, "grad_norm"),
        f"{_share(done, 'kept')}; {_share(done, 'kept_right')} / {_share(done, 'kept_wrong')}",
        _share(done, "ess"),
    )


def _accuracy(entry: CellResult) -> str:
    return "failed" if entry.verdict is None else with_decimals(entry.verdict.last)


def _pair(done: list[CellResult], name: str) -> str:
    medians = [each.medians[name] for each in done if name in each.medians]
    if not medians:
        return "–"
    return f"{short_number(float(np.median(medians)), 2)} / {short_number(max(each.most.get(name, 0.0) for each in done), 2)}"


def _share(done: list[CellResult], name: str) -> str:
    """The median over the seeds of each one's median over its steps."""
    medians = [each.medians[name] for each in done if name in each.medians]
    return percent(float(np.median(medians))) if medians else "–"


def time_taken(results: LabResults) -> str:
    """How long the cells took, and on what."""
    hours, minutes = divmod(round(results.elapsed / 60), 60)
    time = f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{results.elapsed:.0f} s"
    cells = "1 cell" if len(results.entries) == 1 else f"{len(results.entries)} cells"
    return f"{cells} in {time}" + (f" ({results.machine})" if results.machine else "")


def remarks(results: LabResults) -> list[str]:
    """What a reader of the tables must know."""
    lines: list[str] = []
    if len(results.entries) < results.planned:
        lines.append(f"{len(results.entries)} of {results.planned} cells have ended; the rest is still to run.")
    if results.steps < FULL:
        lines.append(
            f"{results.steps} steps separate the clear cases only: some runs stand at 0.95 and fall after step 300. "
            f"Nothing is called healthy before {FULL} steps (--full)."
        )
    if len(results.seeds) < FEWEST_SEEDS:
        lines.append(
            f"{len(results.seeds)} of at least {FEWEST_SEEDS} seeds: a run that differs by one token can end elsewhere."
        )
    lines += [
        f"The control of seed {each.seed} is itself {each.word} ({each.verdict.reason}): what its seed shows in other "
        "scenarios may be the learning rate, not the correction."
        for each in results.controls
        if each.verdict is not None and each.word in ("flat", "degraded", "collapsed")
    ]
    lines += [f"{each.name} failed: {each.message}" for each in results.entries if each.status == "failed"]
    return [*lines, CAUTION]


def in_code(name: str) -> str:
    """A name as Markdown code: nothing in it ends the code or the line."""
    return f"`{on_one_line(name).replace('`', chr(39))}`"


def in_prose(text: str) -> str:
    """Text inside Markdown: one line, and neither HTML nor a link nor code in it."""
    return re.sub(r"[\\`<\[]", r"\\\g<0>", on_one_line(text))


def markdown_table(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    head = list(head)
    every = [head, ["---"] * len(head), *lines]
    return "".join(f"| {' | '.join(cell.replace('|', '·') for cell in line)} |\n" for line in every)


def readme_table(results: LabResults, only: Sequence[str] | None = None) -> str:
    """One short table over all scenarios: last accuracy of every seed; bold where a seed collapsed or starved.

    `only`: some of the corrections; otherwise all.
    """
    scenarios = [name for name in results.scenarios if name != CONTROL and results.of(name)]
    names = only or list(dict.fromkeys(each.correction for name in scenarios for each in results.of(name)))
    control = "  ".join(_accuracy(each) for each in results.controls)
    lines = [["on-policy control", *([control] * len(scenarios))]]
    lines += [[in_code(name), *(last_by_seed(results, scenario, name) for scenario in scenarios)] for name in names]
    return markdown_table(["last accuracy by seed", *map(in_prose, scenarios)], lines)


def last_by_seed(results: LabResults, scenario: str, correction: str) -> str:
    """The last accuracy of every seed; bold where it collapsed or starved."""
    cells = results.cells(scenario, correction)
    bad = ("collapsed", "starved", "failed")
    return "  ".join(f"**{_accuracy(each)}**" if each.word in bad else _accuracy(each) for each in cells) or "–"
