"""An estimate and the values that the data do not rule out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import InputError

Numbers = NDArray[np.float64]
RESAMPLES = 9999
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Interval:
    """An estimate with its bounds."""

    estimate: float
    lower: float
    upper: float
    level: float
    """Confidence of the two bounds together: 0.95."""


def bootstrap_interval(values: Numbers, level: float = 0.95, *, resamples: int = RESAMPLES, seed: int = 0) -> Interval:
    """The mean of `values` with its bias-corrected and accelerated (BCa) bootstrap interval.

    Efron 1987: percentiles of the means of resamples, shifted by z₀ (how many of them lie under the mean) and by the acceleration
    a (the skew of the means with one value left out). Two values or more; where all are equal, the interval is that value. With
    few values it is too short (eight normal ones: 89 % for 95 %), so a decision asks `sign_flip_p` too.
    """
    values = _checked(values, 2, "bootstrap_interval")
    mean = float(values.mean())
    if bool((values == values[0]).all()):
        return Interval(float(values[0]), float(values[0]), float(values[0]), level)
    drawn = np.random.default_rng(seed).integers(0, len(values), (resamples, len(values)))
    means = values[drawn].mean(axis=1)
    normal = NormalDist()
    slack = _ROUNDING * float(
        np.abs(values).max()
    )  # resamples with the very mean are many where runs fall or stand; they count half
    under = (float((means < mean - slack).mean()) + float((means <= mean + slack).mean())) / 2
    z0 = normal.inv_cdf(min(max(under, 0.5 / resamples), 1 - 0.5 / resamples))
    a = acceleration(values)
    tail = normal.inv_cdf((1 - level) / 2)
    shares = [normal.cdf(z0 + (z0 + z) / (1 - a * (z0 + z))) for z in (tail, -tail)]
    lower, upper = np.quantile(means, shares)
    return Interval(mean, float(lower), float(upper), level)


def acceleration(values: Numbers) -> float:
    """a of BCa for a mean: Σd³ / 6(Σd²)^1.5, where d is the mean less each value, over n − 1 (what leaving it out changes)."""
    # 0, 0, 3: leaving each out gives 1.5, 1.5, 0, of mean 1; d = −.5, −.5, 1; a = .75 / (6 · 1.5^1.5) = 0.068.
    left_out = (values.sum() - values) / (len(values) - 1)
    d = left_out.mean() - left_out
    squares = float((d**2).sum())
    return 0.0 if squares == 0 else float((d**3).sum()) / (6 * squares**1.5)


def binomial_interval(hits: int, tries: int, level: float = 0.95) -> Interval:
    """A share with its Clopper–Pearson interval: exact, and at 0 of n or n of n still longer than nothing."""
    if not 0 <= hits <= tries or tries < 1:
        raise InputError(f"binomial_interval needs 0 <= hits <= tries and a try, got {hits} of {tries}.")
    tail = (1 - level) / 2
    lower = 0.0 if hits == 0 else _bisect(lambda p: 1 - _binomial_cdf(hits - 1, tries, p) - tail)
    upper = 1.0 if hits == tries else _bisect(lambda p: tail - _binomial_cdf(hits, tries, p))
    return Interval(hits / tries, lower, upper, level)


def _binomial_cdf(most: int, tries: int, p: float) -> float:
    return math.fsum(math.comb(tries, k) * p**k * (1 - p) ** (tries - k) for k in range(most + 1))


def _bisect(rising: Callable[[float], float]) -> float:
    """Where a rising function of a share is 0."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return (low + high) / 2


def _checked(values: Numbers, least: int, who: str) -> Numbers:
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or len(found) < least or not bool(np.isfinite(found).all()):
        raise InputError(
            f"{who} needs {least} or more finite numbers in a row, got {found.size} values of shape {found.shape}."
        )
    return found
