"""`trimtab explain` of a framework's file, said or recognised."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, cast

import typer
from rich.console import RenderableType
from rich.text import Text

from trimtab.cli import show
from trimtab.cli.findings import WORST_FIRST, Lines, RemarkLine, from_findings
from trimtab.cli.show import READ_IN_PART
from trimtab.config.base import Config
from trimtab.dialects import Reading, read
from trimtab.dialects.reading import Level
from trimtab.dialects.recognise import recognise
from trimtab.dialects.registry import SIGNATURES, dialect_of
from trimtab.dialects.sources.formats import ENDINGS
from trimtab.dialects.sources.inherit import is_file
from trimtab.dialects.sources.opening import OpenedFile, open_file
from trimtab.errors import ConfigError, ConfigFileError
from trimtab.explain.words import Passage, formulas, passages

MOST_TRIED, SHOWN = 60, 4
"""Files of a folder that are looked into, and those that are named."""

DEVIATION = ("std_over", "unbiased", "eps")
"""How a deviation is taken, which is nothing where none divides."""


def explain_file(
    file: Path | OpenedFile,
    framework: str | None,
    documented: bool,
    sets: list[str],
    everything: bool = False,
    version: str = "",
    root: Path | None = None,
    fail_on: Level | None = None,
    as_json: bool = False,
) -> None:
    """Print what a framework's file computes; exit code 1 for a finding of the kind `fail_on`, 3 where a part could not be read."""
    path = Path(file)
    refuse_folder(path, "explain")
    opened = file if isinstance(file, OpenedFile) else open_file(path, root)
    why = ""
    if framework is None:
        shown = recognise(opened)
        framework = shown.framework
        why = f"Recognised as {SIGNATURES[framework].title}: {shown.why}. Override with --from NAME."
    reading = read(framework, opened, documented, overrides=sets, version=version)
    if as_json:
        show.put_raw(json.dumps(file_facts(reading, path), indent=2, ensure_ascii=False) + "\n")
    else:
        show.put(*file_page(reading, path, why, everything))
    if any(each.level == fail_on for each in reading.findings):
        raise typer.Exit(1)
    if reading.refused:
        raise typer.Exit(READ_IN_PART)


def file_facts(reading: Reading, file: Path) -> dict[str, Any]:
    """What a framework's file computes, for programs: findings with their kind, parts that were not read, formulas."""
    rule = reading.rule
    parts = {
        name.replace(" ", "_"): value.model_dump(mode="json")
        for name, value in _values(reading).items()
        if value is not None
    }
    return {
        "file": file.name,
        "framework": reading.framework,
        "version": reading.version,
        "findings": [
            {"kind": each.level, "key": each.key, "text": each.sentence, "source": each.source}
            for each in sorted(reading.findings, key=lambda each: WORST_FIRST.index(each.level))
        ],
        "not_read": [{"part": each.part, "text": each.text} for each in reading.refused],
        "correction": None if rule is None else rule.model_dump(mode="json"),
        **parts,
    }


def file_page(reading: Reading, file: Path, why: str = "", everything: bool = False) -> list[RenderableType]:
    """What a framework's file computes, what is wrong with that, the worst first, and then the whole in words."""
    dialect = dialect_of(reading.framework)
    others = [each for each in dialect.releases if each != reading.version]
    is_chosen = others and reading.version in dialect.releases
    choice = (
        f"; --version {' or '.join(each.rpartition(' ')[2] for each in others)} reads it as that release"
        if is_chosen
        else ""
    )
    found: list[RenderableType] = [
        Text(f"{file.name}, read as {dialect.title} {reading.version or dialect.version}{choice}", style="bold"),
        *([Text(why, style="dim")] if why else []),
    ]
    rule = reading.correction
    if rule is not None:
        found += [Text(""), *(Text(f"  {line}", style="green") for line in formulas(rule))]
    elif _is_uncorrected(reading):
        found += [Text(""), Text("  No correction: every trained token has weight 1.", style="green")]
    for title, remarks in (
        ("Not read", [RemarkLine(each.part, "", each.text) for each in reading.refused]),
        ("Findings", from_findings(reading.findings)),
    ):
        if remarks:
            found += [Text(""), show.heading(title), Lines(remarks, everything, indent="  ")]
    for section in [] if rule is None else passages(rule):
        found += show.lines(section)
    found += show.lines(Passage("Loss and advantage", tuple(_loss_and_advantage(reading))))
    if everything:
        found += show.lines(Passage("Where ours departs on purpose", tuple(("", line) for line in dialect.apart)))
    return found


def _is_uncorrected(reading: Reading) -> bool:
    """Whether a file asks for no correction; one whose loss is the correction always has some, and one that is refused may."""
    is_open = any(each.part == "correction" for each in reading.refused)
    return reading.correction is None and not is_open and not dialect_of(reading.framework).is_loss


def _loss_and_advantage(reading: Reading) -> Iterable[tuple[str, str]]:
    """Loss, reduction and advantage on one line each; behind them those that the framework takes by itself, marked so."""
    yield from _parts(reading)
    if reading.defaults is not None:
        title = dialect_of(reading.framework).title
        yield from ((name, f"{fields}  ({title}'s default)") for name, fields in _parts(reading.defaults))


def _values(reading: Reading) -> dict[str, Config | None]:
    """The parts beside the correction, by what they are called on the page."""
    return {
        "loss": reading.loss,
        "reduction": reading.reduction,
        "kl": reading.kl,
        "entropy": reading.entropy,
        "advantage": reading.advantage,
        "reward kl": reading.reward_kl,
        "advantage norm": reading.advantage_norm,
    }


def _parts(reading: Reading) -> Iterable[tuple[str, str]]:
    for name, value in _values(reading).items():
        if value is not None:
            yield name, _fields(value)
    if reading.advantage_clip is not None:
        yield "advantage clip", f"± {reading.advantage_clip:g}"
    for step in reading.shaping:
        yield "shaping", _fields(step)


def _fields(value: Config) -> str:
    """All that is on, also where it is our default: of another framework's file nobody knows these."""
    said = value.settings()
    fields = {name: said.get(name, each) for name, each in value.model_dump(mode="json").items()}
    idle = DEVIATION if fields.get("std") is False else ()
    shown = {
        name: each
        for name, each in fields.items()
        if name in said or (each not in (None, False, "none") and name not in idle)
    }
    return ", ".join(f"{name} {_in_words(each)}" for name, each in shown.items())


def _in_words(value: Any) -> str:
    """A field as it is printed: what holds further fields in brackets."""
    if isinstance(value, dict):
        inner = cast("dict[str, Any]", value).items()
        return f"({', '.join(f'{name} {_in_words(each)}' for name, each in inner)})"
    return "none" if value is None else str(value)


def refuse_folder(path: Path, command: str) -> None:
    """Refuse a folder where one file is wanted, with the files in it that look like settings."""
    if not os.path.isdir(path):
        return
    found: list[str] = []
    files = (each for each in sorted(path.iterdir()) if each.suffix.lower() in ENDINGS and is_file(each))
    for file in islice(files, MOST_TRIED):
        with suppress(ConfigError):
            found.append(f"{file.name} ({recognise(file).framework})")
    named = f"{', '.join(found[:SHOWN])}{f' and {len(found) - SHOWN} more' if len(found) > SHOWN else ''}"
    said = (
        f"In it these look like settings: {named}."
        if found
        else "No file directly in it looks like a framework's settings."
    )
    raise ConfigFileError(f"{command} needs a file, got the folder {path}. {said}")
