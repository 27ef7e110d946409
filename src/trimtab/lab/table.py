"""The tables of a lab: per scenario, sorted by the worst seed, every seed shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.config.visible import on_one_line
from trimtab.lab.book import Book, Entry
from trimtab.lab.scenario import CONTROL
from trimtab.lab.verdict import FULL, ORDER, Word, tally
from trimtab.report.text import fixed, number, percent

CAUTION = (
    "It reproduces mechanisms at toy scale; it predicts nothing about your model. Corrections are ranked within a scenario only, "
    "never over scenarios: what helps in one can do harm in another."
)
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
class Row:
    """One correction in one scenario."""

    correction: str
    cells: tuple[Entry, ...]
    """By seed."""

    @property
    def worst(self) -> tuple[float, float]:
        """What rows are sorted by: the lowest last accuracy, then their mean."""
        last = [each.last for each in self.cells]
        return min(last), float(np.mean(last))

    @property
    def words(self) -> list[Word]:
        """The verdict of each seed."""
        return [each.word for each in self.cells]

    @property
    def word(self) -> Word:
        """The worst of them."""
        return max(self.words, key=ORDER.index)


def rows(book: Book, scenario: str) -> list[Row]:
    """The corrections of a scenario, the best of the worst seeds first."""
    names = dict.fromkeys(each.correction for each in book.of(scenario))
    found = [Row(name, tuple(book.cells(scenario, name))) for name in names]
    return sorted(found, key=lambda row: row.worst, reverse=True)


def equal_rows(book: Book, scenario: str, quote: bool = False) -> str:
    """Which corrections gave the same runs, so that equal rows are not read as agreement; nothing where none did."""
    classes: dict[object, list[str]] = {}
    for row in rows(book, scenario):
        if all(each.verdict is not None for each in row.cells):
            trail = [(each.seed, each.accuracy, each.curves.get("grad_norm")) for each in row.cells]
            classes.setdefault(tuple(trail), []).append(in_code(row.correction) if quote else row.correction)
    found = [names for names in classes.values() if len(names) > 1]
    if not found:
        return ""
    said = "; ".join(f"{', '.join(names[:-1])} and {names[-1]}" for names in found)
    return f"The same run in every seed: {said}. What tells these corrections apart never acted here."


def columns(row: Row) -> tuple[str, ...]:
    """A row as text, under `HEAD`."""
    done = [each for each in row.cells if each.verdict is not None]
    return (
        row.correction,
        "  ".join(_accuracy(each) for each in row.cells),
        "  ".join("–" if each.verdict is None else fixed(each.verdict.late_low) for each in row.cells),
        tally(row.words),
        _pair(done, "mismatch"),
        _pair(done, "grad_norm"),
        f"{_share(done, 'kept')}; {_share(done, 'kept_right')} / {_share(done, 'kept_wrong')}",
        _share(done, "ess"),
    )


def _accuracy(entry: Entry) -> str:
    return "failed" if entry.verdict is None else fixed(entry.verdict.last)


def _pair(done: list[Entry], name: str) -> str:
    medians = [each.medians[name] for each in done if name in each.medians]
    if not medians:
        return "–"
    return f"{number(float(np.median(medians)), 2)} / {number(max(each.most.get(name, 0.0) for each in done), 2)}"


def _share(done: list[Entry], name: str) -> str:
    """The median over the seeds of each one's median over its steps."""
    found = [each.medians[name] for each in done if name in each.medians]
    return percent(float(np.median(found))) if found else "–"


def taken(book: Book) -> str:
    """How long the cells took, and on what."""
    hours, minutes = divmod(round(book.elapsed / 60), 60)
    time = f"{hours} h {minutes} min" if hours else f"{minutes} min" if minutes else f"{book.elapsed:.0f} s"
    cells = "1 cell" if len(book.entries) == 1 else f"{len(book.entries)} cells"
    return f"{cells} in {time}" + (f" ({book.machine})" if book.machine else "")


def remarks(book: Book) -> list[str]:
    """What a reader of the tables must know."""
    found: list[str] = []
    if len(book.entries) < book.planned:
        found.append(f"{len(book.entries)} of {book.planned} cells have ended; the rest is still to run.")
    if book.steps < FULL:
        found.append(
            f"{book.steps} steps separate the clear cases only: some runs stand at 0.95 and fall after step 300. "
            f"Nothing is called healthy before {FULL} steps (--full)."
        )
    if len(book.seeds) < 3:
        found.append(f"{len(book.seeds)} of at least 3 seeds: a run that differs by one token can end elsewhere.")
    found += [
        f"The control of seed {each.seed} is itself {each.word} ({each.verdict.reason}): what its seed shows in other "
        "scenarios may be the learning rate, not the correction."
        for each in book.controls
        if each.verdict is not None and each.word in ("degraded", "collapsed")
    ]
    found += [f"{each.name} failed: {each.message}" for each in book.entries if each.status == "failed"]
    return [*found, CAUTION]


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


def readme_table(book: Book, only: Sequence[str] | None = None) -> str:
    """One short table over all scenarios: last accuracy of every seed; bold where a seed collapsed or starved.

    `only`: some of the corrections; otherwise all.
    """
    scenarios = [name for name in book.scenarios if name != CONTROL and book.of(name)]
    names = only or list(dict.fromkeys(each.correction for name in scenarios for each in book.of(name)))
    control = "  ".join(_accuracy(each) for each in book.controls)
    lines = [["on-policy control", *([control] * len(scenarios))]]
    lines += [[in_code(name), *(last_by_seed(book, scenario, name) for scenario in scenarios)] for name in names]
    return markdown_table(["last accuracy by seed", *map(in_prose, scenarios)], lines)


def last_by_seed(book: Book, scenario: str, correction: str) -> str:
    """The last accuracy of every seed; bold where it collapsed or starved."""
    cells = book.cells(scenario, correction)
    bad = ("collapsed", "starved", "failed")
    return "  ".join(f"**{_accuracy(each)}**" if each.word in bad else _accuracy(each) for each in cells) or "–"
