"""The metrics of a correction from the sums of its pass: the names and meanings of `core/measures.py`, in plain numbers.

`sums` of tokens: 0 masked, 1 valid, 2 Σℓ, 3 Σ(r−1), 4 Σ(r−1)², 5 Σk3, 6 Σk3 reversed, 7 Σ(r−1)ℓ, 8 Σ|ℓ|, 9 Σ|p−q|, 10 log-probs
above 0, 11 kept, 12 Σ(w−1), 13 Σ(w−1)², 14 weighed, 15 beyond the upper bound, 16 beyond the lower one; of rows: 17 with tokens,
18 with kept tokens, 19–24 perplexities and chi². `tops`: 0 |ℓ|, 1 ℓ, 2 −ℓ, 3 |p−q|, 4 w, 5 −w, 6 log behavior, 8 and 9 the log
difference of perplexities. Of each gate: 0 tokens, 1 lost, 2 high, 3 low, 4 units, 5 Σ, 6 Σ², 7 rows, 8 rows lost whole; and two
tops. Over ranks sums are added, tops compared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.decisions import MOST
from trimtab.core.fast.decide import RowPass
from trimtab.core.ranks import Ranks

GATES, GATE, TOPS = 25, 9, 10
POINTS = {"p01": 0.01, "p50": 0.5, "p99": 0.99}


def figures(
    rule: Correction, names: Sequence[str], found: RowPass, partial: Tensor | None, ranks: Ranks
) -> dict[str, Tensor]:
    """Every metric but quantiles. `names`: how the gates are called; `partial`: tokens of a mask that is neither 0 nor 1."""
    whole = torch.cat(
        [found.sums, torch.zeros(1, dtype=torch.float64) if partial is None else partial.double().reshape(1)]
    )
    *sums, partials = ranks.total(whole).tolist()
    tops = ranks.greatest(found.tops.clone()).tolist()
    values = _counts(sums, partials) | _drift(sums, tops) | _perplexities(sums, tops) | _weight(rule, sums, tops)
    for index, name in enumerate(names):
        at, top = sums[GATES + GATE * index :], tops[TOPS + 2 * index :]
        values |= _described(f"{name}/", at[4], at[5], at[6], -top[1], top[0])
        values |= {
            f"{name}/rejected_tokens": _per(at[1], at[0]),
            f"{name}/rejected_sequences": _per(at[8], at[7]),
            f"{name}/high_tokens": _per(at[2], at[0]),
            f"{name}/low_tokens": _per(at[3], at[0]),
        }
    return as_tensors(values)


def moment_names(rule: Correction, names: Sequence[str]) -> list[str]:
    """What `figures` gives."""
    none = [0.0] * (GATES + GATE * len(names))
    found = _counts(none, 0.0) | _drift(none, none) | _perplexities(none, none) | _weight(rule, none, none)
    parts = ("mean", "std", "min", "max", "rejected_tokens", "rejected_sequences", "high_tokens", "low_tokens")
    return [*found, *(f"{name}/{part}" for name in names for part in parts)]


def as_tensors(values: dict[str, float]) -> dict[str, Tensor]:
    """Numbers as 0-d float32 tensors, each within what that type holds."""
    most = torch.finfo(torch.float32).max
    held = torch.tensor(list(values.values()), dtype=torch.float64).clamp_(-most, most).float()
    return dict(zip(values, held.unbind(), strict=True))


def _per(total: float, number: float) -> float:
    """A mean that is 0 where there is nothing to average."""
    return total / number if number else 0.0


def _described(
    prefix: str, number: float, total: float, squares: float, least: float, greatest: float
) -> dict[str, float]:
    mean = _per(total, number)
    return {
        f"{prefix}mean": mean,
        f"{prefix}std": math.sqrt(max(_per(squares, number) - mean * mean, 0.0)),
        f"{prefix}min": least if number else 0.0,
        f"{prefix}max": greatest if number else 0.0,
    }


def _counts(sums: list[float], partials: float) -> dict[str, float]:
    return {
        "tokens": sums[1],
        "sequences": sums[17],
        "missing_fraction": _per(sums[0] - sums[1], sums[0]),
        "kept_fraction": _per(sums[11], sums[1]),
        "kept_sequence_fraction": _per(sums[18], sums[17]),
        "all_rejected": float(sums[11] == 0),
        "positive_fraction": _per(sums[10], sums[1]),
        "partial_fraction": _per(partials, sums[1]),
    }


def _drift(sums: list[float], tops: list[float]) -> dict[str, float]:
    number = sums[1]
    excess = _described("", number, sums[3], sums[4], 0.0, 0.0)
    return {
        "drift/kl": _per(-sums[2], number),
        "drift/kl_reverse": _per(sums[2] + sums[7], number),  # r·ℓ = ℓ + (r − 1)·ℓ
        "drift/k3": _per(sums[5], number),
        "drift/k3_reverse": _per(sums[6], number),
        "drift/chi2_token": _per(sums[4] + 2 * sums[3], number),
        "drift/abs_log_r": _per(sums[8], number),
        "drift/abs_log_r_max": max(tops[0], 0.0),
        "drift/prob_diff": _per(sums[9], number),
        "drift/prob_diff_max": max(tops[3], 0.0),
        "ratio/mean": 1.0 + excess["mean"] if number else 0.0,
        "ratio/std": excess["std"],
        "ratio/min": math.exp(-tops[2]) if number else 0.0,
        "ratio/max": math.exp(tops[1]) if number else 0.0,
    }


def _perplexities(sums: list[float], tops: list[float]) -> dict[str, float]:
    names = ("behavior", "target", "ratio", "log_diff", "log_diff_abs")
    values = {f"perplexity/{name}": _per(sums[19 + place], sums[17]) for place, name in enumerate(names)}
    ends = {
        "perplexity/log_diff_max": tops[8] if sums[17] else 0.0,
        "perplexity/log_diff_min": -tops[9] if sums[17] else 0.0,
    }
    return values | ends | {"drift/chi2_sequence": _per(sums[24], sums[17])}


def _weight(rule: Correction, sums: list[float], tops: list[float]) -> dict[str, float]:
    number = sums[11]
    values = _described("weight/", number, sums[12], sums[13], -tops[5], tops[4])
    values["weight/mean"] += 1.0 if number else 0.0
    values["weight/ess"] = _per((number + sums[12]) ** 2, (number + 2 * sums[12] + sums[13]) * sums[1])
    if rule.weighs:
        values |= {"weight/touched_high": _per(sums[15], sums[14]), "weight/touched_low": _per(sums[16], sums[14])}
    return values


def ratio_points(found: RowPass) -> dict[str, Tensor]:
    """The raw ratio where one token cannot own the figure, and the middle of |ℓ|."""
    middle = _points(found.log_r, found.trained, [0.5], magnitude=True)
    points = _points(found.log_r, found.trained, list(POINTS.values()))
    values = {f"ratio/{name}": math.exp(value) for name, value in zip(POINTS, points, strict=True)} if points else {}
    return as_tensors(
        dict.fromkeys((f"ratio/{name}" for name in POINTS), 0.0) | values | {"drift/abs_log_r_p50": sum(middle)}
    )


def weight_points(found: RowPass) -> dict[str, Tensor]:
    """The weight where one token cannot own the figure."""
    points = _points(found.weight, found.kept, list(POINTS.values())) or [0.0] * len(POINTS)
    return as_tensors({f"weight/{name}": min(value, MOST) for name, value in zip(POINTS, points, strict=True)})


def gate_points(found: RowPass, index: int, name: str) -> dict[str, Tensor]:
    """What a gate measured in sequences, where one of them cannot own the figure."""
    from trimtab.core.fast import fold

    lower, upper = found.program.gate_numbers[index, :2].tolist()
    values = torch.empty(len(found.rows), dtype=torch.float32)
    is_log = int(found.program.gate_codes[index, 0]) == 0
    number = fold.shown_values(found.rows.numpy(), index, is_log, lower, upper, values.numpy())
    order = values[:number].sort().values
    points = [float(order[max(math.ceil(q * number), 1) - 1]) if number else 0.0 for q in POINTS.values()]
    return as_tensors({f"{name}/{point}": value for point, value in zip(POINTS, points, strict=True)})


def token_gate_points(found: RowPass, index: int, name: str) -> dict[str, Tensor]:
    """The same of a gate on tokens."""
    from trimtab.core.fast import fold

    value, scope = torch.empty_like(found.log_r), torch.empty_like(found.trained)
    given = (found.log_r.view(-1).numpy(), found.trained.view(-1).numpy(), found.offsets, found.rows.numpy())
    program = (found.program.gate_codes.numpy(), found.program.gate_numbers.numpy())
    fold.measured_again(index, *given, *program, value.view(-1).numpy(), scope.view(-1).numpy())
    points = _points(value, scope, list(POINTS.values()))
    if int(found.program.gate_codes[index, 0]) == 0:
        points = [math.exp(point) for point in points]
    points = points or [0.0] * len(POINTS)
    return as_tensors({f"{name}/{point}": value for point, value in zip(POINTS, points, strict=True)})


def _points(value: Tensor, counted: Tensor, shares: list[float], *, magnitude: bool = False) -> list[float]:
    """For each share the least value with at least that share of the counted ones at or below it; none if none counts."""
    from trimtab.core.fast import fold

    number = int(counted.view(torch.uint8).sum(dtype=torch.int64))
    if number == 0:
        return []
    ranks = torch.tensor([max(math.ceil(share * number), 1) for share in shares], dtype=torch.int64)
    coarse, fine = torch.empty(2**16, dtype=torch.int32), torch.empty(len(shares), 2**16, dtype=torch.int32)
    found = torch.empty(len(shares), dtype=torch.int32)
    arrays = [each.numpy() for each in (ranks, coarse, fine, found)]
    bits = value.view(-1).view(torch.int32).numpy()
    fold.order_statistics(bits, counted.view(-1).numpy(), arrays[0], magnitude, *arrays[1:])
    return _as_floats(found)


def _as_floats(order: Tensor) -> list[float]:
    return (order ^ ((order >> 31) & 0x7FFFFFFF)).view(torch.float32).tolist()
