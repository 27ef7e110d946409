"""What a lab's cells say of a claim; and more seeds for the claims that are open, look by look, until each is decided or the time is spent.

open claims ─► cells up to their next look ─► run ─► look ─► still open? again
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from trimtab.errors import ConfigError, RecordError
from trimtab.lab.cell import Cell
from trimtab.lab.evidence.claim import Arm, Claim, ClaimTable, Measure, arm_cell, arms_of
from trimtab.lab.evidence.pairs import (
    PairedArms,
    first_pairs,
    harness_notes,
    kept_share,
    late_accuracy,
    lifetime,
    paired_arms,
    stood,
)
from trimtab.lab.lab import CellList, LabDisplay, run_cells
from trimtab.lab.results import CellResult, LabResults, read_results
from trimtab.lab.scenario import CONTROL, UNCORRECTED, base_settings, check_needs, merge_settings, scenario
from trimtab.lab.statistics.decision import Decision, claim_decision, next_look
from trimtab.lab.statistics.intervals import SurvivalPoint, survival_curve
from trimtab.lab.verdict import FULL

MEASURES: dict[Measure, Callable[[CellResult], float]] = {
    "late accuracy": late_accuracy,
    "survival": stood,
    "kept": kept_share,
}


@dataclass(frozen=True)
class ClaimFinding:
    """A claim, the verdict on it, and all that has to stand beside the verdict."""

    claim: Claim
    decision: Decision
    pairs: PairedArms
    notes: tuple[str, ...]
    survival: tuple[tuple[SurvivalPoint, ...], tuple[SurvivalPoint, ...]]
    """Of both arms; empty where there are no pairs."""

    @property
    def is_open(self) -> bool:
        """Whether more seeds could decide it."""
        return self.decision.outcome == "not decided" and self.obstacle is None

    @property
    def obstacle(self) -> str | None:
        """Why more seeds would not decide it: what it needs, a fault of its pairs, or a seed that is lost; None where nothing bars it."""
        if self.claim.needs is not None:
            return f"needs {self.claim.needs}"
        if self.pairs.faults:
            return self.pairs.faults[0]
        return self.pairs.lost if self.decision.outcome == "not decided" else None


def claim_finding(claim: Claim, *labs: LabResults) -> ClaimFinding:
    """The verdict by the cells there are in labs of the claim's task; of a seed that both arms have in several, the first counts."""
    first, second = arm_cells(claim, labs)
    pairs = paired_arms(first, second, claim.shared)
    differences = np.array(paired_differences(claim, pairs))
    decision = claim_decision(differences, claim.expected, claim.margin, shares=claim.measure == "survival")
    pairs = first_pairs(pairs, decision.seeds, claim.shared)  # those that were looked at
    rules = {name: rule for lab in reversed(labs) for name, rule in lab.corrections.items()}
    survival = (_survival(pairs.one), _survival(pairs.other))
    finding = ClaimFinding(claim, decision, pairs, tuple(harness_notes(pairs, rules)), survival)
    if finding.obstacle is None:
        return finding
    return replace(
        finding, decision=replace(decision, outcome="not decided", reason=finding.obstacle, needed=None, p=1.0)
    )


def _survival(arm: Sequence[CellResult]) -> tuple[SurvivalPoint, ...]:
    return tuple(survival_curve([lifetime(each) for each in arm])) if arm else ()


def arm_cells(claim: Claim, labs: Sequence[LabResults]) -> tuple[list[CellResult], list[CellResult]]:
    """The cells of both arms: of each seed those of the first lab in which both are done, or else any."""
    arms: tuple[dict[int, CellResult], dict[int, CellResult]] = ({}, {})
    for whole in (True, False):
        for lab in labs:
            one, other = ({e.seed: e for e in lab.cells(a.scenario, a.label)} for a in (claim.first, claim.second))
            both = {seed for seed in one.keys() & other.keys() if one[seed].status == other[seed].status == "done"}
            for cells, given in zip(arms, (one, other), strict=True):
                cells.update({seed: given[seed] for seed in (both if whole else given) if seed not in cells})
    first, second = ([cells[seed] for seed in sorted(cells)] for cells in arms)
    return first, second


def paired_differences(claim: Claim, pairs: PairedArms) -> Sequence[float]:
    """First arm less second, in the order of the seeds."""
    measure = MEASURES[claim.measure]
    return [measure(one) - measure(other) for one, other in zip(pairs.one, pairs.other, strict=True)]


CONTROL_ARM = Arm(correction=UNCORRECTED, scenario=CONTROL)
"""Run with every seed: whether a task is learnt at all is seen there."""


@runtime_checkable
class ClaimDisplay(LabDisplay, Protocol):
    """What a user sees of claims that are being decided."""

    def look(self, task: str, seeds: int, claims: int) -> None:
        """So many open claims of a task are taken on to so many seeds."""


