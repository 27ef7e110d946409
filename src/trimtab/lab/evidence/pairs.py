"""Two arms, seed by seed: what a run is worth there, whether the arms may be compared, and what must stand beside a verdict.

The notes name four ways in which a comparison of corrections says nothing while it looks as if it did.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from trimtab.lab.results import CellResult
from trimtab.lab.statistics.intervals import Lifetime
from trimtab.report.findings.verdict import late_part, tolerance
from trimtab.report.html import plural, short_number

STUCK = 3
"""Steps in a row on the same prompts that no shuffled task gives by chance."""
Shared = Literal["start", "prompts"]
SHARED: tuple[Shared, ...] = ("start", "prompts")


@dataclass(frozen=True)
class PairedArms:
    """The seeds that both arms have, in order from 0 and without a gap, and what is wrong with them."""

    seeds: tuple[int, ...]
    one: tuple[CellResult, ...]
    other: tuple[CellResult, ...]
    faults: tuple[str, ...]
    """Sentences; while there is one, nothing is decided."""
    lost: str | None
    """Why the next seed cannot come; the pairs before it are sound, and what they decided stays decided."""
    shares: str
    """What the pairs were seen to have in common, for the reader."""


def paired_arms(
    one: Sequence[CellResult], other: Sequence[CellResult], shared: Sequence[Shared] = SHARED
) -> PairedArms:
    """The pairs of two arms. `shared`: what the runs of a seed must have in common."""
    both = [{each.seed: each for each in arm if each.status == "done"} for arm in (one, other)]
    seeds: list[int] = []
    while len(seeds) in both[0] and len(seeds) in both[1]:
        seeds.append(len(seeds))
    pairs = [(both[0][seed], both[1][seed]) for seed in seeds]
    faults = _unlike(pairs, shared)
    for arm in zip(*pairs, strict=True):
        faults += [*_stuck(arm), *_same_seeds(arm)]
    left, right = (tuple(arm) for arm in zip(*pairs, strict=True)) if pairs else ((), ())
    lost = _lost(both, (one, other), len(seeds))
    return PairedArms(tuple(seeds), left, right, tuple(faults), lost, _shares(pairs, shared))


def first_pairs(pairs: PairedArms, count: int, shared: Sequence[Shared] = SHARED) -> PairedArms:
    """The same with the first pairs only."""
    one, other = pairs.one[:count], pairs.other[:count]
    shares = _shares(list(zip(one, other, strict=True)), shared)
    return replace(pairs, seeds=pairs.seeds[:count], one=one, other=other, shares=shares)


def _lost(done: list[dict[int, CellResult]], arms: Sequence[Sequence[CellResult]], first: int) -> str | None:
    """That seed `first` failed, or is missing in an arm that has later ones; an arm that is only not as far has lost nothing."""
    failed = [each for arm in arms for each in arm if each.status == "failed" and each.seed == first]
    if failed:
        return f"Seed {first} is lost: {failed[0].name} failed: {failed[0].message}"
    gaps = [max(arm) for arm in done if arm and first not in arm and max(arm) > first]
    return f"Seed {first} is lost: one arm goes on to seed {max(gaps)} without it." if gaps else None


def _unlike(pairs: Sequence[tuple[CellResult, CellResult]], shared: Sequence[Shared]) -> list[str]:
    faults: list[str] = []
    unknown = [one.seed for one, other in pairs if one.pairing is None or other.pairing is None]
    if unknown and shared:
        faults.append(f"Seeds {_listed(unknown)} did not record what they began with and trained on. Run them again.")
    words = {"start": "began with other weights", "prompts": "trained on other prompts, or in another order"}
    for what in shared:
        unlike = [
            one.seed
            for one, other in pairs
            if one.pairing and other.pairing and getattr(one.pairing, what) != getattr(other.pairing, what)
        ]
        if unlike:
            faults.append(f"The arms are not paired: with seed {_listed(unlike)} they {words[what]}.")
    steps = sorted({each.steps for pair in pairs for each in pair})
    if len(steps) > 1:
        faults.append(f"The arms are not paired: some runs have {steps[0]} steps and some {steps[-1]}.")
    return faults


def _stuck(arm: Sequence[CellResult]) -> list[str]:
    return [
        f"{each.name} is stuck: it trained on the same prompts for {each.pairing.stuck} steps in a row."
        for each in arm
        if each.pairing is not None and each.pairing.stuck >= STUCK
    ]


def _same_seeds(arm: Sequence[CellResult]) -> list[str]:
    """Seeds that are one run under two numbers: whatever drew them never saw the seed."""
    seen: dict[object, CellResult] = {}
    faults: list[str] = []
    for each in arm:
        trails: list[object] = [("run", each.accuracy, tuple(sorted(each.medians.items())))]
        trails += [("prompts", each.pairing.prompts)] if each.pairing is not None else []
        for trail in trails:
            twin = seen.setdefault(trail, each)
            if twin is not each:
                what = "are one and the same run" if trail[0] == "run" else "trained on the same prompts"  # pyright: ignore[reportIndexIssue]
                faults.append(f"The seed is lost: {twin.name} and {each.name} {what}.")
    return faults


def _shares(pairs: Sequence[tuple[CellResult, CellResult]], shared: Sequence[Shared]) -> str:
    known = [one.pairing for one, other in pairs if one.pairing is not None and other.pairing is not None]
    if not pairs:
        return "no pairs"
    names = {"start": "warm start", "prompts": "prompts in the same order"}
    said = " and ".join(f"the same {names[each]}" for each in SHARED if each in shared) or "the seed only"
    if not known:
        return f"{plural(len(pairs), 'pair')}; not recorded what they share"
    digest = known[0].prompts[:8]
    return f"{plural(len(pairs), 'pair')} with {said} ({plural(known[0].recorded, 'group')} looked at per run, seed 0: {digest})"


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def late_accuracy(entry: CellResult) -> float:
    """Mean held-out accuracy over the last third of the steps."""
    return float(late_part(entry.evaluated.finite).values.mean())


def first_fall(entry: CellResult) -> int | None:
    """The first evaluation at which the run had fallen: under half of its best so far, or under its start; None if it never had.

    Each beyond three standard errors of the evaluation. A run that came back has fallen all the same.
    """
    curve = entry.evaluated.finite
    if not len(curve):
        return None
    start = best = float(curve.values[0])
    for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
        best = max(best, value)
        halved = value < best / 2 and best - value > tolerance(best, value, entry.problems)
        if halved or start - value > tolerance(start, value, entry.problems):
            return int(step)
    return None


def lifetime(entry: CellResult) -> Lifetime:
    """How long it stood, for a survival curve."""
    fell = first_fall(entry)
    return Lifetime(entry.steps, False) if fell is None else Lifetime(fell, True)


def stood(entry: CellResult) -> float:
    """1 where it never fell, else 0."""
    return float(first_fall(entry) is None)


def kept_share(entry: CellResult) -> float:
    """The median over its steps of the share of tokens that the gates left."""
    return entry.medians.get("kept", float("nan"))


ENTROPY_LIMIT = 0.02
"""Nats per token under which a policy explores no more. A solved task ends near 0.005 here, so what differs later is not learning."""
ALWAYS = 0.99995
"""Share of kept tokens that lab.json, with four digits, cannot tell from all."""


def harness_notes(pairs: PairedArms, rules: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What must stand beside a verdict on these pairs; `rules` are the settings of each correction by its name."""
    arms = [arm for arm in (pairs.one, pairs.other) if arm]
    notes = [note for arm in arms for note in (_idle_clip(arm), _idle_gate(arm, rules)) if note]
    return [*dict.fromkeys(notes), *filter(None, [_same_run(pairs), _low_entropy(arms)])]


