"""`trimtab demo`: two runs side by side on the terminal, then the page that compares them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group, RenderableType
from rich.text import Text

from trimtab.cli import show
from trimtab.cli.progress import LiveBar
from trimtab.installed import check_training

if TYPE_CHECKING:
    from trimtab.lab.demo import DemoOutcome

EVERY = 60
"""Steps between two lines about a run where there is no terminal."""


class DemoProgress(LiveBar):
    """A bar over the steps of both runs, and the newest accuracy of each."""

    def __init__(self, steps: int) -> None:
        super().__init__("training twice", steps)
        self._steps: dict[str, int] = {}
        self._accuracies: dict[str, float] = {}

    def seen(self, name: str, step: int, accuracy: float | None) -> None:
        """A run, or the warm start of both, has come so far."""
        self._steps[name] = step
        if accuracy is not None:
            self._accuracies[name] = accuracy
        if not self.page.is_terminal:
            if accuracy is not None and step % EVERY == 0:
                self.page.print(Text(self._line(name)))
            return
        self.bar.update(self.task, completed=sum(self._steps[each] for each in self._runs()))
        self.live.update(self.picture())

    def picture(self) -> Group:
        """The bar and a line for each run."""
        names = self._runs() or list(self._steps)
        return Group(self.bar, *(Text(f"  {self._line(name)}", style="dim") for name in names))

    def _runs(self) -> list[str]:
        from trimtab.lab.demo import WARM_START

        return [name for name in self._steps if name != WARM_START]

    def _line(self, name: str) -> str:
        accuracy = self._accuracies.get(name)
        return f"{name:<11}  step {self._steps[name]:3d}" + (
            "" if accuracy is None else f"  held-out accuracy {accuracy:.3f}"
        )


def demo(
    seed: Annotated[int, typer.Option(min=0, help="Another seed gives other problems and another start.")] = 0,
    steps: Annotated[int | None, typer.Option(min=1, help="Steps of each run. Default: 300.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where the runs and the page go. Default: runs/demo.")
    ] = None,
) -> None:
    """Train twice on stale samples, without and with a correction.

    A tiny policy learns running sums from samples that are eight versions old: once uncorrected, once with k3-rs, which drops
    the sequences that have drifted too far. Nothing else differs. Takes one to three minutes on two cores and ends with one
    page that compares the two. Ctrl-C stops; the same command does not repeat a finished run.
    """
    check_training()
    from trimtab.lab.demo import DEMO_STEPS, demo_pair, run_demo
    from trimtab.report import write_comparison

    runs = demo_pair(seed, steps or DEMO_STEPS)
    path = out or Path("runs") / ("demo" if seed == 0 else f"demo-seed-{seed}")
    try:
        with DemoProgress(len(runs) * (steps or DEMO_STEPS)) as display:
            outcomes = run_demo(runs, path, display.seen)
    except KeyboardInterrupt:
        show.note(f"Interrupted. Finished runs are kept in {path}; run the same command again to continue.")
        raise
    page = write_comparison([each.path for each in outcomes], path / "compare.html")
    show.put(*_ending(outcomes, steps or DEMO_STEPS, page))


def _ending(outcomes: list[DemoOutcome], steps: int, page: Path) -> list[RenderableType]:
    rows = [(each.name, f"{each.before:.3f}", f"{each.best:.3f}", f"{each.after:.3f}") for each in outcomes]
    return [
        "",
        f"Held-out accuracy over {steps} steps on samples eight versions old:",
        "",
        show.table(("", "start", "best", "end"), rows),
        "",
        f"page  {page}",
    ]
