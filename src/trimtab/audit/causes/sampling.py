"""Whether the log-probs are those of the distribution that tokens were drawn from: truncation, temperature, raw against processed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trimtab.audit.causes.evidence import NO_GAP, CauseResult, mean_with_error
from trimtab.audit.gap import Floats, Gap, Ints
from trimtab.records.saved import SavedBatch

LIKENESS = 0.45
"""Share of the variance of ℓ that a temperature has to explain."""
SAMPLE = 40_000
SAME_POLICY = 0.01
"""Mean k2 up to which surprisal under the trainer may be compared with the trainer's entropy."""
TEMPERATURES = np.round(np.concatenate([np.arange(0.3, 1.0, 0.02), np.arange(1.02, 2.02, 0.02)]), 2)
ALTERNATIVES = (1.5, 3.0, 6.0, 15.0)
"""Tokens over which the rest of the mass spreads, about."""
MARGIN = 0.1
"""What a power fitted on tokens one by one is good to: how the rest of the mass spreads is not known. Off by up to 0.06 where planted."""
FEWEST_FELLOWS = 20
"""Tokens with a fellow behind the same beginning under which no power is fitted on them."""


def truncation(gap: Gap) -> CauseResult:
    """Tokens drawn from the likeliest only: the ratio is the mass that was kept where log-probs are renormalised over those, and where
    they are of the full softmax tokens are likelier than their distribution has them."""
    unlikely = _missing_surprisal(gap)
    if unlikely is not None:
        return unlikely
    if not gap.is_open:
        return NO_GAP
    mean, error = mean_with_error(np.exp(gap.held), gap.sequence)
    real = np.abs(gap.log_r) > 0.02 * gap.rms
    above = float((gap.log_r[real] > 0).mean()) if real.any() else 0.5
    least = float(np.exp(np.quantile(gap.held, 0.01)))
    statistic = (
        f"The mean ratio is {mean:.4f} ± {error:.4f}, and {above:.1%} of the tokens that differ have a ratio above 1; the "
        f"1st percentile is {least:.2f}."
    )
    positive = 2 * float(gap.k2[gap.log_r > 0].sum()) / max(float(gap.k2.sum()), 1e-300)
    if mean < 1 - max(6 * error, 2e-3) and (above < 0.05 or positive < 0.02):
        rest = replace(gap, log_r=np.where(gap.log_r < 0, 0.0, gap.log_r), blurred=True)
        return CauseResult(
            verdict="found",
            statistic=statistic,
            share=1 - min(1.0, positive),
            rest=rest,
            remedy=f"Sample without top-p, top-k or min-p, or replay the sampler's token set in the trainer: it keeps {mean:.1%}.",
        )
    doubtful = mean < 1 - max(5 * error, 2e-3) and above < 0.2
    return CauseResult(verdict="suspected" if doubtful else "ruled out", statistic=statistic)


def _missing_surprisal(gap: Gap) -> CauseResult | None:
    """Mean surprisal of the tokens against mean entropy, which are equal for tokens of the whole distribution; None where they are.

    p = (1/2, 1/4, 1/4): entropy 1.04. Of the first two alone, drawn 2 : 1: surprisal 2/3 · 0.69 + 1/3 · 1.39 = 0.92, so −0.12.
    """
    known = None if gap.entropy is None else np.isfinite(gap.entropy)
    if gap.entropy is None or known is None or not known.any():
        return None
    missing = -gap.scored[known] - gap.entropy[known]
    mean, error = mean_with_error(missing, gap.sequence[known])
    is_apart = gap.size > SAME_POLICY or abs(float(np.exp(gap.held).mean()) - 1) > 5e-3
    if is_apart or mean > -max(6 * error, 2 * gap.rms, 5e-3):
        return None  # a gap has causes of its own, and the entropy of the sampler is another
    return CauseResult(
        verdict="found",
        statistic=(
            f"Mean surprisal is {-mean:.3f} ± {error:.3f} below the mean entropy of {gap.entropy[known].mean():.3f}, at a ratio of 1."
        ),
        remedy=(
            "Tokens come from a part of the vocabulary while both log-probs run over all of it, as SGLang records them: sample without "
            "top-p, top-k or min-p, or replay the sampler's token set. No correction can see this."
        ),
    )


@dataclass(frozen=True)
class TemperatureFit:
    """The temperature that turns one side into the other best."""

    value: float
    explained: float
    """Share of the variance of ℓ."""
    fitted: Floats
    error: float | None = None
    """Standard error of a value that samples with one beginning show; None where it is fitted on tokens one by one."""

    @property
    def words(self) -> str:
        """The value with what it is good to."""
        if self.error is None:
            return f"between {max(self.value - MARGIN, 0.05):.2g} and {self.value + MARGIN:.2g}"
        return f"{self.value:.3g}" if 2 * self.error < 0.005 else f"{self.value:.2f} ± {2 * self.error:.1g}"


