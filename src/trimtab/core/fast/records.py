"""A rule and what the fast pass writes about a batch, as numpy records with named fields; and the codes of a rule's words.

`GATE` and `WEIGHT` are a rule's. `ROW` is what is known of a sequence, `JUDGED` what a gate measured in it. `TOTALS` are the sums and
extremes of a batch, `GATE_TOTALS` those of a gate, `CLIP_TOTALS` those of a clip. In their names r is the ratio, ℓ its logarithm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from trimtab.config.correction import Correction, Gate, Limit, Weight
from trimtab.core.bounds import gate_bounds
from trimtab.core.cached import cache_by_identity, cached
from trimtab.core.fast.fits import ACTIONS, AGGS, DIVERGENCES, LEVELS, LIMITS
from trimtab.core.ratio import log_bound


def _record(numbers: str, codes: str = "", kind: str = "f8") -> np.dtype[Any]:
    """A record of codes, then of numbers."""
    return np.dtype([*((name, "i4") for name in codes.split()), *((name, kind) for name in numbers.split())])


GATE = _record("lower upper limit", "metric sign exponential by_row agg action of_kept limit_at", "f4")
"""`sign`: 1 or −1 where the divergence is the log-ratio times that, else 0. `of_kept`: over what earlier gates kept."""
WEIGHT = _record("lower upper log_lower log_upper limit", "level drops of_kept limit_at", "f4")
"""`drops`: 0 outside of bounds instead of the bound."""
CLIP = _record("low high dual most_log_prob", kind="f4")
"""1 − low, 1 + high, the dual bound or +inf, and above which log-prob a token is doubtful."""
ROW = _record("tokens log_r log_base kept least greatest excess excess_squares weight log_weight")
"""Trained tokens, Σℓ, Σ log base, kept tokens, least and greatest ℓ; Σ(r − 1) and Σ(r − 1)², where `stages` has them worked out; where
all tokens have one weight, that, and its log before bounds."""
JUDGED = _record("tokens least greatest lost")
"""Tokens a gate looked at, the least and the greatest it measured, and how many it turned away."""
TOTALS = _record(
    "masked tokens log_r excess excess_squares k3 k3_reverse excess_log_r abs_log_r prob_diff doubtful "  # of tokens; excess: r − 1
    "kept weight weight_squares weighed above below "  # above, below: weighed tokens beyond the bounds of the weight
    "rows kept_rows perplexity_behavior perplexity_target perplexity_ratio log_diff log_diff_abs chi2_sequence "
    "max_abs_log_r max_log_r max_minus_log_r max_prob_diff max_weight max_minus_weight max_log_prob max_log_diff max_minus_log_diff"
)
GATE_TOTALS = _record("tokens lost above below units value squares rows lost_rows max max_minus")
CLIP_TOTALS = _record(
    "doubtful kept log_rho k3 excess clipped_high clipped_low clipped_dual unvalued "
    "positive positive_acting negative negative_acting acting advantage acting_advantage max_log_rho max_minus_log_rho"
)
"""Of the kept: log ρ, k3, ρ − 1. `unvalued`: trained tokens without an advantage. Acting tokens have a weight above 0."""


def fresh(kind: np.dtype[Any], shape: int | tuple[int, ...] = 1) -> Any:
    """Records of sums that are 0 and of maxima of nothing."""
    out = np.zeros(shape, kind)
    for name in kind.names or ():
        if name.startswith("max"):
            out[name] = -np.inf
    return out


def fresh_sums(rows: int, gates: int) -> tuple[Any, Any, Any, Any]:
    """Room for what is written about a batch: `ROW`, `JUDGED` of each row and gate, `TOTALS`, `GATE_TOTALS`."""
    return np.zeros(rows, ROW), np.zeros((rows, gates), JUDGED), fresh(TOTALS), fresh(GATE_TOTALS, gates)


def clip_record(*values: float) -> Any:
    """The settings of a clip, in the order of `CLIP`."""
    return np.array([values], CLIP)


@dataclass(frozen=True, eq=False)
class Program:
    """A rule as the pass reads it: a record for each gate, and one for the weight."""

    gates: Any
    weights: Any  # an array of one record

    @property
    def weight(self) -> Any:
        """The record of the weight."""
        return self.weights[0]

    @cached
    def zeroes_tokens(self) -> bool:
        """Whether tokens of one row may be zeroed and others not."""
        return bool(((self.gates["action"] == ACTIONS["zero"]) & (self.gates["by_row"] == 0)).any())

    @cached
    def zeroes(self) -> bool:
        """Whether a gate zeroes what it turns away."""
        return bool((self.gates["action"] == ACTIONS["zero"]).any())


@cache_by_identity
def program(rule: Correction) -> Program:
    """The program of a rule that fits: making one takes longer than running it on a small batch.

    Bounds are rounded to float32, as a comparison with a tensor rounds them.
    """
    from trimtab.core.fast.stages import has_branches

    rule_program = Program(
        np.array([_gate(each) for each in rule.gates], GATE), np.array([_weight(rule.weight)], WEIGHT)
    )
    room = np.zeros((6, 1), np.float32), np.ones((3, 1), np.uint8)
    for gate in rule_program.gates:
        if not has_branches(gate, rule_program.weight, *room):
            raise NotImplementedError(
                f"The fast pass needs a branch for each code of a rule, got none for one of {gate}."
            )
    return rule_program


def _gate(gate: Gate) -> tuple[Any, ...]:
    metric, sign, exponential = DIVERGENCES[gate.metric, gate.direction]
    words = (int(gate.level == "sequence"), AGGS[gate.agg or "mean"], ACTIONS[gate.action], int(gate.scope == "kept"))
    codes = (metric, sign, int(exponential), *words, _where(gate.limit))
    return *codes, *_sides(*gate_bounds(gate)), _bound(gate.limit)


def _weight(weight: Weight | None) -> tuple[Any, ...]:
    if weight is None or weight.level == "one":
        return (LEVELS["one"], *[0] * (len(WEIGHT.names or ()) - 1))
    most = float(np.finfo(np.float32).max)
    bounds = weight.lower or 0.0, most if weight.upper is None else weight.upper
    logs = _sides(log_bound(weight.lower), log_bound(weight.upper))
    words = (LEVELS[weight.level], int(weight.outside == "zero"), int(weight.scope == "kept"), _where(weight.limit))
    return *words, *bounds, *logs, _bound(weight.limit)


def _where(limit: Limit | None) -> int:
    return LIMITS[None if limit is None else limit.at]


def _bound(limit: Limit | None) -> float:
    return 0.0 if limit is None else limit.bound


def _sides(lower: float | None, upper: float | None) -> tuple[float, float]:
    return -np.inf if lower is None else lower, np.inf if upper is None else upper
