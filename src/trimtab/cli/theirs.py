"""`trimtab explain` of a framework's file, said or recognised."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import typer
from rich.console import RenderableType
from rich.text import Text

from trimtab.cli import show
from trimtab.cli.exits import READ_IN_PART
from trimtab.cli.own import refuse_folder
from trimtab.cli.remarks import Lines, RemarkLine, from_findings
from trimtab.config.base import Config
from trimtab.dialects import Reading, read
from trimtab.dialects.frameworks import SIGNATURES, dialect_of
from trimtab.dialects.guess import recognise
from trimtab.explain.words import Passage, formulas, passages

DEVIATION = ("std_over", "unbiased", "eps")
"""How a deviation is taken, which is nothing where none divides."""


def explain_file(
    name: str,
    framework: str | None,
    documented: bool,
    sets: list[str],
    everything: bool = False,
    version: str = "",
    root: Path | None = None,
) -> None:
    """Print what a framework's file computes; exit code 3 where a part of it could not be read."""
    refuse_folder(Path(name), "explain")
    why = ""
    if framework is None:
        shown = recognise(Path(name), root)
        framework = shown.framework
        why = f"Taken as {SIGNATURES[framework].title} because {shown.why}; --from NAME says otherwise."
    reading = read(framework, Path(name), documented, overrides=sets, version=version, root=root)
    show.put(*file_page(reading, Path(name), why, everything))
    if reading.refused:
        raise typer.Exit(READ_IN_PART)


def file_page(reading: Reading, file: Path, why: str = "", everything: bool = False) -> list[RenderableType]:
    """What a framework's file computes, what is wrong with that, the worst first, and then the whole in words."""
    dialect = dialect_of(reading.framework)
    others = [each for each in dialect.releases if each != reading.version]
    is_chosen = others and reading.version in dialect.releases
    choice = (
        f"; --version {' or '.join(each.rpartition(' ')[2] for each in others)} reads it as that release does"
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
        found += [Text(""), Text("  Nothing is corrected: every trained token weighs 1.", style="green")]
    for title, remarks in (
        ("Not read", [RemarkLine("not read", each.part, each.text) for each in reading.refused]),
        ("Findings", from_findings(reading.findings)),
    ):
        if remarks:
            found += [Text(""), show.heading(title), Lines(remarks, everything, indent="  ")]
    for section in [] if rule is None else passages(rule):
        found += show.lines(section)
    found += show.lines(Passage("Besides", tuple(_besides(reading))))
    if everything:
        found += show.lines(Passage("Where ours departs on purpose", tuple(("", line) for line in dialect.apart)))
    return found


def _is_uncorrected(reading: Reading) -> bool:
    """Whether a file asks for no correction; one whose loss is the correction always has some, and one that is refused may."""
    is_open = any(each.part == "correction" for each in reading.refused)
    return reading.correction is None and not is_open and not dialect_of(reading.framework).is_loss


def _besides(reading: Reading) -> Iterable[tuple[str, str]]:
    """Loss, reduction and advantage on one line each; behind them those that the framework takes by itself, marked so."""
    yield from _parts(reading)
    if reading.defaults is not None:
        title = dialect_of(reading.framework).title
        yield from ((name, f"{fields}  ({title}'s default)") for name, fields in _parts(reading.defaults))


def _parts(reading: Reading) -> Iterable[tuple[str, str]]:
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
    return ", ".join(f"{name} {each}" for name, each in shown.items())
