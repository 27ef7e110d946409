"""A rule as a small program for the pass: numbers in place of names, and what it cannot say left to the plain form."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.config.base import Config
from trimtab.core.bounds import gate_bounds
from trimtab.core.fast.places import FIRST_EXPONENTIAL
from trimtab.core.once import of_identity, once
from trimtab.core.ratio import log_bound

METRIC_CODES: dict[tuple[str, str | None], int] = {
    ("ratio", None): 0,
    ("k1", "forward"): 1,
    ("k1", "reverse"): 2,
    ("k2", None): 3,
    ("second_moment", None): 4,
    ("abs_log_ratio", None): 5,
    ("k3", "forward"): 6,
    ("k3", "reverse"): 7,
    ("k3", "max"): 8,
    ("ratio_deviation", None): 9,
    ("mult_prob_error", None): 10,
}
BY_ROW = (0, 1, 2)
"""Codes whose sums and extremes over a row are those of its log-ratio."""
AGGS = ("mean", "sum", "max", "min", "every")
ACTIONS = ("reject", "zero", "observe")
LEVELS = ("one", "token", "geometric", "sequence")
MOST_GATES = 8
_KNOWN: dict[type[Config], frozenset[str]] = {
    Correction: frozenset(["policies", "gates", "weight", "normalize", "denominator", "applies_to"]),
    Gate: frozenset(
        [
            "metric",
            "level",
            "agg",
            "lower",
            "upper",
            "action",
            "when",
            "advantage_of",
            "strict",
            "pair",
            "direction",
            "scope",
            "limit",
        ]
    ),
    Weight: frozenset(["level", "lower", "upper", "outside", "scope", "limit"]),
    Limit: frozenset(["bound", "at"]),
}
"""The settings the pass was written for. Another one has to be left at its default: what it asks for, only the plain form can know."""
_LARGE = 1e15
"""A lower bound on the weight whose square float32 still holds."""


@dataclass(frozen=True, eq=False)
class RowProgram:
    """What the pass reads of a rule. `gates` has a row of codes and a row of numbers for each gate, `weight` one of each.

    Codes of a gate: metric, level (1: sequence), agg, action, scope (1: kept), limit (0 none, 1 token, 2 gathered). Numbers: lower,
    upper, limit. Codes of the weight: level, outside (1: zero), scope, limit. Numbers: lower, upper, their logarithms, limit.
    """

    gate_codes: Tensor
    gate_numbers: Tensor
    weight_codes: Tensor
    weight_numbers: Tensor

    @once
    def gates(self) -> list[tuple[list[int], list[float]]]:
        """Codes and numbers of each gate."""
        return list(zip(self.gate_codes.tolist(), self.gate_numbers.tolist(), strict=True))

    @once
    def weight(self) -> tuple[list[int], list[float]]:
        """Codes and numbers of the weight."""
        return self.weight_codes.tolist(), self.weight_numbers.tolist()

    @once
    def is_by_rows(self) -> bool:
        """Whether the sums and extremes of a row say all that is asked of it, as long as tokens pass the gates on them."""
        return self.weight[1][0] <= _LARGE and all(_is_by_row(*codes) for codes, _ in self.gates)

    @once
    def needs_k3(self) -> bool:
        """Whether a gate gathers k3."""
        return any(codes[0] == FIRST_EXPONENTIAL for codes, _ in self.gates)

    @once
    def has_token_gates(self) -> bool:
        """Whether a gate looks at tokens."""
        return any(codes[1] == 0 for codes, _ in self.gates)

    @once
    def zeroes(self) -> bool:
        """Whether a gate zeroes what it turns away."""
        return any(codes[3] == ACTIONS.index("zero") for codes, _ in self.gates)

    @once
    def token_limit(self) -> float:
        """The least limit on the log-ratio of a token; one that no token of a row reaches changes nothing there."""
        return min((numbers[-1] for codes, numbers in [*self.gates, self.weight] if codes[-1] == 1), default=torch.inf)


def _is_by_row(metric: int, level: int, agg: int, action: int, scope: int, limit: int) -> bool:
    if level == 0:
        return metric in BY_ROW and limit != 2
    return metric in BY_ROW or (metric == FIRST_EXPONENTIAL and agg < 2)


@of_identity
def misfit(rule: Correction) -> str | None:
    """What of a rule the pass cannot do, in one word or two; None: nothing."""
    unknown = next((found for part in _parts(rule) if (found := _unknown_setting(part)) is not None), None)
    if unknown is not None:
        return unknown
    if rule.normalize is not None:
        return "normalize"
    if rule.centering is not None:
        return "centering"
    if len(rule.gates) > MOST_GATES:
        return "more gates"
    if rule.weight is not None and rule.weight.level not in LEVELS:
        return "a segment weight"
    return next((found for gate in rule.gates if (found := _gate_misfit(gate, rule)) is not None), None)


def _parts(rule: Correction) -> list[Config]:
    """A rule and every setting within it."""
    inner = [*rule.gates, *([] if rule.weight is None else [rule.weight])]
    limits = [part.limit for part in inner if part.limit is not None]
    return [rule, *inner, *limits]


def _unknown_setting(part: Config) -> str | None:
    """A setting that the pass knows nothing of and that was set."""
    known, fields = _KNOWN.get(type(part), frozenset[str]()), type(part).model_fields
    return next((name for name in fields if name not in known and getattr(part, name) != fields[name].default), None)


def _gate_misfit(gate: Gate, rule: Correction) -> str | None:
    code = METRIC_CODES.get((gate.metric, gate.direction))
    if gate.level not in ("token", "sequence"):
        return f"a {gate.level} gate"
    if code is None:
        return "a gate on probabilities"
    if code >= FIRST_EXPONENTIAL and gate.level == "token":
        return "a token gate on an exponential"
    if gate.action not in ACTIONS:
        return "a clamp gate"
    if gate.when != "always":
        return "a gate by the advantage"
    return None if gate.pair in (None, rule.pair) else "a gate on another pair"


def row_program(rule: Correction) -> RowProgram:
    """The program of a rule without a misfit. Bounds are rounded to float32, as a comparison with a tensor rounds them."""
    codes = [_codes(gate) for gate in rule.gates]
    numbers = [[*_sides(*gate_bounds(gate)), _bound(gate.limit)] for gate in rule.gates]
    weight = rule.weight
    if weight is None or weight.level == "one":
        return _tensors(codes, numbers, [0, 0, 0, 0], [0.0] * 5)
    most = torch.finfo(torch.float32).max
    bounds = [weight.lower or 0.0, most if weight.upper is None else weight.upper]
    logs = _sides(log_bound(weight.lower), log_bound(weight.upper))
    kind = [
        LEVELS.index(weight.level),
        int(weight.outside == "zero"),
        int(weight.scope == "kept"),
        _where(weight.limit),
    ]
    return _tensors(codes, numbers, kind, [*bounds, *logs, _bound(weight.limit)])


def _codes(gate: Gate) -> list[int]:
    agg = 0 if gate.agg is None else AGGS.index(gate.agg)
    metric, action = METRIC_CODES[gate.metric, gate.direction], ACTIONS.index(gate.action)
    return [metric, int(gate.level == "sequence"), agg, action, int(gate.scope == "kept"), _where(gate.limit)]


def _where(limit: Limit | None) -> int:
    return 0 if limit is None else 1 if limit.at == "token" else 2


def _bound(limit: Limit | None) -> float:
    return 0.0 if limit is None else limit.bound


def _sides(lower: float | None, upper: float | None) -> list[float]:
    return [-torch.inf if lower is None else lower, torch.inf if upper is None else upper]


def _tensors(codes: list[list[int]], numbers: list[list[float]], kind: list[int], values: list[float]) -> RowProgram:
    return RowProgram(
        torch.tensor(codes, dtype=torch.int32).reshape(-1, 6),
        torch.tensor(numbers, dtype=torch.float32).reshape(-1, 3),
        torch.tensor(kind, dtype=torch.int32),
        torch.tensor(values, dtype=torch.float32),
    )
