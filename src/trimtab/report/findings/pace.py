"""Findings on who waits for whom: staleness is judged by what was waited for, never by its bound alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from trimtab.report.findings.finding import Advice, RunFinding
from trimtab.report.html import percent, short_number
from trimtab.report.run import Run

WAITS = 0.2
"""Share of its time from which a learner waits substantially: a fifth of the machine stands idle."""
HARDLY = 0.1
"""Share under which samples were there when they were wanted; scheduling alone makes a few percent."""


@dataclass(frozen=True)
class Pace:
    """How learner and samplers keep up with each other, once the samplers have filled the pipeline."""

    waited: float
    """Share of the learner's time that went into waiting for samples."""
    spare: float
    """Whole batches that lay ready beside the one taken, median; NaN where it is not recorded."""
    bound: int
    """`rollout.max_staleness`."""

    @property
    def learner_waits(self) -> bool:
        """Whether the learner is the faster one."""
        return self.waited >= WAITS

    @property
    def samplers_wait(self) -> bool:
        """Whether the samplers are: the learner hardly waits, and all that the bound lets them make ahead lies ready.

        The bound admits bound + 1 batches: one is being trained and one begins with the new weights, so bound − 1 can lie ready.
        With bound 4 those are 3, and 0.9 · 3 = 2.7 lying ready (median) are as good as all.
        """
        return self.waited < HARDLY and self.bound >= 2 and self.spare >= 0.9 * (self.bound - 1)


def whole_setting(run: Run, path: str, default: int = 0) -> int:
    """A setting that is a whole number; `default` where it is absent or something else."""
    value = run.setting(path, default)
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def is_asynchronous(run: Run) -> bool:
    """Whether samplers work beside the learner. In lockstep they take turns: waiting is sampling, and staleness is exact."""
    return run.setting("backend", "local") != "lockstep"


def pace(run: Run) -> Pace | None:
    """The pace of a run; None in lockstep, and where no waiting is recorded after the pipeline was filled."""
    bound, groups = whole_setting(run, "rollout.max_staleness"), whole_setting(run, "rollout.groups", 16)
    filled = run.span[0] + bound + 1  # the first batches are waited for while samplers start
    step, wait = (run.series(name).finite.within(filled, run.span[1]) for name in ("time/step", "time/wait"))
    if not is_asynchronous(run) or not len(wait) or not step.values.sum() > 0:
        return None
    queue = run.series("staleness/in_queue").within(filled, run.span[1])
    return Pace(float(wait.values.sum() / step.values.sum()), queue.median / max(groups, 1), bound)


def staleness_at_bound(run: Run) -> Iterator[RunFinding]:
    """Data at the bound of staleness, and what a change of the bound would do; nothing in lockstep, where it is exact."""
    bound, oldest = whole_setting(run, "rollout.max_staleness"), run.series("staleness/oldest_max").finite
    if not bound or not len(oldest) or not is_asynchronous(run):
        return
    at, over = oldest.values >= bound, int((oldest.values > bound).sum())
    if at.mean() <= 0.5:
        return
    facts = (
        f"The oldest sequence was {bound} versions old or more at {percent(float(at.mean()))} of the steps"
        + (f", beyond the bound at {over}" if over else "")
        + f"; mean over sequences {short_number(run.series('staleness/oldest_mean').median)} (median)."
    )
    said, advice = _ahead(run, pace(run))
    yield RunFinding("note", "Staleness sits at its bound", f"{facts} {said}", "staleness", advice=advice)


def _ahead(run: Run, speed: Pace | None) -> tuple[str, Advice | None]:
    """Who is ahead, by what was waited for, and what follows for the bound."""
    if speed is None:
        return "The run records no waiting, so who is ahead of whom is not known.", None
    waited = f"of the learner's time {percent(speed.waited)} went into waiting"
    if speed.learner_waits:
        return f"The learner is ahead of its samplers: {waited}. A smaller bound would cost more of it.", None
    if speed.samplers_wait:
        less = max(speed.bound // 2, speed.bound - int(speed.spare))
        ready = "1 whole batch" if speed.spare == 1 else f"{short_number(speed.spare)} whole batches"
        return (
            f"The samplers are ahead: {waited}, and {ready} lay ready beside the one taken (median). What lies there only "
            "ages: a smaller bound makes the data younger, and costs no waiting as long as a batch is ready.",
            Advice(f"rollout.max_staleness={less}", "the waiting in Seconds per step, and Mismatch KL"),
        )
    if speed.waited < HARDLY and speed.bound == 1:
        return f"The samplers keep up: {waited}. The only smaller bound is 0, where the two take turns.", None
    return (
        f"Neither is clearly ahead: {waited}. A smaller bound would cost more of it, a larger one more mismatch.",
        None,
    )


def waiting(run: Run) -> Iterator[RunFinding]:
    """A learner that waits for samples, and what would shorten it."""
    speed = pace(run)
    if speed is None or not speed.learner_waits:
        return
    samples, groups = whole_setting(run, "rollout.samples", 8), whole_setting(run, "rollout.groups", 16)
    samplers, slots = whole_setting(run, "rollout.samplers", 1), whole_setting(run, "rollout.slots", 128)
    look = "the waiting in Seconds per step, and Mismatch KL"
    if speed.bound == 0:
        why = (
            "With max_staleness 0 sampling and learning take turns; 1 lets them overlap, at the price of some mismatch."
        )
        advice = Advice("rollout.max_staleness=1", look)
    elif (speed.bound + 1) * groups * samples < samplers * slots:
        why = (
            f"The bound admits {(speed.bound + 1) * groups * samples} responses at a time and the samplers have room for "
            f"{samplers * slots}: a larger one lets them sample more side by side."
        )
        advice = Advice(f"rollout.max_staleness={speed.bound + 1}", look)
    else:
        why = "The samplers never run out of work, so a larger bound would not help; more of them would, given cores."
        advice = Advice(f"rollout.samplers={samplers + 1}", "the waiting in Seconds per step")
    yield RunFinding(
        "note",
        "The learner waits",
        f"{percent(speed.waited)} of the learner's time went into waiting for samples. {why}",
        "time",
        advice=advice,
    )


def missing_versions(run: Run) -> Iterator[RunFinding]:
    """Tokens without a version, and groups dropped."""
    coverage = run.series("staleness/coverage").finite
    if len(coverage) and coverage.values.min() < 0.999:
        low = int(np.argmin(coverage.values))
        few = int((coverage.values < 0.999).sum())
        yield RunFinding(
            "warning",
            "Tokens without a version",
            f"At step {coverage.steps[low]} only {percent(float(coverage.values[low]))} of the trained tokens carried the version that "
            f"sampled them; {few} {'step' if few == 1 else 'steps'} in all. Every figure of staleness leaves them out.",
            "staleness",
            int(coverage.steps[low]),
            advice=Advice("rollout.in_flight=finish", "the coverage of Staleness: one response, one version"),
        )
    dropped = run.series("staleness/dropped").finite
    if len(dropped) and dropped.values.max() > 0:
        many = int(dropped.values.max())
        yield RunFinding(
            "note",
            "Groups dropped as too stale",
            f"{many} {'group was' if many == 1 else 'groups were'} sampled and never trained.",
            "staleness",
        )
