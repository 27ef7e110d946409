"""Findings on what was learned: the verdict, what stands against calling a run healthy, and what broke away first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.config.kept_shares import STARVING
from trimtab.report.findings import filtering
from trimtab.report.findings.finding import FindingLevel, Remedy, RunFinding
from trimtab.report.findings.signs import EarlySign, signs, warnings_of
from trimtab.report.findings.verdict import FULL, QUICK, Verdict, verdict
from trimtab.report.html import percent, plural, short_number
from trimtab.report.run import Run
from trimtab.report.series import Series


def run_verdict(run: Run) -> tuple[Verdict, str]:
    """The verdict, and which accuracy it rests on: held-out where there is one, otherwise that of the rollouts."""
    held_out = with_start(run)
    if len(held_out.finite) >= 2:
        return verdict(held_out, problems=int(run.setting("evaluate.problems", 256))), "Held-out accuracy"
    batch = int(run.setting("rollout.groups", 16)) * int(run.setting("rollout.samples", 8))
    return verdict(run.series("rollout/accuracy").smooth(5), problems=batch), "Accuracy of the rollouts"


def with_start(run: Run) -> Series:
    """Held-out accuracies, led by the one that the start event tells of, from before the first step."""
    held_out = run.series("eval/accuracy")
    before = next((event.get("accuracy") for event in run.events if event.get("kind") == "start"), None)
    if not len(held_out) or not isinstance(before, float):
        return held_out
    pairs = zip(held_out.steps.tolist(), held_out.values.tolist(), strict=True)
    return Series.of([(run.span[0] - 1, before), *pairs])


def verdict_word(run: Run) -> str:
    """The run in one word: that of its accuracy; starved, or in need of a look, where a fault shows; and no praise before its time.

    As in the lab, nothing is called healthy before `FULL` steps.
    """
    outcome, _ = run_verdict(run)
    if outcome.word in ("unknown", "collapsed"):
        return outcome.word
    if filtering.is_starved(run.series("kept_fraction")):
        return "starved"
    if outcome.word in ("degraded", "unstable"):
        return outcome.word
    if faults(run):
        return "needs a look"
    if run.span[1] < QUICK:
        return "too early to say"
    return "not collapsed yet" if outcome.word == "healthy" and run.span[1] < FULL else outcome.word


def verdict_finding(run: Run) -> Iterator[RunFinding]:
    """What became of the run: its accuracy, and what stands against calling it healthy."""
    outcome, whose = run_verdict(run)
    if outcome.word == "unknown":
        yield RunFinding(
            "note",
            "Accuracy unknown",
            "The run has fewer than two accuracies; nothing can be said of what it learned.",
            "accuracy",
        )
        return
    (_, start), (best_at, best), (end_at, end) = outcome.start, outcome.best, outcome.end
    curve = (
        f"{whose}: {short_number(start)} at the start, best {short_number(best)} at step {best_at}, "
        f"{short_number(end)} at the end (step {end_at})."
    )
    if outcome.word in ("collapsed", "degraded", "unstable") and outcome.fall and outcome.low:
        last, fallen = outcome.fall
        what = {
            "collapsed": "under half of its best",
            "unstable": "under half of its best",
            "degraded": "clearly below its best",
        }
        tail = f" It went {what[outcome.word]} between step {last} and step {fallen}"
        tail += f", lowest {short_number(outcome.low[1])} at step {outcome.low[0]}"
        tail += ", and came back." if outcome.word == "unstable" else " and stayed there."
        level: FindingLevel = "alarm" if outcome.word == "collapsed" else "warning"
        yield RunFinding(level, outcome.word.capitalize(), curve + tail, "accuracy", fallen, "after a fall")
    else:
        yield _standing_verdict(run, outcome, curve)


def _standing_verdict(run: Run, outcome: Verdict, curve: str) -> RunFinding:
    """The verdict on a run that did not fall."""
    wrong, steps = faults(run), run.span[1]
    level: FindingLevel = "note"
    remedy: Remedy = "more signal"
    if filtering.is_starved(run.series("kept_fraction")):
        level, title = "warning", "Flat" if outcome.word == "flat" else "Rose while starved"
        remedy = "more signal" if outcome.word == "flat" else "wider bound"
        why = "The gates left next to nothing to learn from."
    elif wrong:
        level, title, remedy = "warning", "Needs a look", _remedy_of(run, wrong)
        why = f"What stands against it: {'; '.join(fault.clause for fault in wrong)}."
    elif steps < QUICK:
        title = "Too early to say"
        why = f"{plural(steps, 'step')} decide nothing: clear cases show from {QUICK} on, and {FULL} are needed for healthy."
    elif outcome.word == "flat":
        level, title = "warning", "Flat"
        why = "No step is better than the start beyond the noise of the evaluation."
    elif steps < FULL:
        title = "Not collapsed yet"
        why = (
            "It ends at its best within the noise of the evaluation. Runs were seen to fall after step 300: "
            f"{FULL} are needed for healthy."
        )
    else:
        level, title, why = "good", "Healthy", "It ends at its best within the noise of the evaluation."
    return RunFinding(level, title, f"{curve} {why}", "accuracy", remedy=remedy)


def _remedy_of(run: Run, wrong: Sequence[Fault]) -> Remedy:
    """What answers the first of the faults that something can be done about."""
    kinds = {fault.kind for fault in wrong}
    if "endless" in kinds and "starving" not in kinds:
        return "longer responses"
    if "gradients" in kinds:
        return "smaller steps"
    return "wider bound" if "starving" in kinds or filtering.gate_names(run) else "fewer skips"


def early_signs(run: Run) -> Iterator[RunFinding]:
    """Each measured sign that the run showed, with its reliability; at the level of a note, as most signs are in vain."""
    outcome, _ = run_verdict(run)
    for each in warnings_of(run):
        after = ""
        if outcome.fall is not None:
            ahead = outcome.fall[1] - each.step
            after = (
                f" Here the fall showed {plural(ahead, 'step')} later." if ahead > 0 else " Here the run had fallen."
            )
        sign = each.sign
        yield RunFinding("note", sign.title, f"{each.sentence} {sign.reliability}{after}", sign.panel, each.step)


def early_sign(run: Run) -> Iterator[RunFinding]:
    """Which curve broke away first before a fall; without a fall, jumps of the mismatch that passed."""
    outcome, _ = run_verdict(run)
    if outcome.fall is None:
        jumps = [sign for sign in signs(run.series) if sign.watch.metric == "drift/k3" and sign.onset.before > 0]
        if jumps:
            worst = max(jumps, key=lambda sign: sign.onset.after).onset
            yield RunFinding(
                "note",
                "Mismatch jumped and accuracy held",
                f"Mismatch KL rose tenfold within 10 steps {plural(len(jumps), 'time')}, most at step {worst.step} "
                f"({short_number(worst.before)} → {short_number(worst.after)}). "
                "Before a collapse it does the same: watch the steps after it.",
                "mismatch",
                worst.step,
            )
        return
    early = first_signs(run, outcome)
    if not early:
        title, cause = "No early sign", "a slow drift, or a cause outside them (rewards, data, learning rate)."
        if warnings_of(run, until=outcome.fall[1]):
            title, cause = "No sudden sign", "a slow drift. What was out of bounds long before is a note of its own."
        sentence = f"None of the watched curves broke away before step {outcome.fall[1]}: {cause}"
        yield RunFinding("note", title, sentence, "mismatch")
        return
    first, *others = early
    also = "; ".join(_move_text(sign) for sign in others[:3])
    yield RunFinding(
        "warning",
        f"First sign: {first.watch.name[0].lower()}{first.watch.name[1:]}",
        f"{_move_text(first)}, {_before_text(first.onset.step, outcome.fall[1])}."
        + (f" Then: {also}." if also else ""),
        first.watch.panel,
        first.onset.step,
        first.watch.remedy,
    )


def first_signs(run: Run, outcome: Verdict) -> list[EarlySign]:
    """Breaks in the 40 steps before the fall was seen (or since the evaluation before it), one per curve, earliest first."""
    if outcome.fall is None:
        return []
    last, fallen = outcome.fall
    seen: dict[str, EarlySign] = {}
    for sign in signs(run.series, first=min(last, fallen - 40), last=fallen):
        seen.setdefault(sign.watch.metric, sign)
    return list(seen.values())


def _move_text(sign: EarlySign) -> str:
    onset = sign.onset
    verb = "rose" if sign.watch.way == "rise" else "fell"
    return (
        f"{sign.watch.name} ({sign.watch.metric}) {verb} from {short_number(onset.before)} at step {onset.since} "
        f"to {short_number(onset.after)} at step {onset.step}"
    )


def _before_text(step: int, fallen: int) -> str:
    return (
        "at the step that showed the fall"
        if step == fallen
        else f"{plural(fallen - step, 'step')} before the fall was seen"
    )


SKIPPED = 0.01
"""Share of the steps without an update, for another reason than that all answers agreed, which is one too many."""
UNENDED = 0.5
"""Share of responses that never end from which most rewards judge a fragment."""


@dataclass(frozen=True)
class Fault:
    """Something that stands against calling a run healthy, as a clause with its number."""

    kind: Literal["starving", "skipped", "selection", "endless", "gradients"]
    clause: str


def faults(run: Run) -> list[Fault]:
    """Every fault of a run; none: nothing stands against it."""
    return [fault for find in FAULTS if (fault := find(run))]


def _few_kept(run: Run) -> Fault | None:
    kept = run.series("kept_fraction").median
    return Fault("starving", f"the gates keep {percent(kept)} of the tokens (median)") if kept < STARVING else None


def _skipped_updates(run: Run) -> Fault | None:
    steps, count = skipped_steps(run), len(run.series("train/skipped").finite)
    return Fault("skipped", f"{len(steps)} of {count} updates were skipped") if len(steps) > SKIPPED * count else None


def skipped_steps(run: Run) -> Series:
    """Steps without an update, those apart where every group agreed: there was nothing to learn, and nothing is wrong."""
    part, groups = run.series("train/skipped").finite, run.series("advantage/groups")
    alike = run.series("advantage/zero_variance_groups")
    shared, at, also = np.intersect1d(groups.steps, alike.steps, return_indices=True)
    agreed = shared[alike.values[also] >= np.maximum(groups.values[at], 1)]
    stays = (part.values > 0) & ~np.isin(part.steps, agreed)
    return Series(part.steps[stays], part.values[stays])


def _selection_fault(run: Run) -> Fault | None:
    grave = any(found.level == "alarm" for found in filtering.selection_bias(run))
    return Fault("selection", "the filter keeps wrong answers more often than right ones") if grave else None


def _endless_responses(run: Run) -> Fault | None:
    share = run.series("rollout/truncated").median
    return Fault("endless", f"{percent(share)} of the responses never end (median)") if share > UNENDED else None


def _bad_gradients(run: Run) -> Fault | None:
    norm = run.series("train/grad_norm").values
    return Fault("gradients", "gradients were not finite") if len(norm) and not np.isfinite(norm).all() else None


FAULTS: tuple[Callable[[Run], Fault | None], ...] = (
    _few_kept,
    _skipped_updates,
    _selection_fault,
    _endless_responses,
    _bad_gradients,
)
