"""`trimtab convert` and `explain --from`: other frameworks' files in our words, and in one another's."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml
from rich.console import RenderableType
from rich.text import Text

from trimtab.cli import show
from trimtab.cli.write import write_file
from trimtab.config.base import Config
from trimtab.config.bounded import text_of
from trimtab.config.visible import on_one_line
from trimtab.config.words import Passage, formulas, passages
from trimtab.dialects import DIALECTS, Finding, Reading, read, write
from trimtab.dialects.frameworks import dialect_of
from trimtab.dialects.writing.migration import TODAY, migrate
from trimtab.errors import ConfigError, TrimtabError, UnknownNameError, nearest

FRAMEWORKS = ", ".join(DIALECTS)
PARTS = ("correction", "loss", "advantage")
PARTLY = 3
"""The exit code where a part of the settings could not be read and the rest was."""
COLORS = {"note": "dim", "surprise": "yellow", "defect": "bold red"}


def convert(
    files: Annotated[list[Path], typer.Argument(metavar="FILE…", help="Settings files, or folders with --in-place.")],
    source: Annotated[str, typer.Option("--from", metavar="NAME", help=f"Whose settings they are: {FRAMEWORKS}.")],
    target: Annotated[
        str | None, typer.Option("--to", metavar="NAME", help="Whose they shall be; left out: ours.")
    ] = None,
    documented: Annotated[
        bool, typer.Option("--documented", help="Take what the documentation promises instead of what is computed.")
    ] = False,
    only: Annotated[
        str | None,
        typer.Option(
            "--only", metavar="PARTS", help="Carry only these: correction, loss, advantage; joined by commas."
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Exit with code 1 if a finding is a defect.")] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key of the source's on top of its file; may be repeated."),
    ] = None,
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Rewrite replaced keys of one framework, comments and layout kept.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="With --in-place: only show what would change.")] = False,
) -> None:
    """Convert a framework's settings to another's, or to ours.

    Files are YAML, TOML, JSON, launch scripts (.sh) and Python scripts; nothing in them is run, and nothing is read from the
    environment. What a file leaves open (an argument, a variable it does not set) is an error only where it matters; --set says it.

    Prints the target's settings on stdout and what there is to know about the source's on stderr. Correction, loss (with its
    reduction, KL and entropy terms) and advantage are carried where the source speaks of them; a part the target cannot say is an error
    that names it and says what the rest would need. A part of the source that cannot be read is named, the others are carried, and
    the exit code is 3.
    """
    parts = _parts(only)
    if in_place:
        if target is not None and dialect_of(target) != dialect_of(source):
            raise ConfigError(
                "--in-place needs one framework on both sides. Convert single files to another framework."
            )
        _migrate(source, files, dry_run)
        return
    defects = 0
    refused = False
    for file in files:
        reading = _only(read(source, file, documented, overrides=sets or ()), parts)
        _report(reading.findings)
        refused = _refusals(reading) or refused
        defects += len(reading.defects)
        if (reading.correction, reading.loss, reading.reduction, reading.advantage) == (None,) * 4:
            raise ConfigError(f"{file}: nothing was read that could be converted. See the findings above.")
        if target is None:
            show.put_raw(_ours(file, reading))
            continue
        result = write(target, reading)
        _report([each for each in result.findings if each not in reading.findings])
        show.put_raw(_yaml(result.settings))
    if check and defects:
        raise typer.Exit(1)
    if refused:
        raise typer.Exit(PARTLY)


def _refusals(reading: Reading) -> bool:
    """Say which parts could not be read; whether there are any."""
    page = show.console(stderr=True)
    for each in reading.refused:
        page.print(Text.assemble(("refused: ", "bold red"), (f"{each.part}: ", "bold"), each.text))
    return bool(reading.refused)


def _parts(only: str | None) -> tuple[str, ...]:
    named = tuple(part.strip() for part in only.split(",")) if only is not None else PARTS
    for part in named:
        if part not in PARTS:
            raise UnknownNameError(f"--only needs correction, loss or advantage, got {part!r}. {nearest(part, PARTS)}")
    return named


def _only(reading: Reading, parts: tuple[str, ...]) -> Reading:
    """A reading with the other parts left out."""
    if "correction" not in parts:
        reading = replace(reading, correction=None)
    if "loss" not in parts:
        reading = replace(reading, loss=None, reduction=None, kl=None, entropy=None)
    if "advantage" not in parts:
        reading = replace(reading, advantage=None, shaping=(), advantage_norm=None, reward_kl=None, advantage_clip=None)
    return replace(reading, refused=tuple(each for each in reading.refused if each.part in parts))


def _ours(file: Path, reading: Reading) -> str:
    """Everything read, under the names of a `trimtab train` file; what those have no name for, as comments."""
    dialect = dialect_of(reading.framework)
    lines = [
        f"# {on_one_line(file.name)}, read as {dialect.title} {dialect.version}: part of a file for `trimtab train`."
    ]
    for name, value in _nameless(reading).items():
        lines.append(f"# {name}, which such a file has no name for: {value}")
    parts = {
        "correction": reading.correction,
        "loss": reading.loss,
        "reduction": reading.reduction,
        "kl": reading.kl,
        "entropy_bonus": reading.entropy,
        "advantage": reading.advantage,
        "shaping": reading.shaping[0] if len(reading.shaping) == 1 else None,
    }
    held = {name: value.settings() for name, value in parts.items() if value is not None}
    return "\n".join(lines) + "\n" + _yaml(held)


def _nameless(reading: Reading) -> dict[str, str]:
    """What was read and is handed to functions of ours by the caller."""
    found: dict[str, Any] = {}
    if reading.kl is not None and reading.kl_to != "reference":
        found["kl to"] = reading.kl_to
    if reading.loss is not None and reading.advantage_scale != 1:
        found["scale of the advantages"] = reading.advantage_scale
    if reading.advantage_clip is not None:
        found["advantages held within ±"] = reading.advantage_clip
    if len(reading.shaping) > 1:
        found["shaping in steps"] = [step.settings() for step in reading.shaping]
    for name, value in {"advantage norm": reading.advantage_norm, "KL in the reward": reading.reward_kl}.items():
        if value is not None:
            found[name] = value.settings()
    return {
        name: yaml.safe_dump(value, default_flow_style=True, width=1000).split("\n")[0] for name, value in found.items()
    }


def _report(findings: Iterable[Finding]) -> None:
    page = show.console(stderr=True)
    for each in findings:
        page.print(Text.assemble((f"{each.level}: ", COLORS[each.level]), (f"{each.key}: ", "bold"), each.text))


def _yaml(settings: Any) -> str:
    return yaml.safe_dump(settings, sort_keys=False, default_flow_style=False, allow_unicode=True)


# ── a folder of one framework's files ──────────────────────────────────────────────────────────────────────────────────


def _migrate(framework: str, places: list[Path], dry_run: bool) -> None:
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


# ── in words ───────────────────────────────────────────────────────────────────────────────────────────────────────────


WORST_FIRST = ("defect", "surprise", "note")
STYLES = {"refused": "bold red", "defect": "bold red", "surprise": "yellow"}


def file_page(reading: Reading, file: Path, why: str = "") -> list[RenderableType]:
    """A page about a framework's file: what it computes, what is wrong with that, the worst first, and then the whole."""
    dialect = dialect_of(reading.framework)
    refused = [("refused", f"{each.part}: {each.text}") for each in reading.refused]
    found = sorted(reading.findings, key=lambda each: WORST_FIRST.index(each.level))
    page: list[RenderableType] = [
        Text(f"{file.name}, read as {dialect.title} {dialect.version}", style="bold"),
        *([Text(why, style="dim")] if why else []),
    ]
    rule = reading.correction
    if rule is not None:
        page += [Text(""), *(Text(f"  {line}", style="green") for line in formulas(rule))]
    page += show.lines(Passage("Not read", tuple(refused)), STYLES)
    page += show.lines(Passage("Findings", tuple((each.level, f"{each.key}: {each.text}") for each in found)), STYLES)
    for section in [] if rule is None else passages(rule):
        page += show.lines(section)
    page += show.lines(Passage("Besides", tuple(_besides(reading))))
    page += show.lines(Passage("Where ours departs on purpose", tuple(("", line) for line in dialect.apart)))
    return page


def _besides(reading: Reading) -> Iterable[tuple[str, str]]:
    """Loss, reduction and advantage on one line each."""
    parts: dict[str, Config | None] = {
        "loss": reading.loss,
        "reduction": reading.reduction,
        "kl": reading.kl,
        "entropy": reading.entropy,
        "advantage": reading.advantage,
        "reward kl": reading.reward_kl,
        "advantage norm": reading.advantage_norm,
    }
    for name, value in parts.items():
        if value is not None:
            fields = ", ".join(f"{key} {each}" for key, each in value.settings().items())
            yield name, fields
    if reading.advantage_clip is not None:
        yield "advantage clip", f"± {reading.advantage_clip:g}"
    for step in reading.shaping:
        yield "shaping", ", ".join(f"{key} {each}" for key, each in step.settings().items()) or "none"
