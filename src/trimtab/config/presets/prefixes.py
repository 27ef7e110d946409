"""Presets that weigh a token by what came before it."""

from __future__ import annotations

from trimtab.config.algebra import Correction, Weight
from trimtab.config.presets.preset import Preset

_PREFIX = "A Step Back: Prefix Importance Ratio Stabilizes Policy Optimization, arXiv 2601.22718"


def _prefix_tis(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(weight=Weight(level="prefix", lower=lower, upper=upper))


def _least_prefix(upper: float | None = 2.0, lower: float | None = None) -> Correction:
    return Correction(weight=Weight(level="least_prefix", lower=lower, upper=upper))


PREFIXES = (
    Preset(
        "prefix-tis",
        _prefix_tis,
        "Each token is weighted by the product of the ratios up to itself, truncated at `upper`: the exact per-decision weight.",
        _PREFIX,
        numbers="`upper` is that of token-tis; the paper has the product without a bound",
    ),
    Preset(
        "minpro",
        _least_prefix,
        "Each token is weighted by its ratio times the least ratio before it, truncated at `upper`.",
        _PREFIX,
        numbers="`upper` is that of token-tis",
    ),
)
