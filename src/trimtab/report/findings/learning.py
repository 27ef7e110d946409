"""Findings on what was learned: the verdict, what speaks against calling a run healthy, and what broke away first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trimtab.report.findings import filtering
from trimtab.report.findings.faults import Fault, faults
from trimtab.report.findings.finding import FindingLevel, Remedy, RunFinding
from trimtab.report.findings.judged import (
    AFTER,
    JudgedCurve,
    around,
    judged,
    never_right,
    run_verdict,
    with_start,
)
from trimtab.report.findings.signs import EarlySign, signs, warnings_of
from trimtab.report.findings.verdict import FULL, QUICK, Dip, Verdict, reward_slack
from trimtab.report.html import plural, short_number
from trimtab.report.metrics import METRICS
from trimtab.report.run import Run
from trimtab.report.series import LAST_STEP


def verdict_word(run: Run) -> str:
    """The run in one word: that of its curve; starved, or in need of a look, where a fault shows; and no praise before its time.

    As in the lab, nothing is called healthy before `FULL` steps.
    """
    curve = judged(run)
    outcome = curve.verdict
    if outcome.word in ("unknown", "collapsed"):
        return outcome.word
    if filtering.is_starved(run.series("kept_fraction")):
        return "starved"
    if outcome.word in ("degraded", "recovered"):
        return outcome.word
    if faults(run):
        return "needs a look"
    if curve.dips:
        return "recovered"
    if outcome.word == "flat" and is_at_the_top(curve):
        return "solved from the start"
    if run.span[1] < QUICK:
        return "too early to say"
    return "stable so far" if outcome.word == "healthy" and run.span[1] < FULL else outcome.word


def is_at_the_top(curve: JudgedCurve) -> bool:
    """Whether an accuracy began so high that little was left to gain."""
    start = curve.verdict.start[1]
    return curve.problems is not None and 1.0 - start <= max(0.1, curve.slack(start, 1.0))


def verdict_finding(run: Run) -> Iterator[RunFinding]:
    """What became of the run: its curve, and what speaks against calling it healthy."""
    curve = judged(run)
    outcome = curve.verdict
    if outcome.word == "unknown":
        yield RunFinding(
            "note",
            "Accuracy unknown",
            "The run has fewer than two accuracies; nothing can be said of what it learned.",
            "accuracy",
        )
        return
    (_, start), (best_at, best), (end_at, end) = outcome.start, outcome.best, outcome.end
    facts = (
        f"{curve.name}: {short_number(start)} at the start, best {short_number(best)} at step {best_at}, "
        f"{short_number(end)} at the end (step {end_at})."
    )
    facts += " No answer was ever right, so the reward is judged." if curve.word == "reward" else ""
    if outcome.fall and outcome.low:
        last, fallen = outcome.fall
        half = "under half of its best" if curve.word == "accuracy" else "under half of what it had gained"
        tail = f" It fell {'clearly below its best' if outcome.word == 'degraded' else half} between step {last} and step {fallen}"
        tail += f", lowest {short_number(outcome.low[1])} at step {outcome.low[0]}"
        tail += ", and came back." if outcome.word == "recovered" else ", and did not come back."
        level: FindingLevel = "alarm" if outcome.word == "collapsed" else "warning"
        title = "Fell and recovered" if outcome.word == "recovered" else outcome.word.capitalize()
        yield RunFinding(level, title, facts + tail, curve.word, fallen, "after a fall")
    else:
        yield _standing_verdict(run, curve, facts)


def _standing_verdict(run: Run, curve: JudgedCurve, facts: str) -> RunFinding:
    """The verdict on a run that did not fall."""
    outcome, wrong, steps = curve.verdict, faults(run), run.span[1]
    level: FindingLevel = "note"
    remedy: Remedy = "more signal"
    if filtering.is_starved(run.series("kept_fraction")):
        level, title = "warning", "Flat" if outcome.word == "flat" else "Rose while starved"
        remedy = "more signal" if outcome.word == "flat" else "wider bound"
        why = "The gates left next to nothing to learn from."
    elif wrong:
        level, title, remedy = "warning", "Needs a look", _remedy_of(run, wrong)
        why = f"What speaks against it: {'; '.join(fault.clause for fault in wrong)}."
    elif curve.dips:
        title, why = "Recovered from a dip", "It ends at its best within the noise of the evaluation."
    elif outcome.word == "flat" and is_at_the_top(curve):
        title, why = "Solved from the start", "There was little left to gain."
    elif steps < QUICK:
        title = "Too early to say"
        why = f"{plural(steps, 'step')} decide nothing: clear cases show from {QUICK} on, and {FULL} are needed for healthy."
    elif outcome.word == "flat" and never_right(run) and curve.word == "accuracy":
        level, title = "warning", "Flat at zero"
        why = "No answer was ever right, and no reward told one from another: there was nothing to learn from."
    elif outcome.word == "flat":
        level, title = "warning", "Flat"
        why = "No step is better than the start beyond the noise of the evaluation."
    elif steps < FULL:
        title = "Stable so far"
        why = (
            "It ends at its best within the noise of the evaluation. Runs were seen to fall after step 300: "
            f"{FULL} are needed for healthy."
        )
    else:
        level, title, why = "good", "Healthy", "It ends at its best within the noise of the evaluation."
    return RunFinding(level, title, f"{facts} {why}", curve.word, remedy=remedy)


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
    outcome = run_verdict(run)
    for each in warnings_of(run):
        after = ""
        if outcome.fall is not None:
            ahead = outcome.fall[1] - each.step
            after = (
                f" Here the fall showed {plural(ahead, 'step')} later." if ahead > 0 else " Here the run had fallen."
            )
        sign = each.sign
        yield RunFinding("note", sign.title, f"{each.sentence} {sign.reliability}{after}", sign.panel, each.step)


def curve_dips(run: Run) -> Iterator[RunFinding]:
    """Falls of the judged curve that came back, the deepest first, with size and steps; that of the verdict is said there."""
    curve = judged(run)
    outcome = curve.verdict
    said = outcome.low[0] if outcome.low else None
    unsaid = sorted((dip for dip in curve.dips if dip.low[0] != said), key=lambda dip: -dip.depth)
    if not unsaid:
        return
    deepest, *others = unsaid
    also = "; ".join(_dip_text(dip) for dip in others[:2])
    more = f" Also: {also}." if also else ""
    jumped = any(deepest.before[0] - AFTER <= sign.onset.step <= deepest.back[0] for sign in mismatch_jumps(run))
    yield RunFinding(
        "warning",
        f"{curve.word.capitalize()} dipped and came back",
        f"{curve.name} fell {_dip_text(deepest)}.{more}",
        curve.word,
        deepest.low[0],
        "closer policies" if jumped else "smaller steps",
    )


def _dip_text(dip: Dip) -> str:
    (since, before), (at, low), (until, back) = dip.before, dip.low, dip.back
    return (
        f"from {short_number(before)} (step {since}) to {short_number(low)} (step {at}) and was back at "
        f"{short_number(back)} at step {until}"
    )


def reward_against_accuracy(run: Run) -> Iterator[RunFinding]:
    """A reward that rises while accuracy falls: what is paid for is not what counts as right."""
    curve = judged(run)
    name = "eval/reward" if len(run.series("eval/reward").finite) >= 2 else "rollout/reward"
    rewards = with_start(run, name) if name == "eval/reward" else run.series(name).smooth(5)
    outcome, paid = curve.verdict, rewards.finite.values
    if curve.word == "reward" or outcome.word not in ("degraded", "collapsed") or len(paid) < 4:
        return
    best_at, (end_at, end) = outcome.best[0], outcome.end
    at_best, at_end = (rewards.finite.within(*span).values for span in ((-1, best_at), (end_at, LAST_STEP)))
    if (
        not len(at_best)
        or not len(at_end)
        or not at_end[-1] - at_best[-1] > reward_slack(rewards)(at_best[-1], at_end[-1])
    ):
        return
    yield RunFinding(
        "warning",
        "Reward rose while accuracy fell",
        f"{METRICS[name].name} rose from {short_number(at_best[-1])} at step {best_at} to {short_number(at_end[-1])} at the end, "
        f"while {curve.name[0].lower()}{curve.name[1:]} fell from {short_number(outcome.best[1])} to {short_number(end)}: what is "
        "rewarded is not what counts as right. Read answers of the last steps before you change a setting.",
        "reward",
        best_at,
        "smaller steps",
    )


def mismatch_jumps(run: Run) -> list[EarlySign]:
    """Rises of the mismatch by its factor within a few steps."""
    return [sign for sign in signs(run.series) if sign.watch.metric == "drift/k3" and sign.onset.before > 0]


def early_sign(run: Run) -> Iterator[RunFinding]:
    """Which curve broke away first before a fall; without a fall, jumps of the mismatch and what the judged curve did around them."""
    outcome = run_verdict(run)
    if outcome.fall is None:
        yield from _jumps_without_a_fall(run)
        return
    early = first_signs(run, outcome)
    if not early:
        title, cause = "No early sign", _slow_cause(run)
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


def _slow_cause(run: Run) -> str:
    """What a fall without a sudden sign comes from, as far as the settings tell."""
    stale = run.setting("rollout.max_staleness")
    if filtering.is_uncorrected(run) and isinstance(stale, int) and stale > 0:
        return f"a slow drift. The data were up to {plural(stale, 'version')} old and nothing corrects for it: weight one, no gate."
    return "a slow drift, or a cause outside them (rewards, data, learning rate)."


def _jumps_without_a_fall(run: Run) -> Iterator[RunFinding]:
    """Jumps of the mismatch in a run that ends well, and what the judged curve did around each."""
    jumps, curve = mismatch_jumps(run), judged(run)
    if not jumps:
        return
    courses = [around(curve, sign.onset.since, sign.onset.step) for sign in jumps]
    fell = [at for at, course in enumerate(courses) if course.fell]
    worst = max(fell or range(len(jumps)), key=lambda at: jumps[at].onset.after)
    onset, course = jumps[worst].onset, courses[worst]
    often = "" if len(jumps) == 1 else f" {len(jumps)} times, most"
    jumped = (
        f"Mismatch KL rose tenfold within 10 steps{often} at step "
        f"{onset.step} ({short_number(onset.before)} → {short_number(onset.after)})."
    )
    name = f"{curve.name[0].lower()}{curve.name[1:]}"
    if fell:
        often = f" at {len(fell)} of the {len(jumps)}" if len(jumps) > 1 else ""
        title, level = f"Mismatch jumped and {curve.word} fell with it", "warning"
        said = f"The {name} fell with it{often}: {course.text}."
    elif (
        curve.verdict.word == "unknown"
        or course.low is None
        or course.before <= curve.slack(course.before, curve.floor)
    ):
        title, level = "Mismatch jumped", "note"
        said = f"The {name} says nothing of it: {course.text}."
    else:
        title, level = f"Mismatch jumped and {curve.word} held", "note"
        said = f"The {name} held: {course.text}. Before a collapse mismatch does the same: watch the steps after it."
    yield RunFinding(level, title, f"{jumped} {said}", "mismatch", onset.step)


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
