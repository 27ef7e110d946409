# pyright: basic
"""Metrics from the sums of a pass, written one behind the other in the order in which `figures.py` names them."""

from __future__ import annotations

import math
from typing import no_type_check

from trimtab.core.fast.machine import compiled
from trimtab.core.fast.places import GATE_SUMS, TOKEN_SUMS, TOKEN_TOPS


@compiled()
@no_type_check
def _per(total, number):
    """A mean that is 0 where there is nothing to average."""
    return total / number if number != 0 else 0.0


@compiled()
@no_type_check
def _write_summary(out, at, number, total, squares, least, greatest):
    """Mean, deviation, least and greatest; one past the last place."""
    mean = _per(total, number)
    out[at], out[at + 1] = mean, math.sqrt(max(_per(squares, number) - mean * mean, 0.0))
    out[at + 2], out[at + 3] = (least, greatest) if number != 0 else (0.0, 0.0)
    return at + 4


@compiled()
@no_type_check
def _write_counts(sums, partials, out, at):
    trained, rows = sums[1], sums[17]
    out[at], out[at + 1] = trained, rows
    out[at + 2] = _per(sums[0] - trained, sums[0])
    out[at + 3], out[at + 4] = _per(sums[11], trained), _per(sums[18], rows)
    out[at + 5] = 1.0 if sums[11] == 0 else 0.0
    out[at + 6], out[at + 7] = _per(sums[10], trained), _per(partials, trained)
    return at + 8


@compiled()
@no_type_check
def _write_drift(sums, tops, out, at):
    number = sums[1]
    out[at] = _per(-sums[2], number)
    out[at + 1] = _per(sums[2] + sums[7], number)  # r·ℓ = ℓ + (r − 1)·ℓ
    out[at + 2], out[at + 3] = _per(sums[5], number), _per(sums[6], number)
    out[at + 4] = _per(sums[4] + 2.0 * sums[3], number)
    out[at + 5], out[at + 6] = _per(sums[8], number), max(tops[0], 0.0)
    out[at + 7], out[at + 8] = _per(sums[9], number), max(tops[3], 0.0)
    least, greatest = (math.exp(-tops[2]), math.exp(tops[1])) if number != 0 else (0.0, 0.0)
    end = _write_summary(out, at + 9, number, sums[3], sums[4], least, greatest)
    out[at + 9] += 1.0 if number != 0 else 0.0
    return end


@compiled()
@no_type_check
def _write_perplexities(sums, tops, out, at):
    rows = sums[17]
    for place in range(5):
        out[at + place] = _per(sums[19 + place], rows)
    out[at + 5], out[at + 6] = (tops[8], -tops[9]) if rows != 0 else (0.0, 0.0)
    out[at + 7] = _per(sums[24], rows)
    return at + 8


@compiled()
@no_type_check
def _write_weight(number, total, squares, least, greatest, trained, out, at):
    """Mean, deviation, least, greatest and effective share, (Σw)² / (trained · Σw²), of a weight."""
    end = _write_summary(out, at, number, total, squares, least, greatest)
    out[end] = _per(total * total, squares * trained)
    return end + 1


@compiled()
@no_type_check
def write_moments(sums, tops, partials, weighs, gates, out):
    """Every metric but quantiles and raw weights. `partials`: tokens of a mask that is neither 0 nor 1."""
    at = _write_counts(sums, partials, out, 0)
    at = _write_drift(sums, tops, out, at)
    at = _write_perplexities(sums, tops, out, at)
    at = _write_weight(sums[11], sums[12], sums[13], -tops[5], tops[4], sums[1], out, at)
    if weighs:
        out[at], out[at + 1] = _per(sums[15], sums[14]), _per(sums[16], sums[14])
        at += 2
    for g in range(gates):
        own, top = sums[TOKEN_SUMS + g * GATE_SUMS :], tops[TOKEN_TOPS + 2 * g :]
        at = _write_summary(out, at, own[4], own[5], own[6], -top[1], top[0])
        out[at], out[at + 1] = _per(own[1], own[0]), _per(own[8], own[7])
        out[at + 2], out[at + 3] = _per(own[2], own[0]), _per(own[3], own[0])
        at += 4


@compiled()
@no_type_check
def write_raw_weights(sums, raw, out):
    """Those of the weight before its bounds. `raw`: Σw, Σw², the logarithms of the least and the greatest w."""
    number = sums[11]
    least, greatest = (math.exp(raw[2]), math.exp(raw[3])) if number != 0 else (0.0, 0.0)
    _write_weight(number, raw[0], raw[1], least, greatest, sums[1], out, 0)
