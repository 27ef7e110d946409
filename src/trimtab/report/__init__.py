"""A run directory to one HTML file that needs no network; several to one that compares them.

run directory ─► Run ─► findings (verdict, faults, signs, filtering, pace, origin, supply; advice) ─┐
                  ├──► charts (panels, classes → chart, bars → drawn)                                ├─► page ─► report.html
                  └──► rollouts (choice, tokens)                                                    ─┘   └──► compare ─► compare.html
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trimtab.report.finding import Finding
from trimtab.report.findings import findings
from trimtab.report.page import html
from trimtab.report.run import Run

__all__ = ["Finding", "Run", "findings", "html", "write", "write_charts", "write_comparison"]


def write(path: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run directory, finished or not; whole or not at all. Where it went: `report.html` in it, or `out`."""
    from trimtab.report import directory  # a Run made by hand needs no run directory

    return directory.write(path, out)


def write_comparison(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write one page that compares run directories: verdicts side by side, curves over each other, settings that differ."""
    from trimtab.report import several

    return several.write_comparison(paths, out)


def write_charts(paths: Sequence[str | Path], folder: str | Path) -> list[Path]:
    """Write every chart of a run directory, or of the comparison of several, as an SVG file of its own; where they went."""
    from trimtab.report import several

    return several.write_charts(paths, folder)
