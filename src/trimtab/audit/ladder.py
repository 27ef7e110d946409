"""The ladder: causes in the order in which they hide each other, each judged on what those above leave.

batch ─► shift ─► retokenised ─► mask ─► missing          is index t the same, real, sampled token on both sides?
      ─► truncation ─► temperature ─► raw                 are these log-probs of what was sampled from?
      ─► source ─► stale ─► versions ─► cache             whose tokens are apart?
      ─► trainer ─► tails ─► bias ─► precision            what is left is numerics, or not explained
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from trimtab.audit.gap import Gap, gap_of
from trimtab.audit.result import CauseVerdict, RungResult
from trimtab.audit.rungs import alignment, drawing, numerics, origins, precision, values
from trimtab.audit.rungs.drawing import with_drawn
from trimtab.audit.tempering import DrawnTemperature
from trimtab.records.saved import SavedBatch


@dataclass(frozen=True)
class Rung:
    """One cause: how it is judged, what its statistic should be, and what to do about it."""

    name: str
    title: str
    judge: Callable[[Gap, SavedBatch], RungResult]
    reference: str
    remedy: str


def _of_gap(judge: Callable[[Gap], RungResult]) -> Callable[[Gap, SavedBatch], RungResult]:
    return lambda gap, batch: judge(gap)


RUNGS = (
    Rung("shift", "Shift by a token", _of_gap(alignment.shift), "With no lag the gap is least.",
         "Align the two sides: index t is the log-prob of token t."),
    Rung("retokenised", "Text tokenised again", _of_gap(alignment.retokenised), "Both sides keep step, and the mean ratio is 1.",
         "Train on the token ids that were sampled; never decode and encode again."),
    Rung("mask", "Prompt or padding in the mask", values.mask, "Samples of a group differ from the first trained token on.",
         "Train sampled tokens only."),
    Rung("missing", "Missing or filled values", _of_gap(values.missing), "Every trained token has a log-prob of its own.",
         "Take tokens without a log-prob out of the mask; 0 means probability 1."),
    Rung("truncation", "Truncated sampling", _of_gap(drawing.truncation), "The mean ratio is 1, with ratios on both sides of it.",
         "Sample without top-p and top-k, or replay the token set."),
    Rung("temperature", "Temperature not applied", _of_gap(drawing.temperature), "ℓ does not follow from the probability itself.",
         "Divide the trainer's logits by the sampler's temperature."),
    Rung("raw", "Raw against processed log-probs", _of_gap(drawing.raw_log_probs), "Tokens were drawn as behavior says: mean ratio 1.",
         "Have the engine return processed log-probs."),
    Rung("source", "One bad engine, rank or shard", _of_gap(origins.bad_source), "All are equally far apart.",
         "Look at that engine's weights, precision and version."),
    Rung("stale", "Stale weights", _of_gap(origins.stale), "The gap does not grow with age.",
         "Real off-policy data: correct for it, or bound the staleness."),
    Rung("versions", "Versions that lie", _of_gap(origins.versions), "At one age the gap is the same at every step.",
         "Check that weights arrive: compare a checksum, or train with a learning rate of 0 and see the gap stay flat."),
    Rung("cache", "Stale or cut cache", _of_gap(origins.stale_cache), "Tokens of like probability are as far apart early as late.",
         "Reset the cache when weights change; compare with a cache that is not cut."),
    Rung("trainer", "The trainer's own noise", _of_gap(numerics.trainer), "Two scorings by the same weights agree.",
         "Score with the batch size, kernels and precision of the update; a correction cannot mend this."),
    Rung("tails", "Heavy tails, as of routing", _of_gap(numerics.tails), "Median over root mean square of |ℓ| well above 0.",
         "Replay the sampler's routing in the trainer, or reject tokens that jump."),
    Rung("bias", "A bias not explained above", _of_gap(numerics.bias), "Sequence means spread as 1/√T.",
         "Look for what these sequences share; noise would average out."),
    Rung("precision", "Low precision", _of_gap(precision.precision), "No gap beyond float32's, under 1e-4.",
         "Expected of fewer bits: raise the precision of head and router first, or correct by tokens."),
)  # fmt: skip


@dataclass(frozen=True)
class CausedStep:
    """A rung and what it said of this batch."""

    rung: Rung
    verdict: CauseVerdict
    statistic: str
    remedy: str
    lacks: str
    share: float | None
    """Of the whole gap."""


def climb(
    batch: SavedBatch, second: NDArray[Any] | None = None, drawn: DrawnTemperature | None = None
) -> list[CausedStep]:
    """Every rung in order; what a cause explains is taken off before the next is judged.

    `second` is a second scoring by the same weights, `drawn` what a model says of the temperature.
    """
    gap = gap_of(batch, second)
    whole = left = gap.size * len(gap)
    steps: list[CausedStep] = []
    for rung in RUNGS:
        found = rung.judge(gap, batch)
        if rung.name == "temperature" and drawn is not None:
            found = with_drawn(found, drawn)
        share = None if found.share is None or not whole else max(0.0, min(1.0, found.share)) * left / whole
        if found.verdict == "found" and share is not None:
            left = max(0.0, left - share * whole)
        steps.append(CausedStep(rung, found.verdict, found.statistic, found.remedy or rung.remedy, found.lacks, share))
        if found.verdict == "found" and found.rest is not None:
            gap = found.rest
    return steps
