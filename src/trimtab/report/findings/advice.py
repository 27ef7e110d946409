"""What to try: for each alarm and warning one setting, and where its effect shows. A table by the remedy that a finding names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trimtab.report.findings.faults import skipped_steps
from trimtab.report.findings.filtering import FAR_APART, gate_names, is_starved, is_uncorrected
from trimtab.report.findings.finding import Advice, Remedy, RunFinding
from trimtab.report.findings.mismatch import EXACT
from trimtab.report.findings.pace import whole_setting
from trimtab.report.run import Run

OFFERED_CORRECTION: Mapping[str, str] = {"all": "k3-rs", "kept": "seq-mis"}
"""The correction offered where there is none, by who votes in the baseline.

In the lab k3-rs never collapsed where all vote, neither on stale nor on quantised samples; where only kept rows do, seq-mis did best.
"""
NEXT_PRECISION: Mapping[str, str] = {"int4": "int8", "int8": "bf16", "fp8": "bf16", "bf16": "fp32"}
"""The next precision up."""
AT_AGE_0 = "Mismatch by age of the token, at age 0"


def with_advice(run: Run, finding: RunFinding) -> RunFinding:
    """The finding with what to try, where it is grave and says nothing itself."""
    if finding.level not in ("alarm", "warning") or finding.advice is not None:
        return finding
    return replace(finding, advice=REMEDIES[finding.remedy](run, finding))


def closer_policies(run: Run, finding: RunFinding) -> Advice:
    """Against policies that part: correct where nothing does, then younger data, then finer weights, then smaller steps."""
    look = "Accuracy and Mismatch KL"
    stale, precision = whole_setting(run, "rollout.max_staleness"), run.setting("rollout.precision", "fp32")
    if is_uncorrected(run) and (stale or precision not in EXACT):
        return Advice(f"correction={offered_correction(run)}", f"{look}, and Kept fraction")
    if stale:
        return Advice(f"rollout.max_staleness={stale // 2}", f"{look}, and the waiting in Seconds per step")
    return (
        finer_precision(run, finding)
        if precision in NEXT_PRECISION and precision not in EXACT
        else smaller_steps(run, finding)
    )


def offered_correction(run: Run) -> str:
    """The correction to offer."""
    return OFFERED_CORRECTION["kept" if run.setting("advantage.baseline") == "kept" else "all"]


def after_fall(run: Run, finding: RunFinding) -> Advice:
    """Against a fall: where a gate drops whole rows of stale data and those do not vote, let them; otherwise as `closer_policies`.

    Sequence gates on stale samples ended higher with all rows voting in 11 of 12 runs of the lab.
    """
    drops = any(gate.get("level") == "sequence" and gate.get("action") == "reject" for _, gate in gate_names(run))
    if drops and run.setting("advantage.baseline") == "kept" and whole_setting(run, "rollout.max_staleness"):
        return Advice("advantage.baseline=all", "Accuracy, and Groups without a signal")
    return closer_policies(run, finding)


def smaller_steps(run: Run, finding: RunFinding) -> Advice:
    """Half the learning rate; a bound on the norm first where there is none."""
    if run.settings and run.setting("learner.clip_norm") is None:
        return Advice("learner.clip_norm=1.0", "Gradient norm")
    rate = run.setting("learner.lr")
    rate = float(rate) if isinstance(rate, (int, float)) and rate > 0 else 3e-4
    return Advice(f"learner.lr={rate / 2:.2g}", "Gradient norm and Accuracy")


def finer_precision(run: Run, finding: RunFinding) -> Advice:
    """The next precision up for the sampler; what else parts fresh tokens where that is no cause."""
    precision = str(run.setting("rollout.precision", "fp32"))
    if precision in NEXT_PRECISION and precision not in EXACT:
        return Advice(f"rollout.precision={NEXT_PRECISION[precision]}", AT_AGE_0)
    if run.setting("rollout.head", "none") == "none" and any(
        run.setting(f"rollout.{name}") is not None for name in ("top_p", "top_k")
    ):
        return Advice("rollout.head=mask", AT_AGE_0)
    return Advice("rollout.precision=fp32" if precision == "bf16" else "rollout.max_staleness=0", AT_AGE_0)


def wider_bound(run: Run, finding: RunFinding) -> Advice:
    """A wider bound for the gate the finding names, or for the one that rejects most: one that keeps about 90 % on its side.

    Not where the policies are far apart: what a gate keeps out there should stay out.
    """
    gates = [
        (place, name, gate) for place, (name, gate) in enumerate(gate_names(run)) if gate.get("action") != "observe"
    ]
    named = [each for each in gates if each[1] == finding.panel]
    if not gates or run.series("drift/k3").median > FAR_APART:
        return closer_policies(run, finding)
    place, name, gate = max(named or gates, key=lambda each: _share(run, each[1], "rejected_tokens"))
    low = _share(run, name, "low_tokens") > _share(run, name, "high_tokens")
    sides = [side for side in (("lower", "upper") if low else ("upper", "lower")) if _is_number(gate.get(side))]
    if not sides:
        return closer_policies(run, finding)
    value = _wider_value(run, name, sides[0], float(gate[sides[0]]))
    return Advice(f"correction.gates.{place}.{sides[0]}={value:.2g}", "Kept fraction and Selection bias")


def _wider_value(run: Run, name: str, side: str, bound: float) -> float:
    """The 10 or 90 % quantile of a gate's statistic, guessed from its median and its 1 or 99 % quantile; else half or twice the bound.

    A bell curve of logarithms has its 90 % quantile at 1.28 of 2.33 of the way to its 99 % quantile: median 1 and p99 4 give
    4 ** 0.55 = 2.1. A bound of 3 is wider already, and becomes 6.
    """
    median, end = (run.series(f"{name}/{part}").median for part in ("p50", "p01" if side == "lower" else "p99"))
    value = median * (end / median) ** 0.55 if median > 0 and end > 0 else bound
    if value < bound if side == "lower" else value > bound:
        return value
    return bound * (0.5 if side == "lower" else 2.0)


def narrower_bound(run: Run, finding: RunFinding) -> Advice:
    """A bound that the statistic of an idle gate reaches: its 99 % quantile above, its 1 % quantile below."""
    for place, (name, gate) in enumerate(gate_names(run)):
        for side, quantile in (("upper", "p99"), ("lower", "p01")):
            seen = run.series(f"{name}/{quantile}").median
            if name != finding.panel or not _is_number(gate.get(side)) or seen != seen:
                continue
            if (seen < float(gate[side])) == (side == "upper") and _fits(gate, side, seen):
                return Advice(f"correction.gates.{place}.{side}={seen:.3g}", "Kept fraction and Rejected by each gate")
    return Advice(f"correction={offered_correction(run)}", "Kept fraction and Rejected by each gate")


def _fits(gate: Mapping[str, Any], side: str, value: float) -> bool:
    """Whether a bound stays on its own side of the other, and positive."""
    other: Any = gate.get("lower" if side == "upper" else "upper")
    return value > 0 and (not _is_number(other) or (value > float(other)) == (side == "upper"))


def _share(run: Run, name: str, part: str) -> float:
    share = run.series(f"{name}/{part}").median
    return share if share == share else 0.0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def more_signal(run: Run, finding: RunFinding) -> Advice:
    """Against a curve that does not rise: a wider gate where it starves, more samples where groups agree, else larger steps."""
    if is_starved(run.series("kept_fraction")):
        return wider_bound(run, finding)
    groups, alike = run.series("advantage/groups").median, run.series("advantage/zero_variance_groups").median
    if alike > 0.5 * groups:
        samples = whole_setting(run, "rollout.samples", 8)
        return Advice(f"rollout.samples={2 * samples}", "Groups without a signal")
    rate = run.setting("learner.lr")
    rate = float(rate) if _is_number(rate) and rate > 0 else 3e-4
    return Advice(f"learner.lr={2 * rate:.2g}", "Accuracy and Gradient norm")


def fewer_skips(run: Run, finding: RunFinding) -> Advice:
    """Against updates that are skipped: a wider gate where gates reject, more samples where groups agree, else smaller steps."""
    if gate_names(run) and run.series("kept_fraction").median < 0.9:
        return wider_bound(run, finding)
    if not len(skipped_steps(run)):
        return Advice(f"rollout.samples={2 * whole_setting(run, 'rollout.samples', 8)}", "Groups without a signal")
    return smaller_steps(run, finding)


def longer_responses(run: Run, finding: RunFinding) -> Advice:
    """Room for twice the tokens."""
    most = whole_setting(run, "rollout.max_tokens") or round(max(run.series("rollout/length").finite.values, default=0))
    return Advice(f"rollout.max_tokens={2 * max(int(most), 1)}", "Truncated and failed, and Response length")


def bounded_weight(run: Run, finding: RunFinding) -> Advice:
    """A weight with a bound, or a lower one, or of single tokens."""
    look = "Effective sample size"
    if run.setting("correction.weight.level") == "sequence":
        return Advice("correction.weight.level=token", look)
    upper = run.setting("correction.weight.upper")
    return Advice(f"correction.weight.upper={max(1.0, float(upper) / 2) if _is_number(upper) else 2.0:g}", look)


REMEDIES: Mapping[Remedy, Callable[[Run, RunFinding], Advice]] = {
    "closer policies": closer_policies,
    "after a fall": after_fall,
    "more signal": more_signal,
    "wider bound": wider_bound,
    "narrower bound": narrower_bound,
    "fewer skips": fewer_skips,
    "longer responses": longer_responses,
    "bounded weight": bounded_weight,
    "finer precision": finer_precision,
    "recomputed cache": lambda run, finding: Advice("rollout.in_flight=recompute", AT_AGE_0),
    "smaller steps": smaller_steps,
}
