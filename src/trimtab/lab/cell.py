"""One cell of a lab: a training run under a name, with all that decides its outcome in a fingerprint.

What a cell shares with the same seed of another arm (the weights it began with, and the prompts in their order) is read from what
the run recorded, not from its settings: a seed that never reached the sampler, or a loader that gave out one batch again and
again, has the right settings too.
"""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

from pydantic import Field

from trimtab.config.base import Config
from trimtab.config.training import Train
from trimtab.dialects.candidate import Candidate
from trimtab.errors import ConfigError, ConfigWarning, RecordError
from trimtab.lab.candidate import parse_candidates
from trimtab.lab.scenario import CONTROL, UNCORRECTED, Scenario, merge_settings
from trimtab.records.run import RunDirectory, trimtab_version


@dataclass(frozen=True)
class Cell:
    """A scenario, a correction and a seed, resolved."""

    scenario: str
    correction: str
    seed: int
    config: Train

    @property
    def name(self) -> str:
        """Its folder; two labels that differ only in signs no file name should hold are told apart by the settings."""
        return f"{_slug(self.scenario)}--{_slug(self.correction)}--seed-{self.seed}"

    @property
    def fingerprint(self) -> str:
        """Of the resolved settings and the package's version: equal fingerprints give equal runs on one machine."""
        return fingerprint(self.config.model_dump(mode="json"), trimtab_version())

    @property
    def warm_start(self) -> str | None:
        """What its warm start depends on; None where it has none."""
        config = self.config
        if config.model.path is not None or config.model.warm_start is None:
            return None
        task = config.task.but(rewards=()).settings()  # it is judged by the task's own
        return fingerprint([config.model.settings(), task, config.seed, config.rollout.max_tokens])


def cells(
    scenarios: Sequence[Scenario], given: Sequence[Candidate], seeds: Sequence[int], base: Mapping[str, Any], steps: int
) -> list[Cell]:
    """Every cell: the uncorrected controls, which verdicts wait for, then seed by seed, so that a lab cut short has whole seeds."""
    planned: list[Cell] = []
    for seed in seeds:
        for each in scenarios:
            settings = merge_settings(merge_settings(base, each.train), {"steps": steps})
            planned += [cell_of(each, one, seed, settings) for one in _candidates_for(each, given)]
    planned.sort(key=lambda cell: (cell.scenario, cell.correction) != (CONTROL, UNCORRECTED))
    names = [cell.name for cell in planned]
    twice = next((cell for cell in planned if names.count(cell.name) > 1), None)
    if twice is not None:
        raise ConfigError(
            f"A lab needs corrections and scenarios of different names, got {twice.correction!r} in "
            f"{twice.scenario!r} twice, as far as a file name can tell. Rename a file."
        )
    return planned


def _candidates_for(scenario: Scenario, given: Sequence[Candidate]) -> Sequence[Candidate]:
    """The corrections a scenario is run with; the control never without the uncorrected one."""
    if scenario.corrections is not None:
        return parse_candidates(scenario.corrections)
    if scenario.name != CONTROL or any(each.label == UNCORRECTED for each in given):
        return given
    return [*parse_candidates([UNCORRECTED]), *given]


def cell_of(scenario: Scenario, chosen: Candidate, seed: int, settings: Mapping[str, Any]) -> Cell:
    """A cell from all its settings but correction and seed."""
    try:
        with warnings.catch_warnings():  # said when the correction was read
            warnings.simplefilter("ignore", ConfigWarning)
            config = Train.from_settings({**settings, "correction": chosen.correction, "seed": seed})
    except ConfigError as error:
        raise type(error)(f"Scenario {scenario.name}: {error}") from None
    if config.backend != "lockstep":
        raise ConfigError(
            f"A lab needs backend lockstep, got {config.backend!r}. Only there is staleness exact and a run repeatable."
        )
    if config.evaluate is None:
        raise ConfigError("A lab needs evaluate, got null. Its verdicts rest on held-out accuracy.")
    return Cell(scenario.name, chosen.label, seed, config)


def cell_state(cell: Cell, path: Path) -> str:
    """done, half, changed or absent: what stands in its folder."""
    if not path.exists():
        return "absent"
    try:
        run = RunDirectory.read(path)
        if fingerprint(_resolve(run.settings), str(run.facts["trimtab"])) != cell.fingerprint:
            return "changed"
        lines = run.metrics()
    except (RecordError, ConfigError):
        return "half"
    whole = bool(lines) and int(lines[-1]["step"]) == cell.config.steps - 1
    return "done" if whole and run.status == "done" else "half"


def fingerprint(*told: object) -> str:
    """A short name for plain values."""
    return hashlib.blake2b(json.dumps(told, sort_keys=True, default=str).encode(), digest_size=12).hexdigest()


def _resolve(settings: Mapping[str, Any]) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        return Train.from_settings(settings).model_dump(mode="json")


def _slug(text: str) -> str:
    return re.sub(r"[^\w.+=-]+", "_", text).strip("_.")


Trained = tuple[int, int, str]
"""Step, number of the group, and its problem."""


class CellPairing(Config):
    """Digests of what a cell has in common with its seed in other arms."""

    start: str = Field(description="Digest of the weights the run began with.")
    prompts: str = Field(description="Digest of the recorded prompts, step by step.")
    recorded: int = Field(description="Groups whose prompts were recorded.")
    stuck: int = Field(description="Most steps in a row that trained on the same prompts; 1 where none did.")


def cell_pairing(run: RunDirectory) -> CellPairing | None:
    """Of a run that recorded some of its groups; None of one that did not, or that is too old to say what it began with."""
    world = run.facts.get("world")
    start = world.get("weights") if isinstance(world, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    table = run.rollout_table(columns=["step", "group", "problem"])
    if not isinstance(start, str) or not table.num_rows:
        return None
    rows: list[Trained] = [(row["step"], row["group"], row["problem"]) for row in table.to_pylist()]
    return pairing_of(start, rows)


def pairing_of(start: str, rows: Iterable[Trained]) -> CellPairing:
    """From the weights' digest and what was trained on; a group counts once, however many responses it has."""
    groups = sorted(set(rows))
    told = json.dumps(groups, ensure_ascii=True).encode()
    return CellPairing(
        start=start,
        prompts=hashlib.blake2b(told, digest_size=16).hexdigest(),
        recorded=len(groups),
        stuck=_longest_repeat(groups),
    )


def _longest_repeat(groups: list[Trained]) -> int:
    """Most steps in a row with the same problems."""
    by_step = [(step, tuple(each[2] for each in group)) for step, group in groupby(groups, key=lambda each: each[0])]
    longest = count = 1
    for (before, one), (step, other) in pairwise(by_step):
        count = count + 1 if one == other and step == before + 1 else 1
        longest = max(longest, count)
    return longest
