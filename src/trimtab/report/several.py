"""From run directories to one page that compares them, and from a run or several to a file per chart."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from trimtab.errors import RecordError
from trimtab.report.compare import SHEET, compared_charts, comparison
from trimtab.report.directory import drawing, read_run, write_page
from trimtab.report.drawn import DrawnChart
from trimtab.report.page import chart_sections
from trimtab.report.palette import rules
from trimtab.report.paper import paper_style, picture
from trimtab.report.run import Run
from trimtab.report.tokens import tokens


def write_comparison(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write one page that compares run directories: verdicts side by side, curves over each other, settings that differ."""
    with drawing(*paths):
        page = comparison(read_runs(paths))
    write_page(Path(out), page)
    return Path(out)


def read_runs(paths: Sequence[str | Path]) -> list[Run]:
    """The runs, each called by its folder, or by its whole path where two folders are called the same."""
    runs = [read_run(path) for path in paths]
    names = [run.name for run in runs]
    told = [run.name if names.count(run.name) == 1 else str(path) for run, path in zip(runs, paths, strict=True)]
    if len(set(told)) < len(told):
        raise RecordError(
            f"A comparison needs different runs, got {', '.join(told)}. Leave out what stands there twice."
        )
    return [replace(run, name=name) for run, name in zip(runs, told, strict=True)]


def write_charts(paths: Sequence[str | Path], folder: str | Path) -> list[Path]:
    """Write every chart of a run, or of the comparison of several, as an SVG file of its own; where they went."""
    with drawing(*paths):
        charts, style = _charts(paths)
        pictures = [picture(chart.svg, style) for chart in charts]
    written = [Path(folder) / name for name in file_names(each.id for each in charts)]
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RecordError(f"{folder} cannot be made: {error.strerror}. Choose another folder.") from error
    for where, drawn in zip(written, pictures, strict=True):
        write_page(where, drawn)
    return written


def _charts(paths: Sequence[str | Path]) -> tuple[list[DrawnChart], str]:
    """The charts of a run or of a comparison, and the style they need on paper."""
    if len(paths) == 1:
        run = read_run(paths[0])
        return [each for section in chart_sections(run, tokens(run)) for each in section.charts], paper_style()
    return compared_charts(read_runs(paths)), paper_style(rules(max(0, len(paths) - len(SHEET))))


def file_names(identities: Iterable[str]) -> list[str]:
    """A file name for each chart: letters, digits, dots and dashes only, none twice."""
    found: dict[str, None] = {}
    for identity in identities:
        stem = re.sub(r"[^\w.-]+", "-", identity, flags=re.ASCII)[:80].strip(".-") or "chart"
        name, more = f"{stem}.svg", 2
        while name in found:
            name, more = f"{stem}-{more}.svg", more + 1
        found[name] = None
    return list(found)
