"""Early signs: which curve broke away first before the accuracy fell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from trimtab.report.series import Onset, Series, onsets


@dataclass(frozen=True)
class Watch:
    """A curve that is watched, and what counts as breaking away."""

    metric: str
    name: str
    panel: str
    way: Literal["rise", "fall"]
    factor: float
    floor: float
    window: int = 10


WATCHED = (
    Watch("drift/k3", "Mismatch KL", "mismatch", "rise", 10.0, 0.02),
    Watch("policy/k3", "KL of the update", "mismatch", "rise", 10.0, 0.02),
    Watch("train/grad_norm", "Gradient norm before clipping", "gradient", "rise", 10.0, 1.0),
    Watch("policy/entropy", "Entropy", "entropy", "rise", 3.0, 0.3),
    Watch("policy/entropy", "Entropy", "entropy", "fall", 3.0, 0.1),
    Watch("rollout/length", "Response length", "length", "rise", 1.5, 1.0),
    Watch("rollout/length", "Response length", "length", "fall", 1.5, 1.0),
    Watch("rollout/truncated", "Share of truncated responses", "finish", "rise", 5.0, 0.05),
    Watch("kept_fraction", "Kept fraction", "kept", "fall", 2.0, 0.1),
    Watch("weight/ess", "Effective sample size", "ess", "fall", 2.0, 0.2),
)


@dataclass(frozen=True)
class Sign:
    """A watched curve that broke away."""

    watch: Watch
    onset: Onset


def signs(series: Callable[[str], Series], *, first: int | None = None, last: int | None = None) -> list[Sign]:
    """Every watched curve's breaks between two steps, both included, earliest first; at one step in the order of the table."""
    found = [
        Sign(watch, onset)
        for watch in WATCHED
        for onset in onsets(
            series(watch.metric), factor=watch.factor, window=watch.window, floor=watch.floor, way=watch.way
        )
        if (first is None or onset.step >= first) and (last is None or onset.step <= last)
    ]
    return sorted(found, key=lambda sign: sign.onset.step)
