"""Findings on the data and the machine: staleness, truncation, verifiers, gradients, time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.report.finding import Finding
from trimtab.report.run import Run
from trimtab.report.text import number, percent, plural
from trimtab.report.tokens import by_age, tokens


def staleness(run: Run) -> Iterator[Finding]:
    """Data at the bound of staleness, tokens without a version, groups dropped."""
    bound = run.setting("rollout.max_staleness")
    oldest = run.series("staleness/oldest_max").finite
    if bound and len(oldest):
        at = oldest.values >= bound
        over = int((oldest.values > bound).sum())
        if at.mean() > 0.5:
            yield Finding(
                "note",
                "Staleness sits at its bound",
                f"The oldest sequence was at least {bound} versions old at {percent(float(at.mean()))} of the steps"
                + (f", beyond it at {over}" if over else "")
                + f"; mean over sequences {number(run.series('staleness/oldest_mean').median)} (median). "
                "The learner is ahead of its samplers: a smaller bound costs waiting, a larger one more mismatch.",
                "staleness",
            )
    coverage = run.series("staleness/coverage").finite
    if len(coverage) and coverage.values.min() < 0.999:
        low = int(np.argmin(coverage.values))
        yield Finding(
            "warning",
            "Tokens without a version",
            f"At step {coverage.steps[low]} only {percent(float(coverage.values[low]))} of the trained tokens carried the version that "
            f"sampled them; {plural(int((coverage.values < 0.999).sum()), 'step')} in all. Every figure of staleness leaves them out.",
            "staleness",
            int(coverage.steps[low]),
        )
    dropped = run.series("staleness/dropped").finite
    if len(dropped) and dropped.values.max() > 0:
        yield Finding(
            "note",
            "Groups dropped as too stale",
            f"{plural(int(dropped.values.max()), 'group')} were sampled and never trained.",
            "staleness",
        )


def cause(run: Run) -> Iterator[Finding]:
    """Whether the mismatch is there from the first moment (engine, precision) or comes with age (staleness)."""
    found = tokens(run)
    bands = by_age(found) if found is not None else []
    if len(bands) < 2 or found is None or found.k3.mean() < 1e-3:
        return
    young, eldest = bands[0], bands[-1]
    share = young.k3 / max(float(found.k3.mean()), 1e-12)
    numbers = f"Mean k3 is {number(young.k3)} at age {young.label} and {number(eldest.k3)} at age {eldest.label}"
    if share >= 0.5:
        yield Finding(
            "warning",
            "Mismatch does not come from age",
            f"{numbers}: fresh tokens are off as well. Look at precision, sampling settings and weight transfer before staleness.",
            "by-age",
        )
    elif eldest.k3 > 3 * young.k3:
        yield Finding(
            "note",
            "Mismatch grows with age",
            f"{numbers}: the two policies agree on fresh tokens and part as weights move on.",
            "by-age",
        )


def responses(run: Run) -> Iterator[Finding]:
    """Truncated responses, drifting length, verifiers that fail."""
    truncated = run.series("rollout/truncated").smooth(5)
    if len(truncated) and truncated.values.max() > 0.05:
        worst = int(np.argmax(truncated.values))
        yield Finding(
            "warning",
            "Responses hit the length limit",
            f"{percent(float(truncated.values[worst]))} of the responses near step {truncated.steps[worst]} did not end by "
            f"themselves (start {percent(float(truncated.values[0]))}, end {percent(float(truncated.values[-1]))}).",
            "finish",
            int(truncated.steps[worst]),
        )
    length = run.series("rollout/length").smooth(5)
    if len(length) >= 10 and min(length.values[0], length.values[-1]) > 0:
        change = float(length.values[-1] / length.values[0])
        if not 2 / 3 < change < 1.5:
            yield Finding(
                "note",
                "Response length drifted",
                f"From {number(float(length.values[0]))} to {number(float(length.values[-1]))} tokens ({number(change)} times).",
                "length",
            )
    failed = run.series("rollout/failed").finite
    if len(failed) and failed.values.max() > 0:
        worst = int(np.argmax(failed.values))
        yield Finding(
            "warning",
            "A verifier failed",
            f"At {plural(int((failed.values > 0).sum()), 'step')} responses could not be scored, most at step "
            f"{failed.steps[worst]} ({number(float(failed.values[worst]))}). They count as reward 0.",
            "finish",
            int(failed.steps[worst]),
        )


def silent_groups(run: Run) -> Iterator[Finding]:
    """Groups whose answers are all right or all wrong teach nothing."""
    groups, alike = run.series("advantage/groups").finite, run.series("advantage/zero_variance_groups").finite
    if len(groups) and len(alike) and groups.median > 0:
        tail = max(1, len(alike) // 5)
        share = float(np.mean(alike.values[-tail:]) / np.mean(groups.values[-tail:]))
        if share > 0.8:
            yield Finding(
                "note",
                "Little left to learn from",
                f"{percent(share)} of the groups in the last fifth of the run had answers that were all right or all wrong.",
                "signal",
            )


def gradients(run: Run) -> Iterator[Finding]:
    """Norms that are not numbers, and clipping that rules every step."""
    norm = run.series("train/grad_norm")
    broken = norm.steps[~np.isfinite(norm.values)]
    if len(broken):
        yield Finding(
            "alarm",
            "Gradients not finite",
            f"At {plural(len(broken), 'step')}, first at step {broken[0]}.",
            "gradient",
            int(broken[0]),
        )
    limit = run.setting("learner.clip_norm")
    part = norm.finite
    if limit and len(part):
        over = float((part.values > limit).mean())
        if over > 0.9:
            yield Finding(
                "note",
                "Every step is clipped",
                f"The gradient norm was above {number(limit)} at {percent(over)} of the steps (median {number(part.median)}, "
                f"largest {number(float(part.values.max()))}): the learning rate alone sets the step.",
                "gradient",
            )


def ending(run: Run) -> Iterator[Finding]:
    """A run that stopped before the step it was asked for."""
    asked, (_, last) = run.setting("steps"), run.span
    if not isinstance(asked, int) or not run.metrics or last >= asked - 1:
        return
    if run.status == "running":
        yield Finding("note", "Still running", f"Step {last} of {asked}.", None, last)
        return
    final = next((event for event in reversed(run.events) if event.get("message")), None)
    why = f" Last event: {final.get('kind')}: {str(final.get('message'))[:200]}" if final else ""
    how = f" Status: {run.status}." if run.status else ""
    yield Finding("warning", "Ended early", f"The last step is {last} of {asked}.{how}{why}", "events", last)


def waiting(run: Run) -> Iterator[Finding]:
    """A learner that waits for samples."""
    step, wait = run.series("time/step").finite, run.series("time/wait").finite
    beside = (
        run.setting("backend", "local") != "lockstep"
    )  # where sampling takes turns with learning, waiting is sampling
    if beside and len(step) and len(wait) and step.values.sum() > 0:
        share = float(wait.values.sum() / step.values.sum())
        if share > 0.3:
            yield Finding(
                "note",
                "The learner waits",
                f"{percent(share)} of the time of all steps was spent waiting for samples. "
                "More samplers or a larger staleness bound would use it.",
                "time",
            )
