"""The charts of a scenario: one colour per correction, one thin line per seed, the control beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trimtab.lab.book import Book, Entry
from trimtab.lab.scenario import CONTROL
from trimtab.lab.table import Row, rows
from trimtab.lab.verdict import tally
from trimtab.report.chart import Bound, Chart, Line
from trimtab.report.palette import FIRST_COLOUR
from trimtab.report.series import Series

CONTROL_COLOUR = 6
"""The grey of the palette."""


@dataclass(frozen=True)
class Panel:
    """One metric over the steps."""

    name: str
    title: str
    note: str
    log: bool = False
    ends: tuple[float, float] | None = None
    bound: Bound | None = None

    def series(self, entry: Entry) -> Series:
        """What it shows of a cell."""
        if self.name == "accuracy":
            return entry.evaluated
        found = entry.curves.get(self.name)
        return Series.of(()) if found is None else found.series()

    def chart(self, book: Book, scenario: str) -> Chart:
        """The panel with every cell of a scenario."""
        colours = colours_of(book)
        lines = [
            Line(label(each), self.series(each), colours[each.correction], faint=True) for each in book.of(scenario)
        ]
        controls = [] if scenario == CONTROL else book.controls
        lines += [Line(f"control, seed {each.seed}", self.series(each), CONTROL_COLOUR) for each in controls]
        bounds = () if self.bound is None else (self.bound,)
        identity = f"{scenario}-{self.name}"
        return Chart(identity, self.title, self.note, lines, log=self.log, ends=self.ends, bounds=bounds)


PANELS = (
    Panel("accuracy", "Held-out accuracy", "By the learner's own weights, in full precision.", ends=(0.0, 1.0)),
    Panel(
        "mismatch",
        "Mismatch KL",
        "k3 between behavior and proximal; the greatest of each few steps. A tenfold jump comes 5 to 10 steps before a late collapse.",
        log=True,
    ),
    Panel(
        "approx_kl",
        "Step KL",
        "k3 between the loss's anchor and current while training; the greatest of each few steps. Alone it misses most collapses.",
        log=True,
    ),
    Panel("grad_norm", "Gradient norm before clipping", "The greatest of each few steps.", log=True),
    Panel("kept", "Kept", "Share of the tokens that the gates leave.", ends=(0.0, 1.0), bound=Bound(0.05, "starved")),
    Panel(
        "net_advantage",
        "Net advantage of what is kept",
        "Mean advantage of the tokens that train. Far under 0 they are only pushed down; about 0 by construction with baseline kept.",
        bound=Bound(0.0, "balanced"),
    ),
    Panel("kept_right", "Kept of right answers", "Share of their tokens that train.", ends=(0.0, 1.0)),
    Panel(
        "kept_wrong",
        "Kept of wrong answers",
        "Share of their tokens that train. More than of right answers: it prefers mistakes.",
        ends=(0.0, 1.0),
    ),
    Panel("ess", "Effective sample size", "Share of the batch that the weights leave.", ends=(0.0, 1.0)),
    Panel("entropy", "Entropy", "Of the policy at the start of the step, per token.", log=True),
)


def label(entry: Entry) -> str:
    """How a line is called."""
    return f"{entry.correction}, seed {entry.seed}"


def colours_of(book: Book) -> dict[str, int]:
    """A colour for each correction, the same in every scenario."""
    names = dict.fromkeys(each.correction for each in book.entries)
    return {name: FIRST_COLOUR + place for place, name in enumerate(names)}


def small_multiples(book: Book, scenario: str) -> list[Chart]:
    """Accuracy once per correction, every seed a line over the controls; in the order of the table."""
    return [_small(book, scenario, row) for row in rows(book, scenario)]


def _small(book: Book, scenario: str, row: Row) -> Chart:
    controls: Sequence[Entry] = [] if list(row.cells) == book.controls else book.controls
    lines = [Line(f"control, seed {each.seed}", each.evaluated, CONTROL_COLOUR, faint=True) for each in controls]
    lines += [Line(f"seed {each.seed}", each.evaluated, 1 + place) for place, each in enumerate(row.cells)]
    return Chart(f"{scenario}-{row.correction}", row.correction, tally(row.words), lines, ends=(0.0, 1.0))
