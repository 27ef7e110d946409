"""`trimtab explain` of a file: one of ours, or a framework's, said or recognised."""

from __future__ import annotations

from pathlib import Path

import typer

from trimtab.cli import show
from trimtab.cli.convert import PARTLY, file_page
from trimtab.config.algebra import Correction
from trimtab.config.files import correction_from, is_file_name
from trimtab.dialects import DIALECTS, read
from trimtab.dialects.files.shape import Evidence
from trimtab.dialects.guess import recognise
from trimtab.errors import ConfigError

OURS = {".yaml", ".yml", ".json"}


def own_or_theirs(name: str, changes: list[str]) -> Correction | None:
    """A correction of ours by name or file; None for a file that is a framework's."""
    path = Path(name)
    if not (is_file_name(name) or _is_file(path)):
        return correction_from(name, changes)
    if path.suffix.lower() not in OURS and _is_file(path):
        return None
    try:
        return correction_from(name, changes)
    except ConfigError:
        if changes or _sign(path) is None:
            raise
        return None


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _sign(path: Path) -> Evidence | None:
    try:
        return recognise(path)
    except ConfigError:
        return None


def explain_file(name: str, framework: str | None, documented: bool, sets: list[str]) -> None:
    """Print what a framework's file computes; exit code 3 where a part of it could not be read."""
    why = ""
    if framework is None:
        shown = recognise(Path(name))
        framework = shown.framework
        why = f"Taken as {DIALECTS[framework].title} because {shown.why}; --from NAME says otherwise."
    reading = read(framework, Path(name), documented, overrides=sets)
    show.put(*file_page(reading, Path(name), why))
    if reading.refused:
        raise typer.Exit(PARTLY)
