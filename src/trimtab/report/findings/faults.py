"""What stands against calling a run healthy, whatever its accuracy did."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trimtab.config.kept_shares import STARVING
from trimtab.report.findings import filtering
from trimtab.report.run import Run
from trimtab.report.series import Series
from trimtab.report.text import percent

SKIPPED = 0.01
"""Share of the steps without an update, for another reason than that all answers agreed, which is one too many."""
UNENDED = 0.5
"""Share of responses that never end from which most rewards judge a fragment."""


def faults(run: Run) -> list[str]:
    """Each fault as a clause with its number; none: nothing stands against it."""
    return [said for fault in FAULTS if (said := fault(run))]


def _few_kept(run: Run) -> str | None:
    kept = run.series("kept_fraction")
    return f"the gates keep {percent(kept.median)} of the tokens (median)" if kept.median < STARVING else None


def _skipped_updates(run: Run) -> str | None:
    steps, count = skipped_steps(run), len(run.series("train/skipped").finite)
    return f"{len(steps)} of {count} updates were skipped" if len(steps) > SKIPPED * count else None


def skipped_steps(run: Run) -> Series:
    """Steps without an update, those apart where every group agreed: there was nothing to learn, and nothing is wrong."""
    part, groups = run.series("train/skipped").finite, run.series("advantage/groups")
    alike = run.series("advantage/zero_variance_groups")
    shared, at, also = np.intersect1d(groups.steps, alike.steps, return_indices=True)
    agreed = shared[alike.values[also] >= np.maximum(groups.values[at], 1)]
    stays = (part.values > 0) & ~np.isin(part.steps, agreed)
    return Series(part.steps[stays], part.values[stays])


def _selection_fault(run: Run) -> str | None:
    grave = any(found.level == "alarm" for found in filtering.selection_bias(run))
    return "the filter keeps wrong answers more often than right ones" if grave else None


def _endless_responses(run: Run) -> str | None:
    share = run.series("rollout/truncated").median
    return f"{percent(share)} of the responses never end (median)" if share > UNENDED else None


def _bad_gradients(run: Run) -> str | None:
    norm = run.series("train/grad_norm").values
    return "gradients were not finite" if len(norm) and not np.isfinite(norm).all() else None


FAULTS: tuple[Callable[[Run], str | None], ...] = (
    _few_kept,
    _skipped_updates,
    _selection_fault,
    _endless_responses,
    _bad_gradients,
)
