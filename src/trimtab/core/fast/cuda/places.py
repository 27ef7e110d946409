"""Where numbers stand in the record of a row, in float64: sums | extremes | numbers | means | squares. A batch has one like it.

Sums are added up over rows, of extremes the greatest is taken (a least value stands there with its sign turned). What is described by
mean, deviation and ends (the ratio, the weight, the weight before its bounds, what each gate measured) has a number, a mean and a sum
of squares around that mean, which `fold.py` merges without losing digits.
"""

from __future__ import annotations

import triton.language as tl

MISSING = tl.constexpr(0)  # masked in, without log-probs
MASKED = tl.constexpr(1)
TRAINED = tl.constexpr(2)
KEPT = tl.constexpr(3)
POSITIVE = tl.constexpr(4)  # a log-prob above 0, beyond rounding
PARTIAL = tl.constexpr(5)  # a mask of neither 0 nor 1
WEIGHED = tl.constexpr(6)
ABOVE = tl.constexpr(7)  # a raw weight beyond the upper bound
BELOW = tl.constexpr(8)
KL = tl.constexpr(9)  # Σ −ℓ
KL_REVERSE = tl.constexpr(10)  # Σ r·ℓ, ℓ within ±20 here and wherever it is exponentiated
K3 = tl.constexpr(11)
K3_REVERSE = tl.constexpr(12)
CHI2 = tl.constexpr(13)  # Σ r² − 1
DISTANCE = tl.constexpr(14)  # Σ |ℓ|
PROBABILITY = tl.constexpr(15)  # Σ |p − q|
ROWS = tl.constexpr(16)  # with tokens
ROWS_KEPT = tl.constexpr(17)
PERPLEXITY = tl.constexpr(
    18
)  # of behavior, of the target, their ratio, the difference of their logarithms, and its size
CHI2_ROW = tl.constexpr(23)
TOKEN_SUMS = tl.constexpr(24)

GATE_SUMS = tl.constexpr(6)  # tokens, lost, high, low, rows, rows lost whole

FAR = tl.constexpr(0)  # |ℓ|
APART = tl.constexpr(1)  # |p − q|
LOG_DIFF = tl.constexpr(2)  # of perplexities: the greatest, and minus the least
TOKEN_TOPS = tl.constexpr(4)

RATIO = tl.constexpr(0)
WEIGHT = tl.constexpr(1)
RAW = tl.constexpr(2)
GATE = tl.constexpr(3)  # the first of them


def record_sizes(gates: int) -> tuple[int, int, int]:
    """How many sums, extremes and descriptions a rule with so many gates has."""
    described = GATE.value + gates
    return TOKEN_SUMS.value + GATE_SUMS.value * gates, TOKEN_TOPS.value + 2 * described, described


def columns(gates: int) -> int:
    """Numbers in a record."""
    sums, tops, described = record_sizes(gates)
    return sums + tops + 3 * described
