"""`trimtab convert --in-place`: a folder of one framework's files brought to its keys of today."""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import typer

from trimtab.cli import show
from trimtab.cli.write import write_file
from trimtab.config.safe_yaml import text_of
from trimtab.config.visible import on_one_line
from trimtab.dialects.frameworks import dialect_of
from trimtab.dialects.writing.migration import TODAY, migrate
from trimtab.errors import ConfigError, TrimtabError


def migrate_files(framework: str, places: list[Path], dry_run: bool) -> None:
    """Rewrite, or show, every file that uses replaced keys; say how many did, did not, and could not, and why."""
    count = {"changed": 0, "same": 0, "passed": 0, "refused": 0}
    for file in _yaml_files(places):
        try:
            text = text_of(file)
            result = migrate(framework, text)
            if result.changed and not dry_run:
                write_file(file, result.text)
        except TrimtabError as error:
            count["refused"] += 1
            show.complain(_about(file, str(error)))
            continue
        if result.changed:
            count["changed"] += 1
            show.put_raw(_diff(file, text, result.text))
        elif result.reason == TODAY:
            count["same"] += 1
        else:
            count["passed"] += 1
            show.note(f"{file} is left as it is: {result.reason}.")
    done = "would be rewritten" if dry_run else "rewritten"
    counted = f"{count['changed']} {done}, {count['same']} need nothing, {count['refused']} refused"
    others = f", {count['passed']} not {dialect_of(framework).title} settings" if count["passed"] else ""
    show.put_raw(f"{counted}{others}.\n")
    if count["refused"]:
        raise typer.Exit(1)


def _about(file: Path, problem: str) -> str:
    if problem.startswith(str(file)):
        return problem
    own = problem.removeprefix("The text ")
    return f"{file} {own}" if own != problem else f"{file} is left as it is: {problem}"


def _diff(file: Path, before: str, after: str) -> str:
    """A unified diff; a last line without a break says so, as diff does."""
    name = on_one_line(str(file))
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), name, name)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def _yaml_files(places: list[Path]) -> list[Path]:
    """The files named, and those under the folders named, each once however many links lead to it."""
    found: dict[str, Path] = {}
    for place in places:
        if not os.path.lexists(place):
            raise ConfigError(f"{place} needs to exist, got nothing there. Check the path.")
        inside = sorted(each for each in place.rglob("*") if each.suffix in (".yaml", ".yml")) if place.is_dir() else []
        for file in inside if place.is_dir() else [place]:
            if not file.is_dir():
                found.setdefault(os.path.realpath(file), file)
    return list(found.values())
