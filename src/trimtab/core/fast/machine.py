# pyright: basic
"""Numbers as the processor sees them, and how a loop becomes machine code.

A loop becomes vector instructions only where the compiler sees no branch in it, so choices are made with bits: a token is marked by a
word of ones or of zeros. Only sums may be reordered (`SUMMED`): float64 ones change by nothing above 1e-15, float32 ones run over at
most BLOCK tokens. A product and a sum may be rounded once (`CONTRACTED`) in the exponential, which no decision depends on. Extremes
go by integers, whose order is that of the floats and whose maximum needs no rule for NaN.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any, no_type_check

import numba
import numba.core.event
import numba.core.options
import numpy as np

f32, f64, i32 = np.float32, np.float64, np.int32

ZERO, ONE, HALF = f32(0), f32(1), f32(0.5)
INFINITY, LARGEST = f32(np.inf), np.finfo(np.float32).max
SIGN = i32(0x7FFFFFFF)
TOP, BOTTOM = (
    i32(0x7F800000),
    i32(-0x7F800001),
)  # +inf and −inf in order; the ends of int32 would be folded into branches
BLOCK = 1024
"""Tokens whose float32 sum keeps its digits: 16 or more partial sums, a few dozen numbers in each."""
SUMMED, CONTRACTED = {"reassoc", "contract"}, {"contract"}
FOLDER = tuple((each.name, each.stat().st_mtime_ns) for each in sorted(Path(__file__).parent.glob("*.py")))
"""The files that compiled code is made of, and when each was written."""


UNCOUNTED = {"_nrt": False} if hasattr(numba.core.options.DefaultOptions, "_nrt") else {}
"""Without counts of references: a slice costs two atomic additions with them, and a block takes a dozen."""


def compiled(*, allocates: bool = False, **options: Any) -> Any:
    """A decorator: machine code, kept on disk where a folder can be written. `allocates`: for a function that makes arrays."""
    options |= {"error_model": "numpy"} | ({} if allocates else UNCOUNTED)

    def decorate(function: Any) -> Any:
        try:
            return _by_folder(numba.njit(cache=True, **options)(function))
        except RuntimeError:  # nowhere to keep it: it is compiled in each process
            return numba.njit(**options)(function)

    return decorate


def _by_folder(function: Any) -> Any:
    """Keep machine code as long as no file of this folder changes. numba looks at a function's own, and its parts stand in others."""
    kept = getattr(getattr(function, "_cache", None), "_cache_file", None)
    if kept is not None:
        kept._source_stamp = kept._source_stamp, FOLDER
    return function


def inlined(function: Any) -> Any:
    """A decorator for parts of the pass, which become one function with their caller: each level would be optimised again."""
    return numba.njit(inline="always", error_model="numpy")(function)


class _Notice(numba.core.event.Listener):
    """Says once in a process that code is being compiled: minutes without a word on a busy machine look like a hang."""

    said = False

    def on_start(self, event: Any) -> None:
        """A function that was not found on disk."""
        if self.said or not event.data["dispatcher"].py_func.__module__.startswith("trimtab."):
            return
        self.said = True
        logging.getLogger("trimtab").warning(
            "trimtab: compiling the fast pass, once per installation (about half a minute of one core). "
            "`trimtab doctor --warm` does this beforehand; TRIMTAB_FAST=0 does without."
        )

    def on_end(self, event: Any) -> None:
        """Nothing to say."""


NOTICE = _Notice()
numba.core.event.register("numba:compile", NOTICE)


@compiled()
@no_type_check
def bits_in_order(value):
    """A float32 as an integer in the same order."""
    bits = f32(value).view(i32)
    return i32(bits ^ i32(i32(bits >> i32(31)) & SIGN))


@compiled()
@no_type_check
def float_at(order):
    """The float32 that has this place in the order."""
    return i32(order ^ i32(i32(order >> i32(31)) & SIGN)).view(f32)


@compiled()
@no_type_check
def where_marked(value, mark):
    """The value where the mark is ones, 0 where it is zeros, whatever the value is."""
    return i32(f32(value).view(i32) & mark).view(f32)


@compiled()
@no_type_check
def one_of(mark, value, other):
    """One integer where the mark is ones, the other where it is zeros."""
    return i32((value & mark) | (other & ~mark))


@compiled()
@no_type_check
def between(value, lower, upper):
    """The value within bounds; NaN is the lower one."""
    value = value if value > lower else lower
    return value if value < upper else upper
