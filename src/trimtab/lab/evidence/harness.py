"""Four ways in which a comparison of corrections says nothing while it looks as if it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.lab.evidence.pairs import PairedArms
from trimtab.lab.results import CellResult
from trimtab.report.findings.verdict import late_part
from trimtab.report.html import short_number

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
    found = entry.curves.get("entropy")
    series = found.series().finite if found is not None else None
    return float(np.median(late_part(series).values)) if series is not None and len(series) else float("nan")
