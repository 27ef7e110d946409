# pyright: basic
"""What is decided of one row from a few numbers."""

from __future__ import annotations

from typing import no_type_check

import numpy as np

from trimtab.core.fast.machine import INFINITY, LARGEST, ZERO, f32, f64, inlined

MOST = f32(1e38)
"""A weight above is reported as this one, and left to the plain form."""


@inlined
@no_type_check
def beside_bound(bounds, lowest, highest, typical):
    """Whether the rounding of an exponential could decide: the plain form's own is 1e-7 of each log-ratio, our sums' 4e-6."""
    near = False
    for value, bound in ((lowest, bounds[0]), (highest, bounds[1])):
        if abs(bound) < INFINITY:
            near |= abs(value - bound) <= f32(4e-7) * typical + f32(8e-6) * abs(bound)
    return near


@inlined
@no_type_check
def row_weight(log, weighs, limits):
    """The log-ratio of a row within its limit, and the weight that follows."""
    if weighs[3] == 2:
        log = min(max(log, -limits[4]), limits[4])
    value = f32(np.exp(f64(log))) if log < f32(88.7) else LARGEST
    if weighs[1] == 0:
        value = min(max(value, limits[0]), limits[1])
    elif log < limits[2] or log > limits[3]:
        value = ZERO
    return log, value
