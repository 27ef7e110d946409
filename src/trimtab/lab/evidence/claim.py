"""Claims as data: two arms, what is said of the first against the second, and who says it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Any, Literal, cast

from pydantic import Field

from trimtab.config.base import Config, Number
from trimtab.config.correction import Correction
from trimtab.config.files import load
from trimtab.dialects.candidate import Candidate, parse_candidate
from trimtab.errors import ConfigError, ConfigWarning, UnknownNameError, nearest
from trimtab.lab.cell import Cell, cell_of
from trimtab.lab.evidence.pairs import SHARED, Shared
from trimtab.lab.scenario import merge_settings, scenario
from trimtab.lab.statistics.decision import Direction

Measure = Literal["late accuracy", "survival", "kept"]


class Arm(Config):
    """One side of a comparison."""

    correction: str = Field(description="As `trimtab lab --correction` takes it; with `rule`, what tables call it.")
    rule: Mapping[str, Any] | None = Field(
        default=None, description="The correction written out, where no preset has it: `gates:`, `weight:` and so on."
    )
    scenario: str = Field(default="stale", description="A scenario's name or file.")
    train: Mapping[str, Any] = Field(default={}, description="Settings of the training in which this arm differs.")

    @property
    def label(self) -> str:
        """How tables call it: the correction, and what else differs."""
        return ", ".join([self.correction, *(f"{key}={value}" for key, value in _dotted(self.train))])


class Claim(Config):
    """What somebody says of one arm against another, in a form that runs can decide."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", description="Its short name.")
    text: str = Field(description="The claim in one sentence.")
    source: str = Field(description="Where it is made.")
    task: str = Field(default="chain", description="A task of the claims' file; results of two tasks are never pooled.")
    first: Arm = Field(description="The arm the claim speaks of.")
    second: Arm = Field(description="The arm it is held against.")
    expected: Direction = Field(description="The first arm is higher, lower, or the same within the margin.")
    measure: Measure = Field(default="late accuracy", description="What is compared, run by run.")
    margin: Number = Field(default=0.05, gt=0, le=1, description="The least difference that matters.")
    shared: tuple[Shared, ...] = Field(default=SHARED, description="What the two runs of a seed must have in common.")
    needs: str | None = Field(default=None, description="What is missing to run it; it is listed and left open.")


class ClaimTask(Config):
    """A task that claims are tested on."""

    meaning: str = Field(default="", description="One sentence for the reader of a table.")
    steps: int | None = Field(default=None, ge=1, description="Of its runs; 400 where it says none.")
    train: Mapping[str, Any] = Field(default={}, description="Settings of the training that make it this task.")


class ClaimTable(Config):
    """A file of claims."""

    tasks: Mapping[str, ClaimTask] = Field(default={}, description="By name; those that ship are known beside them.")
    claims: tuple[Claim, ...] = Field(default=(), description="In the order of the table.")


def shipped_claims() -> ClaimTable:
    """Those that come with the package."""
    with resources.as_file(resources.files("trimtab.lab.evidence") / "claims.yaml") as path:
        return checked_claims(load(ClaimTable, path))


def chosen_claims(named: Sequence[str] = ()) -> ClaimTable:
    """The claims named, each by its id or as a file of claims; all that ship where none is named."""
    ours = shipped_claims()
    if not named:
        return ours
    tasks, claims = dict(ours.tasks), list[Claim]()
    by_id = {each.id: each for each in ours.claims}
    for name in named:
        if name.endswith((".yaml", ".yml")):
            theirs = checked_claims(load(ClaimTable, name), ours.tasks)
            tasks, claims = tasks | dict(theirs.tasks), [*claims, *theirs.claims]
        elif name in by_id:
            claims.append(by_id[name])
        else:
            raise UnknownNameError(
                f"There is no claim {name!r}. {nearest(name, by_id)} One of your own stands in a YAML file under `claims:`."
            )
    return checked_claims(ClaimTable(tasks=tasks, claims=tuple({each.id: each for each in claims}.values())))


def checked_claims(table: ClaimTable, known: Mapping[str, ClaimTask] = {}) -> ClaimTable:
    """The table, if no id stands twice and every task is known."""
    ids = [each.id for each in table.claims]
    twice = next((each for each in ids if ids.count(each) > 1), None)
    if twice is not None:
        raise ConfigError(f"Claims need ids of their own, got {twice!r} twice. Rename one.")
    tasks = {*known, *table.tasks}
    for each in table.claims:
        if each.task not in tasks:
            raise UnknownNameError(
                f"Claim {each.id} needs a known task, got {each.task!r}. {nearest(each.task, tasks)}"
            )
        if (each.first.label, each.first.scenario) == (each.second.label, each.second.scenario):
            raise ConfigError(f"Claim {each.id} needs two arms, got {each.first.label!r} twice. Change one.")
    return table


def arm_cell(arm: Arm, seed: int, base: Mapping[str, Any], steps: int) -> Cell:
    """The cell of an arm and a seed over the settings of its task."""
    with warnings.catch_warnings():  # that a bound hardly acts is what a claim is about
        warnings.simplefilter("ignore", ConfigWarning)
        chosen = scenario(arm.scenario)
        rule = parse_candidate(arm.correction).correction if arm.rule is None else Correction.from_settings(arm.rule)
    settings = merge_settings(merge_settings(merge_settings(base, chosen.train), arm.train), {"steps": steps})
    return cell_of(chosen, Candidate(arm.label, rule), seed, settings)


def arms_of(claims: Iterable[Claim]) -> list[Arm]:
    """Every arm of some claims, once."""
    arms = {(each.scenario, each.label): each for claim in claims for each in (claim.first, claim.second)}
    return list(arms.values())


def _dotted(tree: Mapping[str, Any], under: str = "") -> list[tuple[str, Any]]:
    """Settings as `a.b=value` lines."""
    pairs: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, Mapping):
            pairs += _dotted(cast("Mapping[str, Any]", value), f"{under}{key}.")
        else:
            pairs.append((f"{under}{key}", value))
    return pairs
