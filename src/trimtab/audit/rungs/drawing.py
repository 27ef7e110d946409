"""Whether the log-probs are those of the distribution that tokens were drawn from: truncation, temperature, raw against processed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from trimtab.audit.gap import Floats, Gap
from trimtab.audit.result import NOTHING, RungResult
from trimtab.audit.statistics import mean_with_error
from trimtab.audit.tempering import DrawnTemperature

LIKENESS = 0.45
"""Share of the variance of ℓ that a temperature has to explain."""
SAMPLE = 40_000
TEMPERATURES = np.round(np.concatenate([np.arange(0.3, 1.0, 0.02), np.arange(1.02, 2.02, 0.02)]), 2)
ALTERNATIVES = (1.5, 3.0, 6.0, 15.0)
"""Tokens over which the rest of the mass spreads, about."""


def truncation(gap: Gap) -> RungResult:
    """Tokens drawn from the likeliest only, their log-probs renormalised over those: the ratio is the mass that was kept."""
    if not gap.is_open:
        return NOTHING
    mean, error = mean_with_error(np.exp(gap.held), gap.sequence)
    real = np.abs(gap.log_r) > 0.02 * gap.rms
    above = float((gap.log_r[real] > 0).mean()) if real.any() else 0.5
    least = float(np.exp(np.quantile(gap.held, 0.01)))
    told = (
        f"The mean ratio is {mean:.4f} ± {error:.4f}, and of the tokens that differ {above:.1%} have one above 1; the lowest "
        f"hundredth begins at {least:.2f}."
    )
    positive = 2 * float(gap.k2[gap.log_r > 0].sum()) / max(float(gap.k2.sum()), 1e-300)
    if mean < 1 - max(6 * error, 2e-3) and (above < 0.05 or positive < 0.02):
        rest = replace(gap, log_r=np.where(gap.log_r < 0, 0.0, gap.log_r), blurred=True)
        return RungResult(
            verdict="found",
            statistic=told,
            share=1 - min(1.0, positive),
            rest=rest,
            remedy=f"Sample without top-p, top-k or min-p, or replay the sampler's token set in the trainer: it keeps {mean:.1%}.",
        )
    doubtful = mean < 1 - max(5 * error, 2e-3) and above < 0.2
    return RungResult(verdict="suspected" if doubtful else "ruled out", statistic=told)


@dataclass(frozen=True)
class TemperatureFit:
    """The temperature that turns one side into the other best."""

    value: float
    explained: float
    """Share of the variance of ℓ."""
    fitted: Floats


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


def _tells_behavior(gap: Gap) -> bool:
    """Whether tokens were drawn as behavior says (mean ratio 1) rather than as the trainer says (mean inverse ratio 1)."""
    forward, error = mean_with_error(np.exp(gap.held), gap.sequence)
    backward, other = mean_with_error(np.exp(-gap.held), gap.sequence)
    return abs(forward - 1) / max(error, 1e-9) <= abs(backward - 1) / max(other, 1e-9)


def temperature(gap: Gap) -> RungResult:
    """The sampler divides its logits by a temperature and the trainer does not, or by another."""
    if not gap.is_open:
        return NOTHING
    fit = temperature_fit(gap.behavior, gap.held)
    told = f"Behavior raised to the power {fit.value:g} explains {max(fit.explained, 0):.0%} of the gap."
    if fit.explained < LIKENESS or not _tells_behavior(gap):
        doubt = fit.explained > 0.3 and _tells_behavior(gap)
        return RungResult(verdict="suspected" if doubt else "ruled out", statistic=told)
    rest = replace(gap, log_r=gap.log_r - fit.fitted, blurred=True)
    return RungResult(
        verdict="found",
        statistic=told,
        share=fit.explained,
        rest=rest,
        remedy=f"Divide the trainer's logits by the sampler's temperature, about {fit.value:g} times the trainer's own.",
    )


def with_drawn(found: RungResult, by_model: DrawnTemperature) -> RungResult:
    """The result with what a model says: a temperature that neither side applies leaves no gap, only unlikely tokens."""
    told = (
        f"{found.statistic} By the model, tokens were drawn at {by_model.drawn:.2f} and behavior is reported for "
        f"{by_model.reported:g} ({by_model.z:.1f} standard errors)."
    )
    if found.verdict == "found" or not by_model.is_apart:
        return replace(found, statistic=told)
    return replace(
        found,
        verdict="found",
        statistic=told,
        share=None,
        remedy=f"Tokens were drawn at a temperature of about {by_model.drawn:.2f} that behavior leaves out: have it reported with it.",
    )


def raw_log_probs(gap: Gap) -> RungResult:
    """The sampler reports log-probs before its temperature; tokens were drawn as the trainer says, not as behavior does."""
    if not gap.is_open:
        return NOTHING
    fit = temperature_fit(gap.scored, -gap.held)
    mean, error = mean_with_error(np.exp(-gap.held), gap.sequence)
    told = (
        f"The mean inverse ratio is {mean:.3f} ± {error:.3f}; the trainer's log-probs raised to the power {fit.value:g} explain "
        f"{max(fit.explained, 0):.0%} of the gap."
    )
    if gap.blurred or fit.explained < LIKENESS or _tells_behavior(gap):
        return RungResult(verdict="ruled out", statistic=told)
    rest = replace(gap, log_r=gap.log_r + fit.fitted, blurred=True)
    return RungResult(
        verdict="found",
        statistic=told,
        share=fit.explained,
        rest=rest,
        remedy=f"Have the engine return processed log-probs (vLLM: logprobs_mode=processed_logprobs); it samples at about {fit.value:g}.",
    )
