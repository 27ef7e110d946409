"""`trimtab report` of logs of other trainers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import typer
from rich.console import RenderableType
from rich.text import Text

from trimtab.cli import show
from trimtab.errors import ConfigError
from trimtab.report.log import ReadLog, mappings, read_logs
from trimtab.report.log_findings import certain
from trimtab.report.log_page import log_json, log_lines, log_page
from trimtab.report.write import drawing, write_page

MOST_LOGS = 4
"""That a terminal shows in full."""
MOST_CHARACTERS = 400
HEADINGS = {"certain": "bold", "first": "bold"}


def report_logs(
    paths: Sequence[Path],
    out: Path | None,
    *,
    framework: str | None,
    mapped: Sequence[str],
    as_json: bool,
    fail_on: str | None,
) -> None:
    """Print what the logs say, and write the page where one is asked for; exit code 1 where `fail_on` holds."""
    if fail_on not in (None, "certain"):
        raise ConfigError(f"--fail-on needs certain, got {fail_on!r}.")
    theirs = mappings(mapped)
    with drawing(*paths):
        reads = [read for path in paths for read in read_logs(path, framework, theirs)]
        if as_json:
            found = [log_json(read) for read in reads]
            show.put_raw(json.dumps(found[0] if len(found) == 1 else found, indent=2, ensure_ascii=False) + "\n")
        else:
            for place, read in enumerate(reads[:MOST_LOGS]):
                show.put(*([Text("")] if place else []), *_lines(read))
            if len(reads) > MOST_LOGS:
                show.put(f"{len(reads) - MOST_LOGS} more logs: -o PAGE.html or --json shows all.")
        if out is not None:
            write_page(out, log_page(reads))
    if out is not None and not as_json:
        show.put(f"report  {out}")
    if fail_on and any(each.is_fault for read in reads for each in certain(read)):
        raise typer.Exit(1)


def _lines(read: ReadLog) -> list[RenderableType]:
    head, sections = log_lines(read)
    lines: list[RenderableType] = [Text(head, style="bold")]
    for heading, said in sections:
        for place, line in enumerate(said):
            label = heading if place == 0 else ""
            cut = line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"
            lines.append(Text.assemble((f"  {label:<10}", HEADINGS.get(heading, "dim")), cut))
    return lines
