"""Findings on the correction: what it keeps, of whom, and whether its bounds do anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.config.kept_shares import STARVED
from trimtab.report.findings.finding import RunFinding
from trimtab.report.html import percent, plural, short_number
from trimtab.report.run import Run
from trimtab.report.series import Series

FAR_APART = 0.05
"""Median mismatch KL that is worth a warning."""
SKIPPED = 0.01
"""Share of the steps without an update which is one too many."""


def starved_steps(kept: Series) -> Series:
    """The steps at which less than `STARVED` was kept."""
    part = kept.finite
    return Series(part.steps[part.values < STARVED], part.values[part.values < STARVED])


def is_starved(kept: Series) -> bool:
    """Whether at least 5 steps and a quarter of all had next to nothing to learn from, and it did not pass."""
    few = len(starved_steps(kept))
    return few >= 5 and few >= len(kept.finite) / 4 and len(starved_steps(kept.lately)) > 0


def starvation(run: Run) -> Iterator[RunFinding]:
    """Steps with next to nothing to learn from."""
    kept = run.series("kept_fraction")
    few = starved_steps(kept)
    if is_starved(kept):
        yield RunFinding(
            "alarm",
            "Starved",
            f"Less than {percent(STARVED)} of the tokens were kept at {plural(len(few), 'step')} of {len(kept.finite)}, first at step "
            f"{few.steps[0]} (median {percent(kept.median)}). The policy learns from a few sequences chosen by the gate: widen its "
            "bounds, or bring the two policies together.",
            "kept",
            int(few.steps[0]),
            "wider bound",
        )
    elif len(few) >= 5:
        yield RunFinding(
            "note",
            "Starved for a while",
            f"Less than {percent(STARVED)} of the tokens were kept at {plural(len(few), 'step')} from step {few.steps[0]} to step "
            f"{few.steps[-1]}; at the end {percent(kept.lately.median)} are kept.",
            "kept",
            int(few.steps[0]),
        )
    skipped = run.series("train/skipped").finite
    total = int(skipped.values.sum()) if len(skipped) else 0
    if total:
        where = int(skipped.steps[np.flatnonzero(skipped.values > 0)[0]])
        yield RunFinding(
            "warning" if total > SKIPPED * len(skipped) else "note",
            "Updates skipped",
            f"{plural(total, 'update')} of {len(skipped)} had nothing usable and changed no weight, first at step {where}.",
            "kept",
            where,
            "fewer skips",
        )


def selection_bias(run: Run) -> Iterator[RunFinding]:
    """A filter that keeps wrong answers more often than right ones, for ten steps or more, trains by pushing down."""
    right, wrong = (
        run.series("selection/kept_given_positive").finite,
        run.series("selection/kept_given_negative").finite,
    )
    shared, at_right, at_wrong = np.intersect1d(right.steps, wrong.steps, return_indices=True)
    gap = Series(shared, wrong.values[at_wrong] - right.values[at_right]).smooth(5)
    stretch = longest_stretch(gap, 0.05)
    if stretch is None or len(gap.within(*stretch)) < 10:
        return
    first, last = stretch
    share = float((gap.values > 0.05).mean())
    net = run.series("selection/net_advantage").within(first, last)
    pushes = f" Mean advantage of what is kept: {short_number(net.median)} (median)." if len(net.finite) else ""
    yield RunFinding(
        "alarm" if share >= 1 / 3 or last == gap.steps[-1] else "warning",
        "Keeps wrong answers more often than right ones",
        f"From step {first} to step {last}, {percent(wrong.within(first, last).median)} of the tokens with negative advantage were kept, "
        f"but {percent(right.within(first, last).median)} of those with positive (medians); more than 5 points apart at "
        f"{percent(share)} of all steps.{pushes} Such a filter mostly pushes down.",
        "selection",
        first,
        "wider bound",
    )


def longest_stretch(series: Series, above: float) -> tuple[int, int] | None:
    """First and last step of the longest run of values above a bound; None where there is none."""
    over = np.concatenate([[False], series.values > above, [False]]).astype(np.int8)
    begins, ends = np.flatnonzero(np.diff(over) == 1), np.flatnonzero(np.diff(over) == -1) - 1
    if not len(begins):
        return None
    longest = int(np.argmax(ends - begins))
    return int(series.steps[begins[longest]]), int(series.steps[ends[longest]])


def gate_names(run: Run) -> list[tuple[str, Mapping[str, Any]]]:
    """Each gate of the correction with the prefix of its metrics."""
    gates = run.setting("correction.gates", ())
    return [(f"gate/{place}-{gate.get('metric')}-{gate.get('level')}", gate) for place, gate in enumerate(gates)]


def bounds_text(gate: Mapping[str, Any]) -> str:
    """[0.99, 1.01], an open side as −∞ or ∞."""
    low, high = gate.get("lower"), gate.get("upper")
    return f"[{'−∞' if low is None else short_number(low)}, {'∞' if high is None else short_number(high)}]"


def _acting_bounds(run: Run, name: str, gate: Mapping[str, Any]) -> str:
    """The bounds that would act on a hundredth of what a gate judges, on each side that it bounds; nothing where none is known."""
    ends = (("lower", "p01"), ("upper", "p99"))
    seen = [(side, run.series(f"{name}/{share}").median) for side, share in ends if gate.get(side) is not None]
    named = [f"{side} {short_number(bound)}" for side, bound in seen if np.isfinite(bound)]
    return f" With {' and '.join(named)} it would act on about {percent(0.01 * len(named))}." if named else ""


def gates(run: Run) -> Iterator[RunFinding]:
    """Gates that never fire, and gates that reject most."""
    for name, gate in gate_names(run):
        rejected = run.series(f"{name}/rejected_tokens").finite
        if len(rejected) < 3:
            continue
        seen = "; its statistic lay within [{}, {}] (1 % and 99 % quantiles, medians over steps)".format(
            short_number(run.series(f"{name}/p01").median), short_number(run.series(f"{name}/p99").median)
        )
        seen = seen if len(run.series(f"{name}/p99").finite) else ""
        called = f"{name.removeprefix('gate/')} with bounds {bounds_text(gate)}"
        acts = gate.get("action") != "observe"
        verb = "rejected" if acts else "would have rejected"
        if float(np.mean(rejected.values < 0.001)) > 0.99:
            yield RunFinding(
                "warning" if acts else "note",
                "A gate that never fires",
                f"{called} touched no more than {percent(float(rejected.values.max()))} of the tokens at any step{seen}. "
                f"It is as good as absent.{_acting_bounds(run, name, gate)}",
                name,
                remedy="narrower bound",
            )
        elif rejected.median > 0.7:
            yield RunFinding(
                "warning" if acts else "note",
                "A gate that rejects most" if acts else "A gate that would reject most",
                f"{called} {verb} {percent(rejected.median)} of the tokens (median over steps){seen}. "
                "The bounds are tighter than the mismatch this run has.",
                name,
                remedy="wider bound",
            )


def is_uncorrected(run: Run) -> bool:
    """Whether nothing corrects: weight one and no gate."""
    return run.setting("correction.weight.level", "one") == "one" and not run.setting("correction.gates", ())


def distance(run: Run) -> Iterator[RunFinding]:
    """Policies far apart over most of a run, and whether anything corrects for it."""
    drift = run.series("drift/k3")
    if not drift.median > FAR_APART:
        return
    nothing = " Nothing corrects for it: weight one, no gate." if is_uncorrected(run) else ""
    yield RunFinding(
        "warning",
        "The policies are far apart",
        f"Mismatch KL {short_number(drift.median)} (median over steps), largest {short_number(float(drift.finite.values.max()))}.{nothing}",
        "mismatch",
    )


def effective_size(run: Run) -> Iterator[RunFinding]:
    """Weights of which a few own the batch."""
    ess = run.series("weight/ess").finite
    kept = run.series("kept_fraction")
    if len(ess) and ess.median < 0.3 and not (kept.median < 0.3):
        yield RunFinding(
            "warning",
            "Few tokens own the batch",
            f"Effective sample size {percent(ess.median)} of the tokens (median), lowest {percent(float(ess.values.min()))}, "
            f"while {percent(kept.median)} are kept. Bound the weight, or weigh at a lower level.",
            "ess",
            remedy="bounded weight",
        )


def missing_log_probs(run: Run) -> Iterator[RunFinding]:
    """Trained tokens without usable log-probs."""
    share = run.series("missing_fraction").finite
    if len(share) and share.values.max() > 0:
        worst = int(np.argmax(share.values))
        passed = not share.lately.values.any()
        yield RunFinding(
            "note" if passed else "warning",
            "Log-probs missing",
            f"Up to {percent(float(share.values[worst]))} of the tokens (step {share.steps[worst]}) had no finite log-probs "
            f"and were not trained{'; none in the last fifth of the run' if passed else ''}.",
            "kept",
            int(share.steps[worst]),
            "finer precision",
        )
