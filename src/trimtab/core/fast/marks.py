# pyright: basic
"""Indicators and bounds over a chunk, one loop each, for rules that have to look at every token again.

Loops read some arrays and write others, never one in place: a compiler that cannot rule out an overlap works number by number.
"""

from __future__ import annotations

from typing import no_type_check

from trimtab.core.fast.machine import ONE, ZERO, compiled, i32, where_marked


@compiled()
@no_type_check
def as_marks(flags, out):
    """Booleans as an indicator."""
    for i in range(len(out)):
        out[i] = where_marked(ONE, -i32(flags[i]))


@compiled()
@no_type_check
def as_bytes(here, out):
    """An indicator as booleans."""
    for i in range(len(out)):
        out[i] = here[i] > ZERO


@compiled()
@no_type_check
def narrow(inside, marks):
    """Take what is not inside out of an indicator."""
    for i in range(len(marks)):
        marks[i] = marks[i] if inside[i] > ZERO else ZERO


@compiled()
@no_type_check
def times(left, right, out):
    """The product."""
    for i in range(len(out)):
        out[i] = left[i] * right[i]


@compiled()
@no_type_check
def all_times(one, two, three, out):
    """The product of three."""
    for i in range(len(out)):
        out[i] = one[i] * two[i] * three[i]


@compiled()
@no_type_check
def held(value, bound, out):
    """The value within ±bound."""
    for i in range(len(out)):
        v = value[i]
        v = v if v < bound else bound
        out[i] = v if v > -bound else -bound


@compiled()
@no_type_check
def bound_between(value, lower, upper, out):
    """The value within bounds."""
    for i in range(len(out)):
        v = value[i] if value[i] > lower else lower
        out[i] = v if v < upper else upper


@compiled()
@no_type_check
def zero_beyond(value, x, lower, upper, out):
    """The value where x lies within bounds, 0 elsewhere."""
    for i in range(len(out)):
        out[i] = value[i] if (x[i] >= lower) & (x[i] <= upper) else ZERO


@compiled()
@no_type_check
def mark_inside(x, lower, upper, out):
    """1 where x lies within bounds, 0 elsewhere."""
    for i in range(len(out)):
        out[i] = ONE if (x[i] >= lower) & (x[i] <= upper) else ZERO
