"""Causes in the order in which they hide each other, each tested on the gap that those above leave.

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

from trimtab.audit.causes import alignment, mask, numerics, precision, sampling, sources
from trimtab.audit.causes.evidence import CauseResult, CauseVerdict
from trimtab.audit.causes.sampling import DrawnTemperature
from trimtab.audit.gap import gap_of
from trimtab.records.saved import SavedBatch


@dataclass(frozen=True)
class Cause:
    """One cause: how it is judged, what its statistic should be, and what to do about it."""

    name: str
    title: str
    judge: Callable[..., CauseResult]
    """Of the gap, and of the batch where it needs that."""
    reference: str
    remedy: str
    is_bug: bool = False
    """Whether no correction repairs it."""
    needs_batch: bool = False
    by_model: Callable[[CauseResult, DrawnTemperature], CauseResult] | None = None
    """The result in the light of the temperatures that a model finds."""


CAUSES = (
    Cause("shift", "Shift by a token", alignment.shift, "The gap is smallest without a shift.",
         "Align the two sides: index t is the log-prob of token t.", is_bug=True),
    Cause("retokenised", "Text tokenised again", alignment.retokenised, "No lag along a sequence, and a mean ratio of 1.",
         "Train on the token ids that were sampled; never decode and encode again.", is_bug=True),
    Cause("mask", "Prompt or padding in the mask", mask.mask, "Samples of a group differ from the first trained token on.",
         "Train sampled tokens only.", is_bug=True, needs_batch=True),
    Cause("missing", "Missing or filled values", mask.missing, "Every trained token has a log-prob of its own.",
         "Take tokens without a log-prob out of the mask; 0 means probability 1.", is_bug=True),
    Cause("truncation", "Truncated sampling", sampling.truncation, "The mean ratio is 1, with ratios on both sides of it.",
         "Sample without top-p and top-k, or replay the token set.", is_bug=True),
    Cause("temperature", "Temperature not applied", sampling.temperature, "ℓ does not follow from the probability itself.",
         "Divide the trainer's logits by the sampler's temperature.", is_bug=True, by_model=sampling.with_drawn),
    Cause("raw", "Raw instead of processed log-probs", sampling.raw_log_probs, "Tokens were drawn from behavior: mean ratio 1.",
         "Have the engine return processed log-probs.", is_bug=True),
    Cause("source", "One bad engine, rank or shard", sources.bad_source, "All sources are equally far apart.",
         "Look at that engine's weights, precision and version.", is_bug=True),
    Cause("stale", "Stale weights", sources.stale, "The gap does not grow with age.",
         "Real off-policy data: correct for it, or bound the staleness."),
    Cause("versions", "Wrong version stamps", sources.versions, "At one age the gap is the same at every step.",
         "Check that weights arrive: compare a checksum, or train at a learning rate of 0 and see that the gap stays flat.", is_bug=True),
    Cause("cache", "Stale or truncated KV cache", sources.stale_cache, "At equal probability, tokens are as far apart late as early.",
         "Reset the cache when weights change; compare with a cache that is not truncated.", is_bug=True),
    Cause("trainer", "The trainer's own noise", numerics.trainer, "Two scorings by the same weights agree.",
         "Score with the batch size, kernels and precision of the update; no correction fixes this.", is_bug=True),
    Cause("tails", "Heavy tails, as from expert routing", numerics.tails, "Median over root mean square of |ℓ| well above 0.",
         "Replay the sampler's routing in the trainer, or reject tokens that jump."),
    Cause("bias", "Bias not explained above", numerics.bias, "Sequence means shrink as 1/√T.",
         "Look for what these sequences share; noise would average out."),
    Cause("precision", "Low precision", precision.precision, "Root mean square of ℓ under 1e-4, as in float32.",
         "Expected at low precision: raise that of the LM head and the router first, or correct token by token."),
)  # fmt: skip


@dataclass(frozen=True)
class Diagnosis:
    """A cause with its verdict on a batch."""

    cause: Cause
    verdict: CauseVerdict
    statistic: str
    remedy: str
    lacks: str
    share: float | None
    """Of the whole gap."""


def diagnose(
    batch: SavedBatch, second: NDArray[Any] | None = None, drawn: DrawnTemperature | None = None
) -> list[Diagnosis]:
    """Every cause in order; what a cause explains is removed before the next is tested.

    `second` is a second scoring by the same weights, `drawn` the temperatures that a model finds.
    """
    gap = gap_of(batch, second)
    whole = left = gap.size * len(gap)
    steps: list[Diagnosis] = []
    for cause in CAUSES:
        result = cause.judge(gap, batch) if cause.needs_batch else cause.judge(gap)
        if cause.by_model is not None and drawn is not None:
            result = cause.by_model(result, drawn)
        share = None if result.share is None or not whole else max(0.0, min(1.0, result.share)) * left / whole
        if result.verdict == "found" and share is not None:
            left = max(0.0, left - share * whole)
        steps.append(
            Diagnosis(cause, result.verdict, result.statistic, result.remedy or cause.remedy, result.lacks, share)
        )
        if result.verdict == "found" and result.rest is not None:
            gap = result.rest
    return steps
