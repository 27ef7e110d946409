"""`trimtab compare`: whether two files compute the same thing, and a smallest batch on which they do not."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from trimtab.cli import show
from trimtab.cli.differences import MOST, smallest_difference
from trimtab.cli.show import READ_IN_PART
from trimtab.config.correction import Correction
from trimtab.config.files import correction_from, is_file_name, plain_settings
from trimtab.config.presets import preset_names
from trimtab.config.training import Train
from trimtab.dialects import DIALECTS, Reading, read
from trimtab.dialects.equivalence import is_same, with_idle_clip, with_plain_rewards
from trimtab.dialects.fields import PARTS, SOFT, Gravity, compared, goal_fields, in_words
from trimtab.dialects.reading import NOTHING
from trimtab.dialects.recognise import framework_of
from trimtab.dialects.sources.opening import open_file
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
    that only one of them says is not compared. What hardly any number meets is a note: safety limits, eps, a group of one, rows without
    tokens. What a loss does with rejected tokens counts only where something can be rejected.

    Exit codes: 0 they are the same. 1 they differ. 2 an error. 3 no difference was seen, but a part of one could not be read, or B
    leaves a part of A to its framework's defaults. `compare SOURCE RESULT` gives 0 if and only if `trimtab convert` did.
    """
    one, other = (
        _read(place, documented, _sets_for(side, sets or []), root) for side, place in (("A", first), ("B", second))
    )
    every = differences_of(one, other)
    lines = [*_difference(one, other, every), *_part_lines(every)]
    code = comparison_code(one, other)
    for line in lines or ["They compute the same thing." if code == 0 else "What both of them say is the same."]:
        show.put(line)
    for note in (*_notes(one, other, every), *_not_compared(one, other)):
        show.note(note)
    if code:
        raise typer.Exit(code)


def comparison_code(one: Reading, other: Reading) -> int:
    """What the command ends with: 1 where they differ, 3 where not all of the first could be compared."""
    rules = one.rule, other.rule
    if any(grave == "differs" for _, _, grave, _ in differences_of(one, other)) or _has_one_rule(one, other):
        return 1
    a, b = goal_fields(one), goal_fields(other)
    is_left = any(part in a and part not in b for part in PARTS) or (rules[0] is not None and rules[1] is None)
    return READ_IN_PART if one.refused or other.refused or is_left else 0


def differences_of(one: Reading, other: Reading) -> list[Compared]:
    """Every difference, equal losses and rewards in the same words."""
    return [*compared(*map(in_plain_words, (one, other)))]


def _not_compared(one: Reading, other: Reading) -> Iterator[str]:
    a, b = goal_fields(one), goal_fields(other)
    for part in [part for part in PARTS if (part in a) != (part in b)]:
        yield f"Only {'A' if part in a else 'B'} sets the {part}, so it was not compared."
    yield from (f"{side}: {each}" for side, reading in (("A", one), ("B", other)) for each in reading.refused)


def in_plain_words(reading: Reading) -> Reading:
    """The same in the words that equal losses and rewards share."""
    return with_plain_rewards(with_idle_clip(reading))


def _notes(one: Reading, other: Reading, every: Sequence[Compared]) -> Iterator[str]:
    """What differs where hardly any number meets it."""
    first, second = one.rule, other.rule
    said = {(name, grave) for part, name, grave, _ in every if part == "correction"}
    if first is not None and second is not None and said <= {("limits", "note")} and not is_same(first, second):
        yield "Their safety limits on log-ratios differ, but only beyond ratios that never occur or beyond other bounds."
    for part, name, grave, ends in every:
        if part == "correction" and name == "kept" and grave == "note":
            yield "One removes tokens from the mask where the other gives them weight 0: the same unless there is a KL or entropy term."
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


def _part_lines(every: Sequence[Compared]) -> Iterator[Text]:
    """The fields of loss and advantage that differ, those of one part on one line."""
    for part in PARTS:
        named = {name: ends for each, name, grave, ends in every if each == part and grave == "differs"}
        fields = (f"{path} {in_words(mine)} in A, {in_words(theirs)} in B" for path, (mine, theirs) in named.items())
        if named:
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
        opened = open_file(place, root)
        return read(framework_of(opened), opened, documented, overrides=sets)


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


def _has_one_rule(first: Reading, second: Reading) -> bool:
    """Whether one of them corrects something and the other leaves that open, which is no refusal."""
    one, other = first.rule, second.rule
    refused = any(each.part == "correction" for each in (*first.refused, *second.refused))
    known = one or other
    return (one is None) != (other is None) and not refused and known is not None and not is_same(known, NOTHING)


def _difference(first: Reading, second: Reading, every: Sequence[Compared]) -> list[Any]:
    """Lines that say how two corrections differ; none where they agree, or where neither corrects anything."""
    one, other = first.rule, second.rule
    if one is None or other is None:
        return ["Only one of them has a correction."] if _has_one_rule(first, second) else []
    off = {name for part, name, grave, _ in every if part == "correction" and grave == "differs"}
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
