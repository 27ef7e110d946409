# pyright: basic
"""Records of rows folded into fewer: each program takes a run of them and leaves one."""

from __future__ import annotations

from typing import no_type_check

import triton
import triton.language as tl

from trimtab.core.fast.cuda.numbers import INFINITY, merge_described


@triton.jit(do_not_specialize=["rows", "run"])
@no_type_check
def fold_records(
    records,
    out,
    rows,
    run,
    columns: tl.constexpr,
    sums: tl.constexpr,
    tops: tl.constexpr,
    described: tl.constexpr,
    sums_wide: tl.constexpr,
    tops_wide: tl.constexpr,
    described_wide: tl.constexpr,
    block: tl.constexpr,
):
    """Fold a run of records. The sizes are those of `places.record_sizes`, and powers of 2 that hold them."""
    part = tl.program_id(0).to(tl.int64)
    total = tl.zeros([sums_wide], tl.float64)
    top = tl.zeros([tops_wide], tl.float64) - INFINITY
    number = tl.zeros([described_wide], tl.float64)
    mean, squares = number, number
    for first in range(0, run, block):
        row = part * run + first + tl.arange(0, block)
        here = (row < rows) & (first + tl.arange(0, block) < run)
        total += tl.sum(_columns(records, row, here, columns, 0, sums, sums_wide, 0.0), 0)
        top = tl.maximum(top, tl.max(_columns(records, row, here, columns, sums, tops, tops_wide, -INFINITY), 0))
        n = _columns(records, row, here, columns, sums + tops, described, described_wide, 0.0)
        m = _columns(records, row, here, columns, sums + tops + described, described, described_wide, 0.0)
        q = _columns(records, row, here, columns, sums + tops + 2 * described, described, described_wide, 0.0)
        more = tl.sum(n, 0)
        its_mean = tl.sum(n * m, 0) / tl.maximum(more, 1.0)
        off = m - its_mean[None, :]
        number, mean, squares = merge_described(number, mean, squares, more, its_mean, tl.sum(q + n * off * off, 0))
    own = out + part * columns
    _store(own, total, sums, sums_wide)
    _store(own + sums, top, tops, tops_wide)
    _store(own + sums + tops, number, described, described_wide)
    _store(own + sums + tops + described, mean, described, described_wide)
    _store(own + sums + tops + 2 * described, squares, described, described_wide)


@triton.jit
@no_type_check
def _columns(
    records,
    row,
    here,
    columns: tl.constexpr,
    first: tl.constexpr,
    count: tl.constexpr,
    wide: tl.constexpr,
    other: tl.constexpr,
):
    """Some columns of some records, as a table."""
    place = tl.arange(0, wide)
    at = row[:, None] * columns + first + place[None, :]
    return tl.load(records + at, mask=here[:, None] & (place < count)[None, :], other=other)


@triton.jit
@no_type_check
def _store(out, value, count: tl.constexpr, wide: tl.constexpr):
    place = tl.arange(0, wide)
    tl.store(out + place, value, mask=place < count)
