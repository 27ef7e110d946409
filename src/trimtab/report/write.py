"""Pages and charts as files: the report of a run, the comparison of several, a picture per chart; whole or not at all."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from trimtab.errors import RecordError, TrimtabError
from trimtab.records.files import write_whole
from trimtab.records.run import RunDirectory
from trimtab.report.charts.panels import chart_sections
from trimtab.report.compare import SHEET, compared_charts, comparison
from trimtab.report.draw.figure import DrawnChart, paper_style, picture
from trimtab.report.draw.palette import rules
from trimtab.report.page import report_html
from trimtab.report.run import read_run, read_runs
from trimtab.report.tokens import tokens


def write_report(path: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a run directory, finished or not; whole or not at all. Where it went: `report.html` in it, or `out`."""
    where = RunDirectory.read(path).report if out is None else Path(out)
    run = read_run(path)
    with drawing(path):
        page = report_html(run)
    write_page(where, page)
    return where


def write_comparison(paths: Sequence[str | Path], out: str | Path) -> Path:
    """Write one page that compares run directories: verdicts side by side, curves over each other, settings that differ."""
    with drawing(*paths):
        page = comparison(read_runs(paths), Path(out))
    write_page(Path(out), page)
    return Path(out)


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
    names: dict[str, None] = {}
    for identity in identities:
        stem = re.sub(r"[^\w.-]+", "-", identity, flags=re.ASCII)[:80].strip(".-") or "chart"
        name, more = f"{stem}.svg", 2
        while name in names:
            name, more = f"{stem}-{more}.svg", more + 1
        names[name] = None
    return list(names)


@contextmanager
def drawing(*paths: str | Path) -> Generator[None]:
    """What a report cannot draw, said: the files of a run are no promise, and hold settings, events and numbers of any kind."""
    try:
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            yield
    except TrimtabError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise RecordError(
            f"{', '.join(map(str, paths))} needs settings, metrics and events as a run writes them, got others: "
            f"{type(error).__name__}: {error}."
        ) from error


def write_page(where: Path, page: str) -> None:
    """Put a page there, whole or not at all."""
    try:
        write_whole(where, page.encode("utf-8", "replace"))
    except RecordError as error:
        cause = error.__cause__
        reason = (cause.strerror if isinstance(cause, OSError) else None) or str(error)
        raise RecordError(f"{where} cannot be written: {reason}. Mend that, or choose another place.") from cause
