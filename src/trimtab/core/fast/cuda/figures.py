# pyright: basic
"""The metrics of a correction from the record of its batch: the names and meanings of `core/measures.py`, in one kernel.

A metric is a row of a table: a sum over another, a count, an extreme, or a description (mean, deviation, ends, effective share).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import no_type_check

import triton
import triton.language as tl

from trimtab.config.algebra import Correction
from trimtab.core.fast.cuda import places
from trimtab.core.fast.cuda.numbers import LARGEST
from trimtab.core.fast.cuda.places import KEPT, ROWS, TOKEN_TOPS, TRAINED
from trimtab.core.observe import gate_name

QUOTIENTS = {
    "missing_fraction": (places.MISSING, places.MASKED),
    "kept_fraction": (KEPT, TRAINED),
    "kept_sequence_fraction": (places.ROWS_KEPT, ROWS),
    "positive_fraction": (places.POSITIVE, TRAINED),
    "partial_fraction": (places.PARTIAL, TRAINED),
    "drift/kl": (places.KL, TRAINED),
    "drift/kl_reverse": (places.KL_REVERSE, TRAINED),
    "drift/k3": (places.K3, TRAINED),
    "drift/k3_reverse": (places.K3_REVERSE, TRAINED),
    "drift/chi2_token": (places.CHI2, TRAINED),
    "drift/abs_log_r": (places.DISTANCE, TRAINED),
    "drift/prob_diff": (places.PROBABILITY, TRAINED),
    "drift/chi2_sequence": (places.CHI2_ROW, ROWS),
}
PERPLEXITIES = ("behavior", "target", "ratio", "log_diff", "log_diff_abs")
TOUCHED = {"weight/touched_high": places.ABOVE, "weight/touched_low": places.BELOW}
COUNTS = {"tokens": TRAINED, "sequences": ROWS}
TOPS = {
    "drift/abs_log_r_max": (places.FAR, 1),
    "drift/prob_diff_max": (places.APART, 1),
    "perplexity/log_diff_max": (places.LOG_DIFF, 1),
    "perplexity/log_diff_min": (places.LOG_DIFF.value + 1, -1),
}
"""The place of each, and its sign."""
PARTS = ("mean", "std", "min", "max")


@dataclass(frozen=True)
class FigurePlan:
    """The metrics of a rule, in the order in which the kernel writes them, and where it finds what they are made of."""

    names: tuple[str, ...]
    quotients: tuple[tuple[int, int], ...]
    counts: tuple[int, ...]
    tops: tuple[tuple[int, int], ...]
    described: tuple[int, ...]
    shares: tuple[int, ...]


def figure_plan(rule: Correction) -> FigurePlan:
    """Every metric of a rule but its quantiles."""
    gates = {
        gate_name(index, gate): places.GATE_SUMS.value * index + places.TOKEN_SUMS.value
        for index, gate in enumerate(rule.gates)
    }
    quotients = {name: (_at(over), _at(under)) for name, (over, under) in QUOTIENTS.items()}
    quotients |= {
        f"perplexity/{name}": (_at(places.PERPLEXITY) + place, _at(ROWS)) for place, name in enumerate(PERPLEXITIES)
    }
    if rule.weighs:
        quotients |= {name: (_at(place), _at(places.WEIGHED)) for name, place in TOUCHED.items()}
    for name, first in gates.items():
        sides = {"rejected_tokens": (1, 0), "high_tokens": (2, 0), "low_tokens": (3, 0), "rejected_sequences": (5, 4)}
        quotients |= {f"{name}/{part}": (first + over, first + under) for part, (over, under) in sides.items()}
    described = {"ratio/": places.RATIO.value, "weight/": places.WEIGHT.value}
    described |= {"weight/raw_": places.RAW.value} if rule.weighs else {}
    shares = [which for prefix, which in described.items() if prefix != "ratio/"]
    effective = [f"{prefix}ess" for prefix in described if prefix != "ratio/"]
    described |= {f"{name}/": places.GATE.value + index for index, name in enumerate(gates)}
    parts = [f"{prefix}{part}" for prefix in described for part in PARTS]
    return FigurePlan(
        names=(*quotients, *COUNTS, *TOPS, *parts, *effective, "all_rejected"),
        quotients=tuple(quotients.values()),
        counts=tuple(_at(place) for place in COUNTS.values()),
        tops=tuple((_at(place), sign) for place, sign in TOPS.values()),
        described=tuple(described.values()),
        shares=tuple(shares),
    )


def _at(place: int | tl.constexpr) -> int:
    return place.value if isinstance(place, tl.constexpr) else place


@triton.jit
@no_type_check
def write_figures(
    record,
    out,
    quotients: tl.constexpr,
    counts: tl.constexpr,
    tops: tl.constexpr,
    described: tl.constexpr,
    shares: tl.constexpr,
    sums: tl.constexpr,
    first: tl.constexpr,
    count: tl.constexpr,
):
    """Write each metric of a plan. `sums`: where extremes begin, `first`: where descriptions do, of which there are `count`."""
    for k in tl.static_range(len(quotients)):
        _put(out + k, _quotient(tl.load(record + quotients[k][0]), tl.load(record + quotients[k][1])))
    out += len(quotients)
    for k in tl.static_range(len(counts)):
        _put(out + k, tl.load(record + counts[k]))
    out += len(counts)
    rows = tl.load(record + ROWS)
    for k in tl.static_range(len(tops)):
        _put(out + k, tl.where(rows > 0, tl.load(record + sums + tops[k][0]) * tops[k][1], 0.0))
    out += len(tops)
    for k in tl.static_range(len(described)):
        _put_described(out + 4 * k, record, described[k], sums, first, count)
    out += 4 * len(described)
    for k in tl.static_range(len(shares)):
        number, mean = tl.load(record + first + shares[k]), tl.load(record + first + count + shares[k])
        square = _quotient(tl.load(record + first + 2 * count + shares[k]), number) + mean * mean
        _put(out + k, _quotient(number * mean * mean, square * tl.load(record + TRAINED)))
    _put(out + len(shares), (tl.load(record + KEPT) == 0).to(tl.float64))


@triton.jit
@no_type_check
def _put_described(out, record, which: tl.constexpr, sums: tl.constexpr, first: tl.constexpr, count: tl.constexpr):
    """Mean, deviation, least and greatest; 0 where there is nothing."""
    number = tl.load(record + first + which)
    tops = record + sums + TOKEN_TOPS + 2 * which
    _put(out, tl.where(number > 0, tl.load(record + first + count + which), 0.0))
    _put(out + 1, tl.sqrt(_quotient(tl.load(record + first + 2 * count + which), number)))
    _put(out + 2, tl.where(number > 0, -tl.load(tops + 1), 0.0))
    _put(out + 3, tl.where(number > 0, tl.load(tops), 0.0))


@triton.jit
@no_type_check
def _quotient(total, number):
    """A mean that is 0 where there is nothing to average."""
    return tl.where(number > 0, total / tl.where(number > 0, number, 1.0), 0.0)


@triton.jit
@no_type_check
def _put(out, value):
    """Write a number as it is reported: float32, and finite."""
    tl.store(out, tl.minimum(tl.maximum(value, -LARGEST), LARGEST).to(tl.float32))
