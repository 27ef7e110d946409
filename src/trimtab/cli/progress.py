"""Work shown while it goes on: a bar with the time left, and under it a run, a lab, or nothing; plain lines where there is no terminal."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.table import Table
from rich.text import Text

from trimtab.cli import show

if TYPE_CHECKING:
    from trimtab.lab.results import CellResult


Self = TypeVar("Self", bound="LiveBar")  # typing.Self is refused by the run-time checker of the tests


class LiveBar:
    """A bar on stderr; what stands under it is said by `render`."""

    def __init__(self, description: str, total: int | None) -> None:
        self.page = show.console(stderr=True)
        self.bar = Bars(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self.page,
        )
        self.task = self.bar.add_task(description, total=total)
        self.live = Live(self.bar, console=self.page, refresh_per_second=4)

    def render(self) -> RenderableType:
        """What is shown now."""
        return self.bar

    def __enter__(self: Self) -> Self:
        if self.page.is_terminal:
            with suppress(OSError):
                self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.page.is_terminal:
            with suppress(OSError):  # the terminal is gone
                self.live.update(self.render(), refresh=True)
            with suppress(OSError):
                self.live.stop()


STEP_NUMBERS = (
    ("accuracy", "eval/accuracy", "{:.3f}"),
    ("reward", "rollout/reward", "{:.3f}"),
    ("staleness", "staleness/oldest_mean", "{:.1f}"),
    ("kept", "kept_fraction", "{:.1%}"),
    ("mismatch KL", "drift/k3", "{:.2e}"),
    ("grad norm", "train/grad_norm", "{:.2f}"),
    ("samples/s", "throughput/samples", "{:.0f}"),
)
"""Heading, metric and format of what is shown of a step."""


class Progress(LiveBar):
    """The display of a run."""

    def __init__(self, steps: int) -> None:
        super().__init__("starting", steps)
        self._steps, self._begun = steps, time.monotonic()
        self._known: dict[str, float] = {}

    def warm_start(self, step: int, accuracy: float | None) -> None:
        """The policy is being taught; this is cached."""
        if accuracy is not None:
            self._known["eval/accuracy"] = accuracy
        self.bar.update(self.task, description=f"warm start, step {step}")
        self._draw(f"warm start   step {step:4d}   accuracy {accuracy:.3f}" if accuracy is not None else None)

    def begin(self, path: Path, step: int) -> None:
        """The run begins, or goes on."""
        self.bar.reset(self.task, total=self._steps, completed=step, description="training")
        self._draw(f"run {path}" + (f", continuing at step {step}" if step else ""))

    def step(self, step: int, metrics: dict[str, float]) -> None:
        """A step is done."""
        self._known |= metrics
        self.bar.update(self.task, completed=step)
        evaluated = "eval/accuracy" in metrics or step == self._steps
        self._draw(f"step {step:5d}/{self._steps}   {self._line()}" if evaluated else None)

    def note(self, message: str) -> None:
        """Something to be told."""
        self.page.print(Text(f"note: {message}", style="yellow"))

    def _line(self) -> str:
        return "   ".join(
            f"{name} {form.format(self._known[key])}" for name, key, form in STEP_NUMBERS if key in self._known
        )

    def _draw(self, line: str | None) -> None:
        """Live on a terminal; elsewhere the line, if there is one."""
        if self.page.is_terminal:
            self.live.update(self.render())
        elif line is not None:
            self.page.print(line)

    def render(self) -> Group:
        """The bar and what stands under it."""
        table = Table(box=None, pad_edge=False)
        shown = [(name, form.format(self._known[key])) for name, key, form in STEP_NUMBERS if key in self._known]
        for name, _ in shown:
            table.add_column(name, style="bold", header_style="dim", justify="right")
        if shown:
            table.add_row(*(value for _, value in shown))
        return Group(self.bar, table)


class LabProgress(LiveBar):
    """The display of a lab."""

    def __init__(self) -> None:
        super().__init__("cells", None)
        self._under_way: dict[str, tuple[int, float | None]] = {}

    def begin(self, done: int, changed: int, cells: int) -> None:
        """So many cells are done already, so many will be run again."""
        self.bar.reset(self.task, total=cells, completed=done)
        self.page.print(f"{cells} cells" + (f", {done} already done" if done else ""))
        if changed:
            self.page.print(
                f"{changed} cells have other settings there and will be run again; their results are replaced."
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