def temperature_shift(log_probs: Floats, temperature: float, alternatives: float) -> Floats:
    """log(p^T / Σ p^T) less log p, where the rest of the mass lies evenly on so many tokens.

    p = 1/2, T = 2, one alternative of 1/2: p² / Σ p² is 1/2 again, so 0. p = 0.9: 0.81 / 0.82 = 0.988, so 0.093.
    """
    rest = np.log(np.maximum(-np.expm1(np.minimum(log_probs, -1e-9)), 1e-12))
    others = temperature * (rest - np.log(alternatives)) + np.log(alternatives)
    own = temperature * log_probs
    return own - np.logaddexp(own, others) - log_probs


def temperature_fit(log_probs: Floats, apart: Floats) -> TemperatureFit:
    """The best of a grid of temperatures."""
    stride = max(1, len(apart) // SAMPLE)
    x, y = log_probs[::stride], apart[::stride]
    total = max(float((y**2).sum()), 1e-300)
    best = (0.0, 1.0, 2.0)
    for temperature in TEMPERATURES.tolist():
        for alternatives in ALTERNATIVES:
            explained = 1 - float(((y - temperature_shift(x, temperature, alternatives)) ** 2).sum()) / total
            best = max(best, (explained, temperature, alternatives))
    return TemperatureFit(best[1], best[0], temperature_shift(log_probs, best[1], best[2]))


def shared_power(log_probs: Floats, apart: Floats, context: Ints | None) -> tuple[float, float] | None:
    """The power that turns one side into the other, by tokens behind one beginning, with its standard error; None where few are.

    Behind one beginning both sides are normalised by one number each, which falls out of differences: log p' − log p" = power ·
    (log q' − log q"), whatever the rest of the mass does. Two tokens with log q of −1 and −3 and log p of −0.8 and −2.2: 1.4 / 2 = 0.7.
    """
    if context is None:
        return None
    _, number, count = np.unique(context, return_inverse=True, return_counts=True)
    used = (context >= 0) & (count[number] > 1)
    x, y, own, many = log_probs[used], (log_probs + apart)[used], number[used], np.maximum(count, 1)
    x, y = (each - (np.bincount(own, each, len(count)) / many)[own] for each in (x, y))
    total = float((x**2).sum())
    if int((np.abs(x) > 1e-6).sum()) < FEWEST_FELLOWS or total <= 0:
        return None
    power = float((x * y).sum()) / total
    error = float(np.sqrt((np.bincount(own, x * (y - power * x), len(count)) ** 2).sum())) / total
    return power, error


def _with_shared(fit: TemperatureFit, log_probs: Floats, apart: Floats, context: Ints | None) -> TemperatureFit:
    """The fit with the power that samples with one beginning show, where they show it better than tokens one by one."""
    shared = shared_power(log_probs, apart, context)
    if shared is None or 2 * shared[1] > MARGIN or abs(shared[0] - fit.value) > 3 * MARGIN:
        return fit
    return replace(fit, value=shared[0], error=shared[1])


def _tells_behavior(gap: Gap) -> bool:
    """Whether tokens were drawn as behavior says (mean ratio 1) rather than as the trainer says (mean inverse ratio 1)."""
    forward, error = mean_with_error(np.exp(gap.held), gap.sequence)
    backward, other = mean_with_error(np.exp(-gap.held), gap.sequence)
    return abs(forward - 1) / max(error, 1e-9) <= abs(backward - 1) / max(other, 1e-9)


def leaves_temperature_out(gap: Gap, fit: TemperatureFit) -> bool:
    """Whether behavior is the trainer's log-probs raised to a power and tokens were drawn as the trainer says. `fit`: of −ℓ on scored."""
    return fit.explained >= LIKENESS and not _tells_behavior(gap)


def temperature(gap: Gap) -> CauseResult:
    """The sampler divides its logits by a temperature and the trainer does not, or by another."""
    if not gap.is_open:
        return NO_GAP
    fit = temperature_fit(gap.behavior, gap.held)
    statistic = f"Behavior raised to the power {fit.value:g} explains {max(fit.explained, 0):.0%} of the gap."
    if fit.explained < LIKENESS or not _tells_behavior(gap):
        doubt = fit.explained > 0.3 and _tells_behavior(gap)
        return CauseResult(verdict="suspected" if doubt else "ruled out", statistic=statistic)
    rest = replace(gap, log_r=gap.log_r - fit.fitted, blurred=True)
    fit = _with_shared(fit, gap.behavior, gap.log_r, gap.context)
    return CauseResult(
        verdict="found",
        statistic=f"Behavior raised to a power explains {fit.explained:.0%} of the gap; {_origin(fit)}.",
        share=fit.explained,
        rest=rest,
        remedy=f"Divide the trainer's logits by the sampler's temperature, {fit.words} times the trainer's own.",
    )


def _origin(fit: TemperatureFit) -> str:
    """How well the power is known, and by what."""
    if fit.error is None:
        return f"the power is {fit.words}, estimated token by token: no samples share a beginning, which would narrow it down"
    return f"by samples that share a beginning, the power is {fit.words}"


def with_drawn(found: CauseResult, by_model: DrawnTemperature) -> CauseResult:
    """The result with what a model says: a temperature that neither side applies leaves no gap, only unlikely tokens."""
    statistic = (
        f"{found.statistic} By the model, tokens were drawn at temperature {by_model.drawn:.2f}, and behavior is reported for "
        f"{by_model.reported:g} ({by_model.z:.1f} standard errors apart)."
    )
    if found.verdict == "found" or not by_model.is_apart:
        return replace(found, statistic=statistic)
    return replace(
        found,
        verdict="found",
        statistic=statistic,
        share=None,
        remedy=(
            f"Tokens were drawn at a temperature of about {by_model.drawn:.2f} that behavior leaves out: have the engine report log-probs "
            "at that temperature."
        ),
    )


def raw_log_probs(gap: Gap) -> CauseResult:
    """The sampler reports log-probs before its temperature; tokens were drawn as the trainer says, not as behavior does."""
    if not gap.is_open:
        return NO_GAP
    fit = temperature_fit(gap.scored, -gap.held)
    mean, error = mean_with_error(np.exp(-gap.held), gap.sequence)
    statistic = (
        f"The mean inverse ratio is {mean:.3f} ± {error:.3f}; the trainer's log-probs raised to the power {fit.value:g} explain "
        f"{max(fit.explained, 0):.0%} of the gap."
    )
    if gap.blurred or not leaves_temperature_out(gap, fit):
        return CauseResult(verdict="ruled out", statistic=statistic)
    rest = replace(gap, log_r=gap.log_r + fit.fitted, blurred=True)
    fit = _with_shared(fit, gap.scored, -gap.log_r, gap.context)
    return CauseResult(
        verdict="found",
        statistic=(
            f"The mean inverse ratio is {mean:.3f} ± {error:.3f}; the trainer's log-probs raised to a power explain "
            f"{fit.explained:.0%} of the gap; {_origin(fit)}."
        ),
        share=fit.explained,
        rest=rest,
        remedy=(
            "Have the engine return processed log-probs (vLLM: logprobs_mode=processed_logprobs); it samples at a temperature "
            f"{fit.words} times that of the log-probs it returns."
        ),
    )


GRID = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.35, 1.6)
PROBED_SEQUENCES = 64
"""Sequences that are looked at."""


