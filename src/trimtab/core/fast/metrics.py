"""The metrics of a correction from the sums of its pass: names and meanings are those of the plain form."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trimtab.config.correction import Correction
from trimtab.core.metrics import SUMMARY, gate_name
from trimtab.core.sums import MEANS, OF_GATE, TOUCHED

if TYPE_CHECKING:
    from trimtab.core.fast.decide import FastRun


def per(total: float, number: float) -> float:
    """A mean that is 0 where there is nothing to average."""
    return total / number if number else 0.0


def moments(rule: Correction, run: FastRun, partial: float) -> dict[str, float]:
    """Every metric but quantiles and raw weights. `partial`: tokens of a mask that is neither 0 nor 1."""
    sums = _with_parts(run.total, partial)
    tokens, rows, kept = sums["tokens"], sums["rows"], sums["kept"]
    found = {"tokens": tokens, "sequences": rows, "all_rejected": float(kept == 0)}
    found |= {name: per(sums[part], sums[whole]) for name, (part, whole) in MEANS.items()}
    found["drift/abs_log_r_max"], found["drift/prob_diff_max"] = sums["max_abs_log_r"], sums["max_prob_diff"]
    found["perplexity/log_diff_max"] = sums["max_log_diff"] if rows else 0.0
    found["perplexity/log_diff_min"] = -sums["max_minus_log_diff"] if rows else 0.0
    ends = math.exp(-sums["max_minus_log_r"]), math.exp(sums["max_log_r"])
    found |= _summary("ratio", tokens, sums["excess"], sums["excess_squares"], ends)
    found["ratio/mean"] += float(tokens > 0)
    found |= weight_moments("weight/", sums, sums["weight"], sums["weight_squares"], _ends(sums, "weight"))
    if rule.weighs:
        found |= {name: per(sums[part], sums[whole]) for name, (part, whole) in TOUCHED.items()}
    for index, gate in enumerate(rule.gates):
        name, own = gate_name(index, gate), as_numbers(run.of_gates[index])
        found |= _summary(name, own["units"], own["value"], own["squares"], (-own["max_minus"], own["max"]))
        found |= {f"{name}/{part}": per(own[lost], own[whole]) for part, (lost, whole) in OF_GATE.items()}
    return found


def as_numbers(record: Any) -> dict[str, float]:
    """The fields of a record as plain numbers; the greatest of nothing is −inf."""
    return dict(zip(record.dtype.names, record.item(), strict=True))


def _with_parts(total: dict[str, float], partial: float) -> dict[str, float]:
    """The sums of a batch with those that are made of them: r·ℓ = ℓ + (r − 1)·ℓ, r² − 1 = (r − 1)² + 2(r − 1)."""
    derived = {
        "missing": total["masked"] - total["tokens"],
        "partial": partial,
        "minus_log_r": -total["log_r"],
        "r_log_r": total["log_r"] + total["excess_log_r"],
        "chi2_token": total["excess_squares"] + 2.0 * total["excess"],
        "max_abs_log_r": max(total["max_abs_log_r"], 0.0),
        "max_prob_diff": max(total["max_prob_diff"], 0.0),
    }
    return total | derived


def _ends(sums: dict[str, float], name: str) -> tuple[float, float]:
    return -sums[f"max_minus_{name}"], sums[f"max_{name}"]


def _summary(prefix: str, number: float, total: float, squares: float, ends: tuple[float, float]) -> dict[str, float]:
    """Mean, deviation, least and greatest."""
    mean = per(total, number)
    deviation = math.sqrt(max(per(squares, number) - mean * mean, 0.0))
    least, greatest = ends if number else (0.0, 0.0)
    return dict(zip((f"{prefix}/{name}" for name in SUMMARY.split()), (mean, deviation, least, greatest), strict=True))


def weight_moments(
    prefix: str, sums: dict[str, float], total: float, squares: float, ends: tuple[float, float]
) -> dict[str, float]:
    """Mean, deviation, least, greatest and effective share, (Σw)² / (trained · Σw²), of a weight of the kept tokens."""
    summary = _summary("", sums["kept"], total, squares, ends) | {"/ess": per(total * total, squares * sums["tokens"])}
    return {f"{prefix}{name.removeprefix('/')}": value for name, value in summary.items()}


def raw_weights(run: FastRun) -> dict[str, float]:
    """The weight before its bounds, of the kept tokens."""
    total, squares, least, greatest = run.raw_weights
    ends = (math.exp(least), math.exp(greatest)) if run.total["kept"] else (0.0, 0.0)
    return weight_moments("weight/raw_", run.total, total, squares, ends)


def as_tensors(values: dict[str, float]) -> dict[str, Tensor]:
    """Numbers as 0-d float32 tensors, each within what that type holds."""
    import numpy as np

    most = torch.finfo(torch.float32).max
    numbers = np.fromiter(values.values(), np.float64, len(values)).clip(-most, most)
    return dict(zip(values, torch.from_numpy(numbers.astype(np.float32)).unbind(), strict=True))
