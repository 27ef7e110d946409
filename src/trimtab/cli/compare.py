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
from trimtab.dialects.fields import PARTS, SOFT, Gravity, compared, goal_fields, in_words
from trimtab.dialects.guess import framework_of
from trimtab.dialects.reading import NOTHING
from trimtab.dialects.same import is_same
from trimtab.dialects.writing.idle_clip import with_idle_clip
from trimtab.dialects.writing.plain_rewards import with_plain_rewards
from trimtab.errors import ConfigError

OWN = {name: name for name in ("correction", "loss", "reduction", "kl", "advantage", "shaping")} | {
    "entropy_bonus": "entropy"
}
"""Parts of a training file → what a Reading calls them."""
Compared = tuple[str, str, Gravity, tuple[Any, Any]]
"""A difference: its part, its field, what it changes, and the two values."""


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
) -> None:
    """Say whether two files of settings compute the same thing.

    Where the corrections differ you get the smallest batch that shows it; losses and advantages are compared field by field. A part
    that only one of them has is not compared. What hardly any number meets is a note: safety limits, eps, a group of one, rows without
    tokens. What a loss does with rejected tokens counts only where something can be rejected.

    Exit codes: 0 they are the same, as far as both say it. 1 they differ. 2 an error. 3 no difference was seen, but a part of one could
    not be read. After `trimtab convert`, comparing the source with the result gives 0 if and only if convert gave 0.
    """
    one, other = (
        _read(place, documented, _sets_for(side, sets or [])) for side, place in (("A", first), ("B", second))
    )
    every = [*compared(*map(in_plain_words, (one, other)))]
    found = [
        *_difference(
            one, other, {name for part, name, grave, _ in every if part == "correction" and grave == "differs"}
        )
    ]
    found += _part_lines([each for each in every if each[2] == "differs"])
    for line in found or ["They compute the same thing."]:
        show.put(line)
    for note in _notes(one, other, every):
        show.note(note)
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


def in_plain_words(reading: Reading) -> Reading:
    """The same in the words that equal losses and rewards share."""
    return with_plain_rewards(with_idle_clip(reading))


def _notes(one: Reading, other: Reading, every: list[Compared]) -> Iterator[str]:
    """What differs where hardly any number meets it."""
    rules = one.rule, other.rule
    said = {name: grave for part, name, grave, _ in every if part == "correction"}
    if (
        rules[0] is not None
        and rules[1] is not None
        and set(said.items()) <= {("limits", "note")}
        and not is_same(*rules)
    ):
        yield "Their safety limits on log-ratios differ, but only beyond ratios that are never met or bounds that hold anyway."
    for part, name, grave, ends in every:
        if part == "correction" and name == "kept" and grave == "note":
            yield "One takes tokens out of the mask where the other weighs them 0, which is the same without a KL or an entropy term."
        elif part != "correction" and grave == "note":
            mine, theirs = map(in_words, ends)
            yield f"B {SOFT[name.rpartition('.')[2]].rstrip('.')} ({name} {mine} in A, {theirs} in B)."


def _sets_for(side: str, sets: list[str]) -> list[str]:
    """The settings meant for one side or for both."""
    return [
        each.removeprefix(f"{side}:")
        for each in sets
        if not each.startswith(("A:", "B:")) or each.startswith(f"{side}:")
    ]


def _part_lines(off: list[Compared]) -> Iterator[Text]:
    """The fields of loss and advantage that differ, those of one part on one line."""
    for part in PARTS:
        named = {name: ends for each, name, _, ends in off if each == part}
        fields = (f"{path} {in_words(mine)} in A, {in_words(theirs)} in B" for path, (mine, theirs) in named.items())
        if named:
            yield Text(f"The {part} differs: {'; '.join(fields)}.")


def _read(place: str, documented: bool, sets: list[str]) -> Reading:
    name, sign, file = place.partition(":")
    if sign and name in DIALECTS:
        return read(name, Path(file), documented, overrides=sets)
    if place in preset_names():
        return Reading(framework="trimtab", correction=correction_from(place))
    if not is_file_name(place) and not os.path.exists(place):
        raise ConfigError(
            f"{place} needs to be a file, NAME:FILE or a preset, got none of them. `trimtab presets` lists ours."
        )
    try:
        return _read_own(place)
    except ConfigError:
        return read(framework_of(Path(place)), Path(place), documented, overrides=sets)


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


def _difference(first: Reading, second: Reading, off: set[str]) -> list[Any]:
    """Lines that say how two corrections differ; none where they agree, or where neither corrects anything."""
    one, other = first.rule, second.rule
    if one is None or other is None:
        refused = any(each.part == "correction" for each in (*first.refused, *second.refused))
        known = one or other
        return [] if refused or known is None or is_same(known, NOTHING) else ["Only one of them has a correction."]
    lines: list[Any] = []
    if off & {"weights", "kept"}:
        lines += _shown_difference(one, other)
    if "limits" in off:
        lines.append("They differ only in their limits on log-ratios, so only where |log_r| is beyond them.")
    if "denominator" in off:
        lines.append(f"They divide by other counts: A by the tokens {one.denominator}, B by those {other.denominator}.")
    if "applies_to" in off:
        lines.append("One of them also weighs the KL term.")
    return lines


def _shown_difference(one: Correction, other: Correction) -> list[Any]:
    """A batch on which they differ; where none was found, that."""
    if one.policies != other.policies:
        there = {"bypass": "behavior", "decoupled": "proximal"}
        said = f"A's ratio divides by {there[one.policies]}, B's by {there[other.policies]}."
        if not any(each.gates or each.weighs for each in (one, other)):
            return [said]
    example = smallest_difference(one, other)
    if example is None:
        return [f"They are written differently; {MOST} small batches showed no difference."]
    return ["They differ on this batch:", show.table(("TOKEN", "RATIO", "ADVANTAGE", "A", "B"), example)]
