"""Faults of a run: what speaks against calling it healthy however its accuracy looks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from trimtab.config.kept_shares import STARVING
from trimtab.report.findings import filtering
from trimtab.report.html import percent
from trimtab.report.run import Run
from trimtab.report.series import Series

UNENDED = 0.5
"""Share of responses that never end from which most rewards judge a fragment."""


@dataclass(frozen=True)
class Fault:
    """Something that speaks against calling a run healthy, as a clause with its number."""

    kind: Literal["starving", "skipped", "selection", "endless", "gradients"]
    clause: str


def faults(run: Run) -> list[Fault]:
    """Every fault of a run; none: nothing speaks against it."""
    return [fault for find in FAULTS if (fault := find(run))]


def _few_kept(run: Run) -> Fault | None:
    kept = run.series("kept_fraction").median
    return Fault("starving", f"the gates keep {percent(kept)} of the tokens (median)") if kept < STARVING else None


def _skipped_updates(run: Run) -> Fault | None:
    steps, count = skipped_steps(run), len(run.series("train/skipped").finite)
    return (
        Fault("skipped", f"{len(steps)} of {count} updates were skipped")
        if len(steps) > filtering.SKIPPED * count
        else None
    )


def skipped_steps(run: Run) -> Series:
    """Steps without an update, those apart where every group agreed: there was nothing to learn, and nothing is wrong."""
    part, groups = run.series("train/skipped").finite, run.series("advantage/groups")
    alike = run.series("advantage/zero_variance_groups")
    shared, at, also = np.intersect1d(groups.steps, alike.steps, return_indices=True)
    agreed = shared[alike.values[also] >= np.maximum(groups.values[at], 1)]
    stays = (part.values > 0) & ~np.isin(part.steps, agreed)
    return Series(part.steps[stays], part.values[stays])


def _selection_fault(run: Run) -> Fault | None:
    grave = any(bias.level == "alarm" for bias in filtering.selection_bias(run))
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
