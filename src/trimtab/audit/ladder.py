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

from trimtab.audit.gap import gap_of
from trimtab.audit.result import CauseVerdict, RungResult
from trimtab.audit.rungs import alignment, mask, numerics, precision, sampling, sources
from trimtab.audit.rungs.sampling import DrawnTemperature
from trimtab.records.saved import SavedBatch


@dataclass(frozen=True)
class Rung:
    """One cause: how it is judged, what its statistic should be, and what to do about it."""

    name: str
    title: str
    judge: Callable[..., RungResult]
    """Of the gap, and of the batch where it needs that."""
    reference: str
    remedy: str
    is_bug: bool = False
    """Whether no correction repairs it."""
    needs_batch: bool = False
    by_model: Callable[[RungResult, DrawnTemperature], RungResult] | None = None
    """What a model's word on the temperature changes of the result."""


RUNGS = (
    Rung("shift", "Shift by a token", alignment.shift, "With no lag the gap is least.",
         "Align the two sides: index t is the log-prob of token t.", is_bug=True),
    Rung("retokenised", "Text tokenised again", alignment.retokenised, "Both sides keep step, and the mean ratio is 1.",
         "Train on the token ids that were sampled; never decode and encode again.", is_bug=True),
    Rung("mask", "Prompt or padding in the mask", mask.mask, "Samples of a group differ from the first trained token on.",
         "Train sampled tokens only.", is_bug=True, needs_batch=True),
    Rung("missing", "Missing or filled values", mask.missing, "Every trained token has a log-prob of its own.",
         "Take tokens without a log-prob out of the mask; 0 means probability 1.", is_bug=True),
    Rung("truncation", "Truncated sampling", sampling.truncation, "The mean ratio is 1, with ratios on both sides of it.",
         "Sample without top-p and top-k, or replay the token set.", is_bug=True),
    Rung("temperature", "Temperature not applied", sampling.temperature, "ℓ does not follow from the probability itself.",
         "Divide the trainer's logits by the sampler's temperature.", is_bug=True, by_model=sampling.with_drawn),
    Rung("raw", "Raw against processed log-probs", sampling.raw_log_probs, "Tokens were drawn as behavior says: mean ratio 1.",
         "Have the engine return processed log-probs.", is_bug=True),
    Rung("source", "One bad engine, rank or shard", sources.bad_source, "All are equally far apart.",
         "Look at that engine's weights, precision and version.", is_bug=True),
    Rung("stale", "Stale weights", sources.stale, "The gap does not grow with age.",
         "Real off-policy data: correct for it, or bound the staleness."),
    Rung("versions", "Versions that lie", sources.versions, "At one age the gap is the same at every step.",
         "Check that weights arrive: compare a checksum, or train with a learning rate of 0 and see the gap stay flat.", is_bug=True),
    Rung("cache", "Stale or cut cache", sources.stale_cache, "Tokens of like probability are as far apart early as late.",
         "Reset the cache when weights change; compare with a cache that is not cut.", is_bug=True),
    Rung("trainer", "The trainer's own noise", numerics.trainer, "Two scorings by the same weights agree.",
         "Score with the batch size, kernels and precision of the update; a correction cannot mend this.", is_bug=True),
    Rung("tails", "Heavy tails, as of routing", numerics.tails, "Median over root mean square of |ℓ| well above 0.",
         "Replay the sampler's routing in the trainer, or reject tokens that jump."),
    Rung("bias", "A bias not explained above", numerics.bias, "Sequence means spread as 1/√T.",
         "Look for what these sequences share; noise would average out."),
    Rung("precision", "Low precision", precision.precision, "No gap beyond float32's, under 1e-4.",
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
        found = rung.judge(gap, batch) if rung.needs_batch else rung.judge(gap)
        if rung.by_model is not None and drawn is not None:
            found = rung.by_model(found, drawn)
        share = None if found.share is None or not whole else max(0.0, min(1.0, found.share)) * left / whole
        if found.verdict == "found" and share is not None:
            left = max(0.0, left - share * whole)
        steps.append(CausedStep(rung, found.verdict, found.statistic, found.remedy or rung.remedy, found.lacks, share))
        if found.verdict == "found" and found.rest is not None:
            gap = found.rest
    return steps
