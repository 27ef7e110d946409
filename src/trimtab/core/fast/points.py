"""The quantiles of a correction from its pass: each the least value with at least that share of the counted ones at or below it."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from trimtab.core.decisions import MOST
from trimtab.core.fast.decide import RowPass, flat_marks

POINTS = {"p01": 0.01, "p50": 0.5, "p99": 0.99}
SHARES = tuple(POINTS.values())


def ratio_points(found: RowPass) -> dict[str, float]:
    """The raw ratio where one token cannot own the figure, and the middle of |ℓ|."""
    values = _of_trained(found)
    return _by_name("ratio", [math.exp(each) for each in values[:3]]) | {"drift/abs_log_r_p50": sum(values[3:])}


def _by_name(prefix: str, values: list[float]) -> dict[str, float]:
    """The points by name; 0 where there is nothing to count."""
    return {f"{prefix}/{point}": value for point, value in zip(POINTS, values or [0.0] * len(POINTS), strict=True)}


def weight_points(found: RowPass) -> dict[str, float]:
    """The weight where one token cannot own the figure."""
    return _by_name("weight", [min(value, MOST) for value in _weights(found, int(found.sums[11]))])


def _weights(found: RowPass, number: int) -> list[float]:
    from trimtab.core.fast import bins, exponential

    (level, drops, _, _), (lower, upper, *_) = found.program.weight
    if number and found.by_rows and level > 1:
        values = torch.empty(len(SHARES), dtype=torch.float64)
        bins.row_weights(found.rows, _ranks(number), values.numpy())
        return values.tolist()
    if not (found.by_rows and level == 1 and not drops and not found.program.zeroes):
        return _values(found, found.weight, found.kept, number)
    # A truncated weight rises with its ratio, so that both have the same order, and the ratios are counted already.
    kept = found.trained if number == int(found.sums[1]) else found.kept
    logs = _values(found, found.log_r, kept, number)
    return [min(max(float(exponential.exponential_of(torch.tensor(log).numpy()[()])), lower), upper) for log in logs]


def gate_points(found: RowPass, index: int, name: str) -> dict[str, float]:
    """What a gate measured in sequences, where one of them cannot own the figure."""
    from trimtab.core.fast import bins

    codes, (lower, upper, _) = found.program.gates[index]
    values = torch.empty(len(SHARES), dtype=torch.float32)
    bins.gate_values(found.rows, index, codes[0] == 0, lower, upper, SHARES, values.numpy())
    return _by_name(name, values.tolist())


def token_gate_points(found: RowPass, index: int, name: str) -> dict[str, float]:
    """The same of a gate on tokens."""
    from trimtab.core.fast import tokens

    value, scope = _measured_again(found, index)
    known = 1 if scope is found.trained else 11 if scope is found.kept else None
    number = int(tokens.count_bytes(flat_marks(scope)) if known is None else found.sums[known])
    values = _values(found, value, scope, number)
    return _by_name(name, [math.exp(each) for each in values] if found.program.gates[index][0][0] == 0 else values)


def _measured_again(found: RowPass, index: int) -> tuple[Tensor, Tensor]:
    """What a gate on tokens measured, and which tokens it looked at."""
    from trimtab.core.fast import bins, fold, places

    codes = found.program.gates[index][0]
    if found.by_rows and codes[0] != 1:  # the log-ratio, of whole rows
        column = places.ROW + index * places.ROW_GATE
        number = float(found.rows[:, column].sum())
        if number == found.sums[1]:
            return found.log_r, found.trained
        if (
            number == found.sums[11]
        ):  # no gate takes a token that was taken before, so that those it left are all that are kept
            return found.log_r, found.kept
        scope = found.trained.clone()
        bins.clear_rows(found.offsets, found.rows, column, scope.view(torch.uint8).view(-1).numpy())
        return found.log_r, scope
    value, scope = torch.empty_like(found.log_r), torch.empty_like(found.trained)
    given = (found.log_r.view(-1).numpy(), found.trained.view(-1).numpy(), found.offsets, found.rows)
    program = (found.program.gate_codes.numpy(), found.program.gate_numbers.numpy())
    fold.measured_again(index, *given, *program, value.view(-1).numpy(), scope.view(-1).numpy())
    return value, scope


def _ranks(number: int) -> tuple[int, ...]:
    return tuple(max(math.ceil(share * number), 1) for share in SHARES)


def _of_trained(found: RowPass) -> list[float]:
    """The shares of the trained log-ratios, then the middle of their magnitudes; none where none counts. They are found once."""
    number = int(found.sums[1])
    if number and "trained" not in found.shares:
        middle = max(math.ceil(number / 2), 1)
        found.shares["trained"] = _found_values(found, found.log_r, found.trained, number, middle)
    return found.shares.get("trained", [])


def _values(found: RowPass, value: Tensor, counted: Tensor, number: int) -> list[float]:
    """The shares of so many counted values; none where none counts. Those of trained and of kept log-ratios are found once."""
    if value is found.log_r and counted is found.trained:
        return _of_trained(found)[:3]
    if number == 0:
        return []
    if value is not found.log_r or counted is not found.kept:
        return _found_values(found, value, counted, number, 0)
    if "kept" not in found.shares:
        found.shares["kept"] = _found_values(found, value, counted, number, 0)
    return found.shares["kept"]


def _found_values(found: RowPass, value: Tensor, counted: Tensor, number: int, middle: int) -> list[float]:
    """`middle`: a rank among magnitudes, or 0."""
    import numpy as np

    from trimtab.core.fast import bins, machine

    ranks, out = np.array([*_ranks(number), middle]), np.empty(4 if middle else 3, np.float32)
    numbers, marks = value.view(-1).numpy(), flat_marks(counted)
    if len(numbers) <= bins.FEW:
        bins.sorted_values(numbers, marks, ranks, out)
        return out.tolist()
    keys, bits = np.empty(machine.BLOCK, np.int32), numbers.view(np.int32)
    counts = _counts(found, value, counted, bits, marks, keys)
    bins.values_at(bits, marks, counts, ranks, out)
    return out.tolist()


def _counts(found: RowPass, value: Tensor, counted: Tensor, bits: Any, marks: Any, keys: Any) -> Any:
    """How many counted values lie in each bin; those of trained log-ratios are counted once."""
    from trimtab.core.fast import bins

    if value is not found.log_r or not found.by_rows:
        counts = torch.zeros(bins.BINS + 1, dtype=torch.int32).numpy()
        bins.count_bins(bits, marks, keys, 1, counts)
        return counts
    trained = found.trained.view(torch.uint8).view(-1).numpy()
    if not found.counts:
        counts = torch.zeros(bins.BINS + 1, dtype=torch.int32).numpy()
        bins.count_bins(bits, trained, keys, 1, counts)
        found.counts.append(counts)
    if counted is found.trained:
        return found.counts[0]
    left = found.counts[0].copy()
    bins.count_bins(bits, trained ^ marks, keys, -1, left)  # less those that do not count
    return left
