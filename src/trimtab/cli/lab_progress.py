"""A lab on the terminal: a bar over all cells and one line per running one; without a terminal, a line per ended cell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from trimtab.cli.live import LiveBar

if TYPE_CHECKING:
    from trimtab.lab.results import CellResult


class LabProgress(LiveBar):
    """The display of a lab."""

    def __init__(self) -> None:
        super().__init__("cells", None)
        self._under_way: dict[str, tuple[int, float | None]] = {}

    def begin(self, done: int, changed: int, cells: int) -> None:
        """So many cells are done already, so many will be run again."""
        self.bar.reset(self.task, total=cells, completed=done)
        self.page.print(f"{cells} cells" + (f", {done} of them done before" if done else ""))
        if changed:
            self.page.print(
                f"{changed} cells there have other settings and will be run again in place of what they hold."
            )
        self.live.update(self.render())

    def look(self, task: str, seeds: int, claims: int) -> None:
        """Open claims are taken on to more seeds."""
        count = "1 open claim" if claims == 1 else f"{claims} open claims"
        self.page.print(Text(f"task {task}: {count}, to {seeds} seeds"))

    def step(self, name: str, step: int, accuracy: float | None) -> None:
        """A cell or warm start under way."""
        _, before = self._under_way.get(name, (0, None))
        self._under_way[name] = step, before if accuracy is None else accuracy
        self.live.update(self.render())

    def end(self, name: str, entry: CellResult | None) -> None:
        """A cell or warm start has ended."""
        self._under_way.pop(name, None)
        if entry is None:
            self.page.print(f"{name}: made")
        else:
            reason = entry.message if entry.verdict is None else entry.verdict.reason
            self.page.print(Text(f"{name}: {entry.word}, {reason}"))
            self.bar.advance(self.task)
        self.live.update(self.render())

    def render(self) -> Group:
        """The bar and what stands under it."""
        lines = [
            Text(f"  {name}  step {step}" + ("" if accuracy is None else f"  accuracy {accuracy:.2f}"), style="dim")
            for name, (step, accuracy) in self._under_way.items()
        ]
        return Group(self.bar, *lines)
