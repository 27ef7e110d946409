"""The metrics of a correction from the sums of its pass: the names and meanings of `core/measures.py`, in plain numbers.

`sums` of tokens: 0 masked, 1 valid, 2 Σℓ, 3 Σ(r−1), 4 Σ(r−1)², 5 Σk3, 6 Σk3 reversed, 7 Σ(r−1)ℓ, 8 Σ|ℓ|, 9 Σ|p−q|, 10 log-probs
above 0, 11 kept, 12 Σ(w−1), 13 Σ(w−1)², 14 weighed, 15 beyond the upper bound, 16 beyond the lower one; of rows: 17 with tokens,
18 with kept tokens, 19–24 perplexities and chi². `tops`: 0 |ℓ|, 1 ℓ, 2 −ℓ, 3 |p−q|, 4 w, 5 −w, 6 log-probs, or 0 where none is above, 8 and 9 the log
difference of perplexities. Of each gate: 0 tokens, 1 lost, 2 high, 3 low, 4 units, 5 Σ, 6 Σ², 7 rows, 8 rows lost whole; and two
tops.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.fast.decide import RowPass, flat, flat_marks
from trimtab.core.observe import gate_name

GATES, GATE, TOPS = 25, 9, 10


def figures(rule: Correction, found: RowPass, partials: float) -> dict[str, float]:
    """Every metric but quantiles. `partials`: tokens of a mask that is neither 0 nor 1."""
    names = [gate_name(index, gate) for index, gate in enumerate(rule.gates)]
    sums, tops = found.sums.tolist(), found.tops.tolist()
    values = _counts(sums, partials) | _drift(sums, tops) | _perplexities(sums, tops) | _weight(rule, sums, tops)
    for index, name in enumerate(names):
        at, top = sums[GATES + GATE * index :], tops[TOPS + 2 * index :]
        values |= _summary(f"{name}/", at[4], at[5], at[6], -top[1], top[0])
        values |= {
            f"{name}/rejected_tokens": _per(at[1], at[0]),
            f"{name}/rejected_sequences": _per(at[8], at[7]),
            f"{name}/high_tokens": _per(at[2], at[0]),
            f"{name}/low_tokens": _per(at[3], at[0]),
        }
    return values


def moment_names(rule: Correction) -> list[str]:
    """What `figures` gives."""
    names = [gate_name(index, gate) for index, gate in enumerate(rule.gates)]
    none = [0.0] * (GATES + GATE * len(names))
    found = _counts(none, 0.0) | _drift(none, none) | _perplexities(none, none) | _weight(rule, none, none)
    parts = ("mean", "std", "min", "max", "rejected_tokens", "rejected_sequences", "high_tokens", "low_tokens")
    return [*found, *(f"{name}/{part}" for name in names for part in parts)]


def raw_weight_figures(found: RowPass) -> dict[str, float]:
    """The weight before its bounds, of the kept tokens. Where all are kept, each at its own ratio, the moments of the pass say it."""
    number, trained = float(found.sums[11]), float(found.sums[1])
    linear, squares, low, high = _raw_sums(found)
    least, greatest = (math.exp(each) if number else 0.0 for each in (low, high))
    values = _summary("weight/raw_", number, linear, squares, least, greatest)
    values["weight/raw_mean"] += 1.0 if number else 0.0
    return values | {"weight/raw_ess": _effective_share(number, linear, squares, trained)}


def _raw_sums(found: RowPass) -> list[float]:
    """Σ(w−1), Σ(w−1)² and the logarithms of the least and the greatest w."""
    from trimtab.core.fast import weights

    (level, _, _, limits), (*_, limit) = found.program.weight
    sums, tops = found.sums.tolist(), found.tops.tolist()
    if level == 1 and not limits and sums[11] == sums[1]:  # each weight is the ratio of a trained token
        return [sums[3], sums[4], -tops[2], tops[1]]
    out = torch.tensor([0.0, 0.0, torch.inf, -torch.inf], dtype=torch.float64).numpy()
    tokens = flat(found.log_r), flat_marks(found.kept)
    if level != 1:
        weights.raw_row_weights(found.rows, out)
    elif found.by_rows:  # where no token reaches a limit
        weights.raw_weights_by_rows(*tokens, found.offsets, found.rows, out)
    else:
        most = torch.tensor(limit if limits else torch.inf, dtype=torch.float32).numpy()[()]
        weights.raw_token_weights(*tokens, most, out)
    return out.tolist()


def as_tensors(values: dict[str, float]) -> dict[str, Tensor]:
    """Numbers as 0-d float32 tensors, each within what that type holds."""
    import numpy as np

    most = torch.finfo(torch.float32).max
    held = np.fromiter(values.values(), np.float64, len(values)).clip(-most, most)
    return dict(zip(values, torch.from_numpy(held.astype(np.float32)).unbind(), strict=True))


def _per(total: float, number: float) -> float:
    """A mean that is 0 where there is nothing to average."""
    return total / number if number else 0.0


def _summary(
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
    excess = _summary("", number, sums[3], sums[4], 0.0, 0.0)
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
    values = _summary("weight/", number, sums[12], sums[13], -tops[5], tops[4])
    values["weight/mean"] += 1.0 if number else 0.0
    values["weight/ess"] = _effective_share(number, sums[12], sums[13], sums[1])
    if rule.weighs:
        values |= {"weight/touched_high": _per(sums[15], sums[14]), "weight/touched_low": _per(sums[16], sums[14])}
    return values


def _effective_share(number: float, linear: float, squares: float, trained: float) -> float:
    """(Σw)² / (trained · Σw²), from Σ(w−1) and Σ(w−1)² of so many weights."""
    return _per((number + linear) ** 2, (number + 2 * linear + squares) * trained)
