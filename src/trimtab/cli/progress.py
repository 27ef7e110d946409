"""A run on the terminal: a bar and the numbers that matter, live; one line per evaluation where there is no terminal."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Group
from rich.table import Table
from rich.text import Text

from trimtab.cli.live import LiveBar

NUMBERS = (
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
        self._draw(f"run {path}" + (f", going on at step {step}" if step else ""))

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
            f"{name} {form.format(self._known[key])}" for name, key, form in NUMBERS if key in self._known
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
        shown = [(name, form.format(self._known[key])) for name, key, form in NUMBERS if key in self._known]
        for name, _ in shown:
            table.add_column(name, style="bold", header_style="dim", justify="right")
        if shown:
            table.add_row(*(value for _, value in shown))
        return Group(self.bar, table)
