"""A run directory to one HTML file that needs no network.

run directory ─► Run ─► findings (verdict, signs, filtering, supply) ─┐
                  ├──► charts (panels, classes → chart, bars)          ├─► page ─► report.html
                  └──► rollouts (choice, tokens)                      ─┘
"""

from __future__ import annotations

from pathlib import Path

from trimtab.report.finding import Finding
from trimtab.report.findings import findings
from trimtab.report.page import html
from trimtab.report.run import Run

__all__ = ["Finding", "Run", "findings", "html", "write"]


def write(path: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run directory, finished or not; whole or not at all. Where it went: `report.html` in it, or `out`."""
    from trimtab.report import directory  # a Run made by hand needs no run directory

    return directory.write(path, out)
