"""Early signs: which curve broke away first before the accuracy fell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trimtab.report.series import Onset, Series, onsets


@dataclass(frozen=True)
class WatchedCurve:
    """A curve that is watched, and what counts as breaking away."""

    metric: str
    name: str
    panel: str
    way: Literal["rise", "fall"]
    factor: float
    floor: float
    window: int = 10


WATCHED = (
    WatchedCurve("drift/k3", "Mismatch KL", "mismatch", "rise", 10.0, 0.02),
    WatchedCurve("policy/k3", "KL of the update", "mismatch", "rise", 10.0, 0.02),
    WatchedCurve("train/grad_norm", "Gradient norm before clipping", "gradient", "rise", 10.0, 1.0),
    WatchedCurve("policy/entropy", "Entropy", "entropy", "rise", 3.0, 0.3),
    WatchedCurve("policy/entropy", "Entropy", "entropy", "fall", 3.0, 0.1),
    WatchedCurve("rollout/length", "Response length", "length", "rise", 1.5, 1.0),
    WatchedCurve("rollout/length", "Response length", "length", "fall", 1.5, 1.0),
    WatchedCurve("rollout/truncated", "Share of truncated responses", "finish", "rise", 5.0, 0.05),
    WatchedCurve("kept_fraction", "Kept fraction", "kept", "fall", 2.0, 0.1),
    WatchedCurve("weight/ess", "Effective sample size", "ess", "fall", 2.0, 0.2),
)


@dataclass(frozen=True)
class EarlySign:
    """A watched curve that broke away."""

    watch: WatchedCurve
    onset: Onset


def signs(series: Callable[[str], Series], *, first: int | None = None, last: int | None = None) -> list[EarlySign]:
    """Every watched curve's breaks between two steps, both included, earliest first; at one step in the order of the table."""
    found = [
        EarlySign(watch, onset)
        for watch in WATCHED
        for onset in onsets(
            series(watch.metric), factor=watch.factor, window=watch.window, floor=watch.floor, way=watch.way
        )
        if (first is None or onset.step >= first) and (last is None or onset.step <= last)
    ]
    return sorted(found, key=lambda sign: sign.onset.step)
