"""The frame of a live display: a bar with the time left, drawn while the work goes on; on a page that is no terminal, nothing."""

from __future__ import annotations

from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from rich.console import RenderableType
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from trimtab.cli import show

Self = TypeVar("Self", bound="LiveBar")  # typing.Self is refused by the run-time checker of the tests


class LiveBar:
    """A bar on stderr; what stands under it is said by `render`."""

    def __init__(self, description: str, total: int | None) -> None:
        self.page = show.console(stderr=True)
        self.bar = Progress(
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
