"""`trimtab compare`: whether two files compute the same thing, and a smallest batch on which they do not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from trimtab.cli import show
from trimtab.cli.exits import READ_IN_PART
from trimtab.cli.smallest import MOST, smallest_difference
from trimtab.config.algebra import Correction
from trimtab.config.files import correction_from, is_file_name, plain_settings
from trimtab.config.presets import preset_names
from trimtab.config.training import Train
from trimtab.dialects import DIALECTS, Reading, read
from trimtab.dialects.fields import PARTS, differences, goal_fields, heads, in_words
from trimtab.dialects.guess import framework_of
from trimtab.dialects.same import is_same, sameness
from trimtab.errors import ConfigError

OWN = {name: name for name in ("correction", "loss", "reduction", "kl", "advantage", "shaping")} | {
    "entropy_bonus": "entropy"
}
"""Parts of a training file → what a Reading calls them."""


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A file, NAME:FILE to name its framework, or a preset.")],
    second: Annotated[str, typer.Argument(metavar="B", help="What to compare it with, given in the same way.")],
    documented: Annotated[
        bool,
        typer.Option("--documented", help="Read what the documentation promises, where the code does something else."),
    ] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Set a key on top of both files; A:KEY=VALUE or B:KEY=VALUE for one of them.",
        ),
    ] = None,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            metavar="DIR",
            help="Read files that the two build on anywhere below this folder. Their repository if you leave it out.",
        ),
    ] = None,
) -> None:
    """Say whether two files of settings compute the same thing.

    Where the corrections differ you get the smallest batch that shows it; losses and advantages are compared field by field. A part
    that only one of them has is not compared. Safety limits on log-ratios that nothing can reach are a note.

    Exit codes: 0 they are the same. 1 they differ. 2 an error. 3 no difference was seen, but a part of one could not be read.
    """
    one, other = (
        _read(place, documented, _sets_for(side, sets or []), root) for side, place in (("A", first), ("B", second))
    )
    found = [*_difference(one, other), *_part_differences(one, other)]
    for line in found or ["They compute the same thing."]:
        show.put(line)
    if not found and _only_limits_differ(one, other):
        show.note(
            "Their safety limits on log-ratios differ, but only beyond ratios that are never met or bounds that hold anyway."
        )
    a, b = goal_fields(one), goal_fields(other)
    for part in [part for part in PARTS if (part in a) != (part in b)]:
        show.note(f"Only {'A' if part in a else 'B'} speaks of the {part}, so it was not compared.")
    refused = [f"{side}: {each}" for side, reading in (("A", one), ("B", other)) for each in reading.refused]
    for line in refused:
        show.note(line)
    if found:
        raise typer.Exit(1)
    if refused:
        raise typer.Exit(READ_IN_PART)


def _only_limits_differ(one: Reading, other: Reading) -> bool:
    rules = one.correction, other.correction
    return rules[0] is not None and rules[1] is not None and not is_same(rules[0], rules[1])


def _sets_for(side: str, sets: list[str]) -> list[str]:
    """The settings meant for one side or for both."""
    return [
        each.removeprefix(f"{side}:")
        for each in sets
        if not each.startswith(("A:", "B:")) or each.startswith(f"{side}:")
    ]


def _part_differences(one: Reading, other: Reading) -> Iterator[Text]:
    """The fields of loss and advantage that differ, those of one part on one line."""
    a, b = goal_fields(one), goal_fields(other)
    for part in [part for part in PARTS if part in a and part in b]:
        off = heads(differences(a[part], b[part]))
        if off:
            fields = (f"{path} {in_words(mine)} in A, {in_words(theirs)} in B" for path, (mine, theirs) in off.items())
            yield Text(f"The {part} differs: {'; '.join(fields)}.")


def _read(place: str, documented: bool, sets: list[str], root: Path | None) -> Reading:
    name, sign, file = place.partition(":")
    if sign and name in DIALECTS:
        return read(name, Path(file), documented, overrides=sets, root=root)
    if place in preset_names():
        return Reading(framework="trimtab", correction=correction_from(place))
    if not is_file_name(place) and not os.path.exists(place):
        raise ConfigError(
            f"{place} needs to be a file, NAME:FILE or a preset, got none of them. `trimtab presets` lists ours."
        )
    try:
        return _read_own(place)
    except ConfigError:
        return read(framework_of(Path(place), root), Path(place), documented, overrides=sets, root=root)


def _read_own(place: str) -> Reading:
    """A file of ours: a correction, or the parts of a training run that it names."""
    settings = plain_settings(place)
    if not settings.keys() & OWN.keys():
        return Reading(framework="trimtab", correction=correction_from(place))
    run = Train.from_settings(settings)
    said = {OWN[name]: getattr(run, name) for name in settings if name in OWN}
    if "shaping" in said:
        said["shaping"] = (said["shaping"],)
    return Reading(framework="trimtab", **said)


def _difference(first: Reading, second: Reading) -> list[Any]:
    """Lines that say how two corrections differ; none where they agree."""
    one, other = first.correction, second.correction
    if one is None or other is None:
        refused = any(each.part == "correction" for each in (*first.refused, *second.refused))
        return [] if one is other or refused else ["Only one of them has a correction."]
    same = sameness(one, other)
    lines: list[Any] = []
    if not (same.weights and same.kept):
        lines += _shown_difference(one, other)
    elif not same.limits:
        lines.append("They differ only in their limits on log-ratios, so only where |log_r| is beyond them.")
    if not same.denominator:
        lines.append(f"They divide by other counts: A by the tokens {one.denominator}, B by those {other.denominator}.")
    if not same.applies_to:
        lines.append("One of them also weighs the KL term.")
    return lines


def _shown_difference(one: Correction, other: Correction) -> list[Any]:
    """A batch on which they differ; where none was found, that."""
    example = smallest_difference(one, other)
    if example is None:
        return [f"They are written differently; {MOST} small batches showed no difference."]
    return ["They differ on this batch:", show.table(("TOKEN", "RATIO", "ADVANTAGE", "A", "B"), example)]