@dataclass(frozen=True)
class DrawnTemperature:
    """Temperatures by the model that scored."""

    drawn: float
    """Under which the tokens are likeliest."""
    reported: float
    """Under which the model's log-probs are nearest to behavior."""
    z: float
    """Standard errors between the likelihoods of the two."""

    @property
    def is_apart(self) -> bool:
        """Whether tokens were drawn with another temperature than behavior says, beyond chance and beyond the grid."""
        return self.z > 5 and abs(np.log(self.drawn / self.reported)) > 0.05


def drawn_temperature(batch: SavedBatch, log_probs: NDArray[np.float32]) -> DrawnTemperature | None:
    """The two temperatures, from log-probs `[GRID, tokens]` of the batch's tokens; None where there is nothing to go by."""
    if batch.behavior is None or not batch.trained.any():
        return None
    scores = log_probs.astype(np.float64)
    used = batch.trained & np.isfinite(batch.behavior) & np.isfinite(scores).all(0)
    if used.sum() < 100:
        return None
    scores, behavior, sequence = scores[:, used], batch.behavior[used].astype(np.float64), batch.sequence[used]
    reported = int(np.argmin(np.median(np.abs(scores - behavior), axis=1)))
    likelihood = scores.mean(1)
    best = int(np.argmax(likelihood))
    gain, error = mean_with_error(scores[best] - scores[reported], sequence)
    return DrawnTemperature(_between(likelihood, best), GRID[reported], gain / max(error, 1e-12))


def _between(likelihood: Floats, best: int) -> float:
    """The top of the parabola through the best of the grid and its neighbours, over log T."""
    if best in (0, len(GRID) - 1):
        return GRID[best]
    x = np.log(np.array(GRID[best - 1 : best + 2]))
    curve = np.polyfit(x, likelihood[best - 1 : best + 2], 2)
    return float(np.exp(np.clip(-curve[1] / (2 * curve[0]), x[0], x[2]))) if curve[0] < 0 else GRID[best]