def _name(arm: Sequence[CellResult]) -> str:
    return f"{arm[0].correction} ({arm[0].scenario})"


def _idle_clip(arm: Sequence[CellResult]) -> str | None:
    """A loss without a clip, or a ratio that never left its band: with one minibatch it is exactly 1."""
    shares = [each.most[name] for each in arm for name in ("clip_high", "clip_low") if name in each.most]
    if not shares or max(shares) > 0:
        return None
    return (
        f"Idle clip: in {_name(arm)} no token was ever clipped. Its loss has no clip, or the ratio never left the band: with one update "
        "per batch it is 1. This arm says nothing about clipping."
    )


def _idle_gate(arm: Sequence[CellResult], rules: Mapping[str, Mapping[str, Any]]) -> str | None:
    gates = [each for each in rules.get(arm[0].correction, {}).get("gates", ()) if each.get("action") != "observe"]
    # a token that a gate gives weight 0 stays in the mask: it is missing among those that still have a weight
    zeroes = any(each.get("action") == "zero" for each in gates)
    names = ("kept", "kept_right", "kept_wrong") if zeroes else ("kept",)
    curves = [each.curves[name].values for each in arm for name in names if name in each.curves]
    least = min((value for curve in curves for value in curve if value is not None), default=None)
    if not gates or least is None or least < ALWAYS:
        return None
    return f"Idle gate: {_name(arm)} kept every token in every seed. Its bounds never fired; they were not tested."


def _same_run(pairs: PairedArms) -> str | None:
    same = [one.seed for one, other in zip(pairs.one, pairs.other, strict=True) if _is_one_run(one, other)]
    if not same:
        return None
    which = "every seed" if len(same) == len(pairs.seeds) else f"{len(same)} of {len(pairs.seeds)} seeds"
    return f"One run: both arms are the same run, point for point, in {which}. What tells them apart never acted there."


def _is_one_run(one: CellResult, other: CellResult) -> bool:
    return one.accuracy == other.accuracy and one.curves.get("grad_norm") == other.curves.get("grad_norm")


def _low_entropy(arms: Sequence[Sequence[CellResult]]) -> str | None:
    late = [[late_entropy(each) for each in arm] for arm in arms]
    medians = [float(np.nanmedian(arm)) if not np.isnan(arm).all() else float("nan") for arm in late]
    if len(medians) < 2 or not all(value < ENTROPY_LIMIT for value in medians):
        return None
    said = " and ".join(short_number(value, 2) for value in medians)
    return (
        f"Low entropy: over the last third every arm is under {ENTROPY_LIMIT:g} nats per token (median {said}). Neither explores any "
        "more, so what happens there is not learning."
    )


def late_entropy(entry: CellResult) -> float:
    """The median entropy over the last third of the steps; NaN where it was not logged."""
    curve = entry.curves.get("entropy")
    series = curve.series().finite if curve is not None else None
    return float(np.median(late_part(series).values)) if series is not None and len(series) else float("nan")