@dataclass(frozen=True)
class ClaimPlan:
    """Which claims, over which settings and for how many steps."""

    table: ClaimTable
    steps: int | None = None
    """Of every run; None: as many as its task says."""
    overrides: Sequence[str] = field(default=())

    def steps_of(self, task: str) -> int:
        """Of every run of a task."""
        return self.steps or self.table.tasks[task].steps or FULL

    def base(self, task: str) -> dict[str, Any]:
        """The settings all cells of a task share."""
        return merge_settings(base_settings(self.overrides), self.table.tasks[task].train)

    def cells(self, task: str, open_claims: Mapping[str, int]) -> CellList:
        """The cells that bring the claims named to so many seeds each, and the control.

        Claim by claim, as a budget that is spent on a few seeds of each decides nothing; of a claim seed by seed, as pairs count.
        """
        claims = {each.id: each for each in self.table.claims}
        base, steps, planned = self.base(task), self.steps_of(task), dict[str, Cell]()
        for name, seeds in open_claims.items():
            for seed in range(seeds):
                for arm in [CONTROL_ARM, *arms_of([claims[name]])]:
                    cell = arm_cell(arm, seed, base, steps)
                    planned.setdefault(cell.name, cell)
        used = {CONTROL: scenario(CONTROL)} | {
            arm.scenario: scenario(arm.scenario) for arm in arms_of(map(claims.__getitem__, open_claims))
        }
        check_needs(used.values())
        return CellList(list(planned.values()), {each.name: each.meaning for each in used.values()}, base, steps)


def claim_findings(plan: ClaimPlan, path: Path, *, kept: Path | None = None) -> list[ClaimFinding]:
    """What the labs in the folders of their tasks say of each claim, now; and those of the folder `kept`, where one is given."""
    tasks = dict.fromkeys(each.task for each in plan.table.claims)
    labs = {task: [*_results(plan, path / task, task), *kept_labs(plan, task, kept)] for task in tasks}
    return [claim_finding(each, *labs[each.task]) for each in plan.table.claims]


def _results(plan: ClaimPlan, folder: Path, task: str) -> list[LabResults]:
    """The lab of a task, if it was run with these settings; none where none was run."""
    if not (folder / "lab.json").is_file():
        return []
    results, steps = read_results(folder), plan.steps_of(task)
    if (results.base, results.steps) != (plan.base(task), steps):
        raise RecordError(
            f"{folder} needs a lab of {steps} steps with these settings, got one of {results.steps} steps or other settings. "
            "Choose another --out, or give the settings it was run with."
        )
    return [results]


def kept_labs(plan: ClaimPlan, task: str, folder: Path | None) -> list[LabResults]:
    """The labs of a task that a folder keeps as `claims-TASK.json`, `claims-TASK.2.json` and so on, of these settings and steps."""
    files = [] if folder is None else [folder / f"claims-{task}.json", *sorted(folder.glob(f"claims-{task}.*.json"))]
    labs = [read_results(file) for file in files if file.is_file()]
    return [lab for lab in labs if (lab.base, lab.steps) == (plan.base(task), plan.steps_of(task))]


def kept_folder() -> Path | None:
    """The docs of the clone that the package runs from, where the cells of our own claims are kept; None where it is installed."""
    docs = Path(__file__).parents[4] / "docs"
    return docs if (docs.parent / "pyproject.toml").is_file() and any(docs.glob("claims-*.json")) else None


def decide_claims(
    plan: ClaimPlan,
    path: Path,
    *,
    jobs: int | None = None,
    budget: float | None = None,
    display: ClaimDisplay | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[ClaimFinding]:
    """Run the cells that open claims lack, until none is open or `budget` seconds have passed; a cell that has begun is ended.

    Every look is kept in the lab.json of its task, so that the same call goes on after an interruption.
    """
    until = None if budget is None else clock() + budget

    def may_start() -> bool:
        return until is None or clock() < until

    before: dict[str, int] | None = None
    while True:
        findings = claim_findings(plan, path)
        # What failed, or was run with other settings, is tried once more in every call.
        looks = {each.claim.id: _wanted(each, again=before is None) for each in findings}
        wanted = {name: look for name, look in looks.items() if look is not None}
        is_stuck = wanted == before  # a round that brought nothing would bring nothing again
        if not wanted or is_stuck or not may_start():
            return findings
        before = wanted
        tasks = {each.claim.id: each.claim.task for each in findings}
        for task in dict.fromkeys(tasks[name] for name in wanted):
            mine = {name: seeds for name, seeds in wanted.items() if tasks[name] == task}
            if display is not None:
                display.look(task, max(mine.values()), len(mine))
            run_cells(plan.cells(task, mine), path / task, jobs=jobs, display=display, may_start=may_start)


def _wanted(finding: ClaimFinding, again: bool) -> int | None:
    """How many seeds an open claim is to have next; None where it is not open or has had its last look.

    `again`: also for one that is held up by a fault or a lost seed, which cells run anew may mend.
    """
    held_up = again and finding.obstacle is not None and finding.claim.needs is None
    return next_look(len(finding.pairs.seeds)) if finding.is_open or held_up else None


def budget_seconds(text: str) -> float:
    """`90m`, `2h`, `1h30m`, `45s` in seconds."""
    parts = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", text.strip())
    if parts is None or not any(parts.groups()):
        raise ConfigError(f"--budget needs hours, minutes or seconds, got {text!r}. Write 2h, 90m or 1h30m.")
    hours, minutes, seconds = (int(each or 0) for each in parts.groups())
    return float(3600 * hours + 60 * minutes + seconds)


def planned_cells(plan: ClaimPlan, claims: Sequence[Claim], seeds: int) -> int:
    """How many cells so many seeds of some claims are, the controls included."""
    tasks = dict.fromkeys(each.task for each in claims)
    per_seed = sum(
        len({(arm.scenario, arm.label) for arm in [CONTROL_ARM, *arms_of(e for e in claims if e.task == task)]})
        for task in tasks
    )
    return per_seed * seeds
