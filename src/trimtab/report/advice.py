"""What to try: for each alarm and warning one setting, and where its effect shows. A table by the finding's title."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from trimtab.report.faults import skipped
from trimtab.report.filtering import FAR_APART, gate_names, is_starved
from trimtab.report.finding import Finding, Try
from trimtab.report.origin import EXACT
from trimtab.report.pace import whole_setting
from trimtab.report.run import Run

STEADY: Mapping[str, str] = {"all": "k3-rs", "kept": "seq-mis"}
"""The correction offered where there is none, by who votes in the baseline.

In the lab k3-rs never collapsed where all vote, neither on stale nor on quantised samples; where only kept rows do, seq-mis did best.
"""
FINER: Mapping[str, str] = {"int4": "int8", "int8": "bf16", "fp8": "bf16", "bf16": "fp32"}
"""The next precision up."""


def advised(run: Run, found: Finding) -> Finding:
    """The finding with what to try, where it is grave and says nothing itself."""
    if found.level not in ("alarm", "warning") or found.advice is not None:
        return found
    rule = next((rule for title, rule in RULES if found.title.startswith(title)), steadier)
    return replace(found, advice=rule(run, found))


def steadier(run: Run, found: Finding) -> Try:
    """Against policies that part: correct where nothing does, then younger data, then finer weights, then smaller steps."""
    look = "Accuracy and Mismatch KL"
    stale, precision = whole_setting(run, "rollout.max_staleness"), run.setting("rollout.precision", "fp32")
    if is_bare(run) and (stale or precision not in EXACT):
        return Try(f"correction={steady(run)}", f"{look}, and Kept fraction")
    if stale:
        return Try(f"rollout.max_staleness={stale // 2}", f"{look}, and the waiting in Seconds per step")
    return finer(run, found) if precision in FINER and precision not in EXACT else smaller_steps(run, found)


def steady(run: Run) -> str:
    """The correction to offer."""
    return STEADY["kept" if run.setting("advantage.baseline") == "kept" else "all"]


def fallen(run: Run, found: Finding) -> Try:
    """Against a fall: where a gate drops whole rows of stale data and those do not vote, let them; otherwise as `steadier`.

    Sequence gates on stale samples ended higher with all rows voting in 11 of 12 runs of the lab.
    """
    drops = any(gate.get("level") == "sequence" and gate.get("action") == "reject" for _, gate in gate_names(run))
    if drops and run.setting("advantage.baseline") == "kept" and whole_setting(run, "rollout.max_staleness"):
        return Try("advantage.baseline=all", "Accuracy, and Groups without a signal")
    return steadier(run, found)


def is_bare(run: Run) -> bool:
    """Whether nothing corrects: weight one and no gate."""
    return run.setting("correction.weight.level", "one") == "one" and not run.setting("correction.gates", ())


def smaller_steps(run: Run, found: Finding) -> Try:
    """Half the learning rate; a bound on the norm first where there is none."""
    if run.settings and run.setting("learner.clip_norm") is None:
        return Try("learner.clip_norm=1.0", "Gradient norm")
    rate = run.setting("learner.lr")
    rate = float(rate) if isinstance(rate, (int, float)) and rate > 0 else 3e-4
    return Try(f"learner.lr={rate / 2:.2g}", "Gradient norm and Accuracy")


def finer(run: Run, found: Finding) -> Try:
    """The next precision up for the sampler; what else parts fresh tokens where that is no cause."""
    look = "Mismatch by age of the token, at age 0"
    precision = str(run.setting("rollout.precision", "fp32"))
    if precision in FINER and precision not in EXACT:
        return Try(f"rollout.precision={FINER[precision]}", look)
    if "keep_cache" in found.sentence:
        return Try("rollout.in_flight=recompute", look)
    for name in ("top_p", "top_k"):
        if run.setting(f"rollout.{name}") is not None:
            return Try(f"rollout.{name}=null", look)
    return Try("rollout.precision=fp32" if precision == "bf16" else "rollout.max_staleness=0", look)


def wider(run: Run, found: Finding) -> Try:
    """A wider bound for the gate the finding names, or for the one that rejects most: one that keeps about 90 % on its side.

    Not where the policies are far apart: what a gate keeps out there should stay out.
    """
    gates = [
        (place, name, gate) for place, (name, gate) in enumerate(gate_names(run)) if gate.get("action") != "observe"
    ]
    named = [each for each in gates if each[1] == found.panel]
    if not gates or run.series("drift/k3").median > FAR_APART:
        return steadier(run, found)
    place, name, gate = max(named or gates, key=lambda each: _share(run, each[1], "rejected_tokens"))
    low = _share(run, name, "low_tokens") > _share(run, name, "high_tokens")
    sides = [side for side in (("lower", "upper") if low else ("upper", "lower")) if _is_number(gate.get(side))]
    if not sides:
        return steadier(run, found)
    side, bound = sides[0], float(gate[sides[0]])
    median, end = (run.series(f"{name}/{part}").median for part in ("p50", "p01" if side == "lower" else "p99"))
    # Between the median and the 1 or 99 % quantile, where a bell curve of logarithms has its 10 or 90 % quantile: 1.28 / 2.33.
    value = median * (end / median) ** 0.55 if median > 0 and end > 0 else bound
    if not (value < bound if side == "lower" else value > bound):
        value = bound * (0.5 if side == "lower" else 2.0)
    return Try(f"correction.gates.{place}.{side}={value:.2g}", "Kept fraction and Selection bias")


def narrower(run: Run, found: Finding) -> Try:
    """A bound that the statistic of an idle gate reaches: its 99 % quantile above, its 1 % quantile below."""
    for place, (name, gate) in enumerate(gate_names(run)):
        for side, quantile in (("upper", "p99"), ("lower", "p01")):
            seen = run.series(f"{name}/{quantile}").median
            if name != found.panel or not _is_number(gate.get(side)) or seen != seen:
                continue
            if (seen < float(gate[side])) == (side == "upper") and _fits(gate, side, seen):
                return Try(f"correction.gates.{place}.{side}={seen:.3g}", "Kept fraction and Rejected by each gate")
    return Try(f"correction={steady(run)}", "Kept fraction and Rejected by each gate")


def _fits(gate: Mapping[str, Any], side: str, value: float) -> bool:
    """Whether a bound stays on its own side of the other, and positive."""
    other: Any = gate.get("lower" if side == "upper" else "upper")
    return value > 0 and (not _is_number(other) or (value > float(other)) == (side == "upper"))


def _share(run: Run, name: str, part: str) -> float:
    share = run.series(f"{name}/{part}").median
    return share if share == share else 0.0


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def more_signal(run: Run, found: Finding) -> Try:
    """Against a curve that does not rise: a wider gate where it starves, more samples where groups agree, else larger steps."""
    if is_starved(run.series("kept_fraction")):
        return wider(run, found)
    groups, alike = run.series("advantage/groups").median, run.series("advantage/zero_variance_groups").median
    if alike > 0.5 * groups:
        samples = whole_setting(run, "rollout.samples", 8)
        return Try(f"rollout.samples={2 * samples}", "Groups without a signal")
    rate = run.setting("learner.lr")
    rate = float(rate) if _is_number(rate) and rate > 0 else 3e-4
    return Try(f"learner.lr={2 * rate:.2g}", "Accuracy and Gradient norm")


def first_fault(run: Run, found: Finding) -> Try:
    """Against the first of the faults that a verdict names."""
    if "of the responses never end" in found.sentence and "the gates keep" not in found.sentence:
        return longer(run, found)
    if "not finite" in found.sentence:
        return smaller_steps(run, found)
    return wider(run, found) if "the gates keep" in found.sentence or gate_names(run) else usable(run, found)


def usable(run: Run, found: Finding) -> Try:
    """Against updates that are skipped: a wider gate where gates reject, more samples where groups agree, else smaller steps."""
    if gate_names(run) and run.series("kept_fraction").median < 0.9:
        return wider(run, found)
    if not len(skipped(run)):
        return Try(f"rollout.samples={2 * whole_setting(run, 'rollout.samples', 8)}", "Groups without a signal")
    return smaller_steps(run, found)


def longer(run: Run, found: Finding) -> Try:
    """Room for twice the tokens."""
    most = whole_setting(run, "rollout.max_tokens") or round(max(run.series("rollout/length").finite.values, default=0))
    return Try(f"rollout.max_tokens={2 * max(int(most), 1)}", "Truncated and failed, and Response length")


def bounded(run: Run, found: Finding) -> Try:
    """A weight with a bound, or a lower one, or of single tokens."""
    look = "Effective sample size"
    if run.setting("correction.weight.level") == "sequence":
        return Try("correction.weight.level=token", look)
    upper = run.setting("correction.weight.upper")
    return Try(f"correction.weight.upper={max(1.0, float(upper) / 2) if _is_number(upper) else 2.0:g}", look)


def first_sign(run: Run, found: Finding) -> Try:
    """By the curve that broke away first: the learner's own step, or the distance of the policies."""
    own = ("gradient norm", "KL of the update", "kL of the update")
    return smaller_steps(run, found) if any(name in found.title for name in own) else steadier(run, found)


RULES: tuple[tuple[str, Callable[[Run, Finding], Try]], ...] = (
    ("Collapsed", fallen),
    ("Degraded", fallen),
    ("Unstable", fallen),
    ("Flat", more_signal),
    ("Rose while starved", wider),
    ("Needs a look", first_fault),
    ("First sign", first_sign),
    ("Starved", wider),
    ("A gate that rejects most", wider),
    ("Keeps wrong answers", wider),
    ("A gate that never", narrower),
    ("Updates skipped", usable),
    ("Few tokens own the batch", bounded),
    ("Log-probs missing", finer),
    ("Fresh tokens are off", finer),
    ("Gradients not finite", smaller_steps),
    ("Responses hit the length limit", longer),
    (
        "Tokens without a version",
        lambda run, found: Try("rollout.in_flight=finish", "the coverage of Staleness: one response, one version"),
    ),
    (
        "A verifier failed",
        lambda run, found: Try(
            f"task.timeout={2 * float(run.setting('task.timeout', 10.0)):g}", "Truncated and failed"
        ),
    ),
    ("Ended early", lambda run, found: Try("--resume RUN", "Settings and events, the last of them")),
)
"""The beginning of a title, and what to try; any other: `steadier`."""
