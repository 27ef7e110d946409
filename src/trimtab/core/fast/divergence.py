# pyright: basic
"""The divergences of a chunk's tokens, by the code of `program.py`."""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.exponential import exponentials
from trimtab.core.fast.machine import HALF, ONE, compiled
from trimtab.core.fast.marks import times


@compiled()
@no_type_check
def scaled(x, factor, out):
    """x times a number."""
    for i in range(len(out)):
        out[i] = x[i] * factor


@compiled()
@no_type_check
def scaled_square(x, factor, out):
    """x² times a number."""
    for i in range(len(out)):
        out[i] = x[i] * x[i] * factor


@compiled()
@no_type_check
def magnitude(x, out):
    """|x|."""
    for i in range(len(out)):
        out[i] = abs(x[i])


@compiled()
@no_type_check
def divergence(metric, x, here, one, two, three, out):
    """A divergence of each token into `out`, by its code; the numbered arrays are scratch. mult_prob_error is 0 outside `here`."""
    if metric < 3:  # ratio and k1, forward and reverse
        scaled(x, -ONE if metric == 1 else ONE, out)
    elif metric < 5:  # k2, second moment
        scaled_square(x, HALF if metric == 3 else ONE, out)
    elif metric == 5:  # abs log ratio
        magnitude(x, out)
    else:
        _exponential_divergence(metric, x, here, one, two, three, out)


@compiled()
@no_type_check
def _exponential_divergence(metric, x, here, one, two, three, out):
    if metric == 8 or metric == 10:  # k3 max, mult prob error
        magnitude(x, two)
    else:  # k3 reverse; k3 forward, ratio deviation
        scaled(x, -ONE if metric == 7 else ONE, two)
    exponentials(two, one, out, three)
    if metric == 9:
        magnitude(one, out)
    elif metric == 10:
        times(three, here, out)
