"""`trimtab compare`: whether two files compute the same thing, and a smallest batch on which they do not."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from trimtab.cli import show
from trimtab.cli.convert import PARTLY
from trimtab.config.algebra import Correction
from trimtab.config.files import correction_from, is_file_name, plain_settings
from trimtab.config.presets import preset_names
from trimtab.config.training import Train
from trimtab.config.words import as_written
from trimtab.dialects import DIALECTS, Reading, read
from trimtab.dialects.fields import PARTS, differences, goal_fields, heads, in_words
from trimtab.dialects.guess import framework_of
from trimtab.dialects.same import sameness
from trimtab.errors import ConfigError

MOST = 4000
"""Batches tried before giving up."""
OWN = {name: name for name in ("correction", "loss", "reduction", "kl", "advantage", "shaping")} | {
    "entropy_bonus": "entropy"
}
"""Parts of a training file → what a Reading calls them."""


def compare(
    first: Annotated[str, typer.Argument(metavar="A", help="A file, NAME:FILE, or a preset of ours.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The same, of any framework.")],
    documented: Annotated[
        bool, typer.Option("--documented", help="Take what the documentation promises instead of what is computed.")
    ] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="A key on top of the files; A:KEY=VALUE or B:KEY=VALUE for one of them."
        ),
    ] = None,
) -> None:
    """Say whether two settings compute the same thing.

    Corrections that differ are shown on a smallest batch, losses and advantages field by field; a part that only one of them
    speaks of is not compared, and safety limits on log-ratios are a note. Exit code 0: the same; 1: not; 3: no difference seen,
    but a part of one could not be read.
    """
    one, other = (
        _read(place, documented, _sets_for(side, sets or [])) for side, place in (("A", first), ("B", second))
    )
    found = [*_difference(one, other), *_part_differences(one, other)]
    for line in found or ["They compute the same thing."]:
        show.put(line)
    if not found and one.correction and other.correction and not sameness(one.correction, other.correction).limits:
        show.note("Their safety limits on log-ratios differ, so beyond them (|log_r| of 20, usually) numbers do too.")
    a, b = goal_fields(one), goal_fields(other)
    for part in [part for part in PARTS if (part in a) != (part in b)]:
        show.note(f"Only {'A' if part in a else 'B'} speaks of the {part}, so it was not compared.")
    refused = [f"{side}: {each}" for side, reading in (("A", one), ("B", other)) for each in reading.refused]
    for line in refused:
        show.note(line)
    if found:
        raise typer.Exit(1)
    if refused:
        raise typer.Exit(PARTLY)


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


def smallest_difference(one: Correction, other: Correction) -> list[tuple[str, str, str, str, str]] | None:
    """The tokens of a smallest batch on which two corrections differ; None where none was found."""
    import torch

    from trimtab.core.correct import correct

    for log_r, advantage in itertools.islice(_batches(one, other), MOST):
        behavior = torch.full((1, len(log_r)), -math.log(2), dtype=torch.float64)
        target = behavior + torch.tensor([log_r], dtype=torch.float64)
        a, b = (
            correct(
                rule,
                behavior=behavior,
                proximal=target,
                current=target,
                mask=torch.ones(1, len(log_r), dtype=torch.bool),
                advantages=torch.tensor([advantage], dtype=torch.float64),
            )
            for rule in (one, other)
        )
        if not (torch.equal(a.kept, b.kept) and torch.allclose(a.weight, b.weight, rtol=1e-6, atol=1e-9)):
            return [
                (
                    str(place + 1),
                    as_written(round(math.exp(value), 6)),
                    as_written(advantage),
                    _outcome(a, place),
                    _outcome(b, place),
                )
                for place, value in enumerate(log_r)
            ]
    return None


def _batches(one: Correction, other: Correction) -> Iterator[tuple[tuple[float, ...], float]]:
    """Log-ratios of one sequence and its advantage, short sequences first."""
    signs = (1.0, -1.0) if one.needs_advantages or other.needs_advantages else (1.0,)
    for length in (1, 2, 3, 4):
        yield from itertools.product(itertools.product(_telling_ratios(one, other), repeat=length), signs)


def _outcome(found: Any, place: int) -> str:
    weight, kept = found.weight[0, place].tolist(), found.kept[0, place].tolist()
    return f"weighs {as_written(round(weight, 6))}" if kept else "rejected"


def _telling_ratios(one: Correction, other: Correction) -> list[float]:
    """Log-ratios worth trying: 0, and a little inside and outside every bound on either side of 1."""
    found = {0.0, math.log(3), -math.log(3)}
    for bound in (*_bounds(one), *_bounds(other)):
        found |= {sign * size * factor for size in _sizes(bound) for sign in (1, -1) for factor in (0.9, 1.1)}
    ordered = sorted(found, key=abs)
    return [value for value in ordered if abs(value) < 15][:24]


def _bounds(rule: Correction) -> list[float]:
    """Every bound of its gates and weight but 0, which no log-ratio is near to."""
    every = [bound for gate in rule.gates for bound in (gate.lower, gate.upper)]
    every += [] if rule.weight is None else [rule.weight.lower, rule.weight.upper]
    return [bound for bound in every if bound]


def _sizes(bound: float) -> tuple[float, float]:
    """|ℓ| at which a bound would act: on a ratio |log 2| = 0.69, on ℓ²/2 (about k2 and k3) √(2 · 0.02) = 0.2."""
    size = min(abs(math.log(bound)) if bound > 0 else abs(bound), 15.0)
    return size, math.sqrt(2 * abs(bound)) if abs(bound) < 50 else size
