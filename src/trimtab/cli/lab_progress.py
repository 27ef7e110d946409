"""A lab on the terminal: a bar over all cells and one line per running one; without a terminal, a line per ended cell."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from trimtab.cli import show

if TYPE_CHECKING:
    from trimtab.lab.book import Entry


class LabProgress:
    """The display of a lab."""

    def __init__(self) -> None:
        self._page = show.console(stderr=True)
        self._under_way: dict[str, tuple[int, float | None]] = {}
        self._bar = Bar(
            TextColumn("cells"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self._page,
        )
        self._task = self._bar.add_task("cells", total=None)
        self._live = Live(self._drawn(), console=self._page, refresh_per_second=2)

    def __enter__(self) -> LabProgress:
        if self._page.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._page.is_terminal:
            self._live.update(self._drawn(), refresh=True)
            self._live.stop()

    def begin(self, done: int, changed: int, cells: int) -> None:
        """So many cells are done already, so many will be run again."""
        self._bar.reset(self._task, total=cells, completed=done)
        if done:
            self._page.print(f"{done} of {cells} cells were done before.")
        if changed:
            self._page.print(
                f"{changed} cells there have other settings and will be run again in place of what they hold."
            )
        self._live.update(self._drawn())

    def seen(self, name: str, step: int, accuracy: float | None) -> None:
        """A cell or warm start under way."""
        _, before = self._under_way.get(name, (0, None))
        self._under_way[name] = step, before if accuracy is None else accuracy
        self._live.update(self._drawn())

    def ended(self, name: str, entry: Entry | None) -> None:
        """A cell or warm start has ended."""
        self._under_way.pop(name, None)
        if entry is None:
            self._page.print(f"{name}: made")
        else:
            reason = entry.message if entry.verdict is None else entry.verdict.reason
            self._page.print(Text(f"{name}: {entry.word}, {reason}"))
            self._bar.advance(self._task)
        self._live.update(self._drawn())

    def _drawn(self) -> Group:
        lines = [
            Text(f"  {name}  step {step}" + ("" if accuracy is None else f"  accuracy {accuracy:.2f}"), style="dim")
            for name, (step, accuracy) in self._under_way.items()
        ]
        return Group(self._bar, *lines)
