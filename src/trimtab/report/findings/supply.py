"""Findings on the data and the learner: truncation, verifiers, groups, gradients, how the run ended."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from trimtab.report.findings.finding import Advice, RunFinding
from trimtab.report.html import percent, plural, short_number
from trimtab.report.run import Run
from trimtab.report.series import Series


def responses(run: Run) -> Iterator[RunFinding]:
    """Truncated responses, drifting length, verifiers that fail."""
    truncated = run.series("rollout/truncated").smooth(5)
    if len(truncated) and truncated.values.max() > 0.05:
        yield _truncated(truncated)
    length = run.series("rollout/length").smooth(5)
    if len(length) >= 10 and min(length.values[0], length.values[-1]) > 0:
        change = float(length.values[-1] / length.values[0])
        if not 2 / 3 < change < 1.5:
            yield RunFinding(
                "note",
                "Response length drifted",
                f"From {short_number(float(length.values[0]))} to {short_number(float(length.values[-1]))} "
                f"tokens ({short_number(change)} times).",
                "length",
            )
    failed = run.series("rollout/failed").finite
    if len(failed) and failed.values.max() > 0:
        worst = int(np.argmax(failed.values))
        passed = not failed.lately.values.any()
        yield RunFinding(
            "note" if passed else "warning",
            "A verifier failed",
            f"At {plural(int((failed.values > 0).sum()), 'step')} responses could not be scored, most at step "
            f"{failed.steps[worst]} ({short_number(float(failed.values[worst]))}). They count neither in the baseline nor in training."
            + (" None failed in the last fifth of the run." if passed else ""),
            "finish",
            int(failed.steps[worst]),
            advice=None
            if passed
            else Advice(f"task.timeout={2 * float(run.setting('task.timeout', 10.0)):g}", "Truncated and failed"),
        )


def _truncated(share: Series) -> RunFinding:
    """Responses that were cut: something to try only while they still are at the end."""
    worst, end = int(np.argmax(share.values)), share.lately.median
    numbers = (
        f"{percent(float(share.values[worst]))} of the responses near step {share.steps[worst]} did not end by themselves "
        f"(start {percent(float(share.values[0]))}, end {percent(end)})."
    )
    if end > 0.05:
        return RunFinding(
            "warning",
            "Responses hit the length limit",
            numbers,
            "finish",
            int(share.steps[worst]),
            "longer responses",
        )
    return RunFinding("note", "Responses hit the length limit for a while", numbers, "finish", int(share.steps[worst]))


def silent_groups(run: Run) -> Iterator[RunFinding]:
    """Groups whose answers are all right or all wrong teach nothing."""
    groups, alike = run.series("advantage/groups").finite, run.series("advantage/zero_variance_groups").finite
    if len(groups) and len(alike):
        tail = max(1, len(alike) // 5)
        lately = float(np.mean(groups.values[-tail:]))
        share = float(np.mean(alike.values[-tail:])) / lately if lately > 0 else 0.0
        if share > 0.8:
            yield RunFinding(
                "note",
                "Little left to learn from",
                f"{percent(share)} of the groups in the last fifth of the run had answers that were all right or all wrong.",
                "signal",
            )


def gradients(run: Run) -> Iterator[RunFinding]:
    """Norms that are not numbers, and clipping that rules every step."""
    norm = run.series("train/grad_norm")
    broken = norm.steps[~np.isfinite(norm.values)]
    if len(broken):
        yield RunFinding(
            "alarm",
            "Gradients not finite",
            f"At {plural(len(broken), 'step')}, first at step {broken[0]}.",
            "gradient",
            int(broken[0]),
            "smaller steps",
        )
    limit = run.setting("learner.clip_norm")
    part = norm.finite
    if limit and len(part):
        over = float((part.values > limit).mean())
        if over > 0.9:
            yield RunFinding(
                "note",
                "Every step is clipped",
                f"The gradient norm was above {short_number(limit)} at {percent(over)} of the steps (median {short_number(part.median)}, "
                f"largest {short_number(float(part.values.max()))}): the learning rate alone sets the step.",
                "gradient",
            )


def ending(run: Run) -> Iterator[RunFinding]:
    """A run that stopped before the step it was asked for."""
    asked, (_, last) = run.setting("steps"), run.span
    if not isinstance(asked, int) or not run.metrics or last >= asked:
        return
    if run.status == "running":
        yield RunFinding("note", "Still running", f"Step {last} of {asked}.", None, last)
        return
    final = next((event for event in reversed(run.events) if event.get("message")), None)
    why = f" Last event: {final.get('kind')}: {str(final.get('message'))[:200]}" if final else ""
    how = f" Status: {run.status}." if run.status else ""
    resume = Advice("--resume RUN", "Settings and events, the last of them")
    yield RunFinding(
        "warning", "Ended early", f"The last step is {last} of {asked}.{how}{why}", "events", last, advice=resume
    )
