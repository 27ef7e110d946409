"""Two arms, seed by seed, and whether they may be compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trimtab.lab.results import CellResult
from trimtab.report.html import plural

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


def _lost(done: list[dict[int, CellResult]], arms: Sequence[Sequence[CellResult]], first: int) -> str | None:
    """That seed `first` failed, or is missing in an arm that has later ones; an arm that is only not as far has lost nothing."""
    failed = [each for arm in arms for each in arm if each.status == "failed" and each.seed == first]
    if failed:
        return f"Seed {first} is lost: {failed[0].name} failed: {failed[0].message}"
    gaps = [max(arm) for arm in done if arm and first not in arm and max(arm) > first]
    return f"Seed {first} is lost: one arm goes on to seed {max(gaps)} without it." if gaps else None


def _unlike(pairs: Sequence[tuple[CellResult, CellResult]], shared: Sequence[Shared]) -> list[str]:
    found: list[str] = []
    unknown = [one.seed for one, other in pairs if one.pairing is None or other.pairing is None]
    if unknown and shared:
        found.append(f"Seeds {_listed(unknown)} did not record what they began with and trained on. Run them again.")
    words = {"start": "began with other weights", "prompts": "trained on other prompts, or in another order"}
    for what in shared:
        unlike = [
            one.seed
            for one, other in pairs
            if one.pairing and other.pairing and getattr(one.pairing, what) != getattr(other.pairing, what)
        ]
        if unlike:
            found.append(f"The arms are not paired: with seed {_listed(unlike)} they {words[what]}.")
    steps = sorted({each.steps for pair in pairs for each in pair})
    if len(steps) > 1:
        found.append(f"The arms are not paired: some runs have {steps[0]} steps and some {steps[-1]}.")
    return found


def _stuck(arm: Sequence[CellResult]) -> list[str]:
    return [
        f"{each.name} is stuck: it trained on the same prompts for {each.pairing.stuck} steps in a row."
        for each in arm
        if each.pairing is not None and each.pairing.stuck >= STUCK
    ]


def _same_seeds(arm: Sequence[CellResult]) -> list[str]:
    """Seeds that are one run under two numbers: whatever drew them never saw the seed."""
    seen: dict[object, CellResult] = {}
    found: list[str] = []
    for each in arm:
        trails: list[object] = [("run", each.accuracy, tuple(sorted(each.medians.items())))]
        trails += [("prompts", each.pairing.prompts)] if each.pairing is not None else []
        for trail in trails:
            twin = seen.setdefault(trail, each)
            if twin is not each:
                what = "are one and the same run" if trail[0] == "run" else "trained on the same prompts"  # pyright: ignore[reportIndexIssue]
                found.append(f"The seed is lost: {twin.name} and {each.name} {what}.")
    return found


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
