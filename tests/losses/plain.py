"""Every loss and reduction as on paper: one token at a time, Python floats, no masks, no tensors.

`Token.now` is the current log-prob that is differentiated, `Token.frozen` the same number held fixed where a formula says sg.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from trimtab.config import losses as config
from trimtab.config.losses import Objective, Reduction

Rows = list[list["Token"]]


@dataclass(frozen=True)
class Token:
    now: float
    frozen: float
    anchor: float
    advantage: float
    weight: float
    prompt: int

    @property
    def log_ratio(self) -> float:
        return self.now - self.anchor

    @property
    def ratio(self) -> float:
        return math.exp(self.now - self.anchor)

    @property
    def frozen_ratio(self) -> float:
        return math.exp(self.frozen - self.anchor)


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def held(x: float, low: float, high: float) -> float:
    return min(max(x, low), high)


def clip_of(loss: Any, ratio: float, advantage: float) -> float:
    """−min(ρA, clip(ρ)A)."""
    cap, dual = getattr(loss, "ratio_cap", None), getattr(loss, "dual", None)
    free = ratio if cap is None else min(ratio, cap)
    value = -min(free * advantage, held(ratio, 1 - loss.low, 1 + loss.high) * advantage)
    return min(value, -dual * advantage) if dual is not None and advantage < 0 else value


def clip(loss: config.Clip, row: list[Token], rows: Rows) -> list[float]:
    return [clip_of(loss, token.ratio, token.advantage) for token in row]


def gspo(loss: config.Gspo, row: list[Token], rows: Rows) -> list[float]:
    advantages = [token.advantage for token in row]
    if loss.advantage == "sequence":
        advantages = [mean(advantages)] * len(row)
    if loss.level == "sequence-token":
        whole = math.exp(mean([token.frozen - token.anchor for token in row]))
        ratios = [whole * math.exp(token.now - token.frozen) for token in row]
    else:
        ratios = [math.exp(mean([token.log_ratio for token in row]))] * len(row)
    return [clip_of(loss, ratio, advantage) for ratio, advantage in zip(ratios, advantages, strict=True)]


def luspo(loss: config.Luspo, row: list[Token], rows: Rows) -> list[float]:
    return [len(row) * value for value in gspo(config.Gspo(low=loss.low, high=loss.high), row, rows)]


def cispo(loss: config.Cispo, row: list[Token], rows: Rows) -> list[float]:
    low, high = loss.lower or 0.0, math.inf if loss.upper is None else loss.upper
    factors = [token.frozen_ratio for token in row]
    if loss.level == "sequence":
        factors = [math.exp(mean([math.log(each) for each in factors]))] * len(row)
    if loss.outside == "zero":
        factors = [each if low <= each <= high else 0.0 for each in factors]
    else:
        factors = [held(each, low, high) for each in factors]
    return [-each * token.advantage * token.now for each, token in zip(factors, row, strict=True)]


def sapo(loss: config.Sapo, row: list[Token], rows: Rows) -> list[float]:
    ratios, advantages = [token.ratio for token in row], [token.advantage for token in row]
    if loss.level == "sequence":
        ratios = [math.exp(mean([token.log_ratio for token in row]))] * len(row)
    if loss.advantage == "sequence":
        advantages = [mean(advantages)] * len(row)
    found: list[float] = []
    for ratio, advantage in zip(ratios, advantages, strict=True):
        tau = loss.tau_positive if advantage > 0 else loss.tau_negative
        found.append(-advantage * 4 / tau / (1 + math.exp(-tau * (ratio - 1))))
    return found


def gmpo(loss: config.Gmpo, row: list[Token], rows: Rows) -> list[float]:
    logs = [
        min(token.log_ratio, loss.high) if token.advantage > 0 else max(token.log_ratio, -loss.low) for token in row
    ]
    return [-mean([token.advantage for token in row]) * math.exp(mean(logs))] * len(row)


def covariances(rows: Rows) -> dict[int, float]:
    """By identity of the token."""
    tokens = [token for row in rows for token in row]
    middle, centre = mean([token.advantage for token in tokens]), mean([token.frozen for token in tokens])
    return {id(token): (token.advantage - middle) * (token.frozen - centre) for token in tokens}


def clip_cov(loss: config.ClipCov, row: list[Token], rows: Rows) -> list[float]:
    """With fraction 1 the random choice takes every candidate."""
    cov = covariances(rows)

    def out(token: Token) -> bool:
        bound = (token.advantage > 0 and token.frozen_ratio > 1 + loss.high) or (
            token.advantage < 0 and token.frozen_ratio < 1 - loss.low
        )
        return loss.lower < cov[id(token)] < loss.upper and not bound

    return [0.0 if out(token) else clip_of(loss, token.ratio, token.advantage) for token in row]


def kl_cov(loss: config.KlCov, row: list[Token], rows: Rows) -> list[float]:
    cov = covariances(rows)
    number = max(int(len(cov) * loss.fraction), 1)
    least = sorted(cov.values())[-number]
    return [
        -token.advantage * token.ratio + (loss.coefficient * abs(token.log_ratio) if cov[id(token)] >= least else 0.0)
        for token in row
    ]


def reinforce(loss: config.Reinforce, row: list[Token], rows: Rows) -> list[float]:
    return [-token.advantage * token.now for token in row]


def importance_pg(loss: config.ImportancePg, row: list[Token], rows: Rows) -> list[float]:
    return [-token.advantage * token.ratio for token in row]


def _dppo(loss: Any, row: list[Token], out: Callable[[Token, float, float], bool]) -> list[float]:
    found: list[float] = []
    for token in row:
        cap = math.inf if loss.ratio_cap is None else loss.ratio_cap
        value = -token.advantage * min(token.frozen_ratio, cap) * token.now
        if loss.gradient == "ratio":
            value = -token.advantage * min(token.ratio, cap)
        found.append(0.0 if out(token, math.exp(token.frozen), math.exp(token.anchor)) else value)
    return found


def dppo_tv(loss: config.DppoTv, row: list[Token], rows: Rows) -> list[float]:
    return _dppo(loss, row, lambda token, p, q: p - q > loss.high if token.advantage > 0 else p - q < -loss.low)


def dppo_kl(loss: config.DppoKl, row: list[Token], rows: Rows) -> list[float]:
    def out(token: Token, p: float, q: float) -> bool:
        apart = q * math.log(q / p) + (1 - q) * math.log((1 - q) / (1 - p))
        return (p > q and apart > loss.high) if token.advantage > 0 else (p < q and apart > loss.low)

    return _dppo(loss, row, out)


def topr(loss: config.Topr, row: list[Token], rows: Rows) -> list[float]:
    ratios = [token.frozen_ratio for token in row]
    if loss.level == "sequence":
        ratios = [math.prod(ratios)] * len(row)
    factors = [
        loss.positive if token.advantage >= 0 else loss.negative * held(ratio, loss.lower, loss.upper)
        for token, ratio in zip(row, ratios, strict=True)
    ]
    return [-token.advantage * token.now * factor for token, factor in zip(row, factors, strict=True)]


def vespo(loss: config.Vespo, row: list[Token], rows: Rows) -> list[float]:
    w = math.exp(sum(token.frozen - token.anchor for token in row))
    found: list[float] = []
    for token in row:
        k, rate = (loss.k_positive, loss.lambda_positive) if token.advantage >= 0 else (loss.k_negative, loss.lambda_negative)  # fmt: skip
        found.append(-math.exp(rate) * w**k * math.exp(-rate * w) * token.advantage * token.now)
    return found


def dro(loss: config.Dro, row: list[Token], rows: Rows) -> list[float]:
    return [-token.advantage * token.now + loss.beta / 2 * token.log_ratio**2 for token in row]


def bapo(loss: config.Bapo, row: list[Token], rows: Rows) -> list[float]:
    """The search as a person makes it: look, move a bound by a step, look again."""
    tokens = [token for each in rows for token in each]

    def balance(lower: float, upper: float) -> float:
        gained = sum(token.advantage * min(token.frozen_ratio, upper) for token in tokens if token.advantage > 0)
        lost = sum(-token.advantage * max(token.frozen_ratio, lower) for token in tokens if token.advantage < 0)
        return math.inf if lost <= 0 else gained / (lost + 1e-8)

    lower, upper = loss.lower, loss.upper
    while balance(lower, upper) < loss.target and lower < loss.lower_max:
        lower = min(lower + loss.lower_step, loss.lower_max)
    while balance(lower, upper) < loss.target and upper < loss.upper_max:
        upper = min(upper + loss.upper_step, loss.upper_max)
    bounds = config.Clip(low=1 - lower, high=upper - 1, dual=loss.dual)
    return [clip_of(bounds, token.ratio, token.advantage) for token in row]


def aspo(loss: config.Aspo, row: list[Token], rows: Rows) -> list[float]:
    found: list[float] = []
    for token in row:
        if token.advantage < 0:
            held_ratio = max(token.ratio, 1 - loss.low)
            factor = loss.dual * token.now if max(token.frozen_ratio, 1 - loss.low) > loss.dual else held_ratio
        else:
            frozen = min(token.frozen_ratio, 1 + loss.high)
            turned = loss.dual_positive * token.now if 1 / frozen > loss.dual_positive else None
            factor = min(token.ratio, 1 + loss.high) / frozen / frozen if turned is None else turned
        found.append(-token.advantage * factor)
    return found


def fipo(loss: config.Fipo, row: list[Token], rows: Rows) -> list[float]:
    gamma, found = 2 ** (-1 / loss.half_life), []
    for place, token in enumerate(row):
        after = 0.0
        for distance, later in enumerate(row[place:]):
            counts = loss.ratio_cap is None or later.frozen_ratio <= loss.ratio_cap
            after += gamma**distance * (later.frozen - later.anchor) if counts else 0.0
        least, most = (0.0 if loss.lower is None else loss.lower), (math.inf if loss.upper is None else loss.upper)
        weight = held(math.exp(after), least, most)
        if loss.safety is not None and token.advantage < 0 and token.frozen_ratio > loss.safety:
            weight = held(weight, 0.8, 1.0)
        found.append(weight * clip_of(loss, token.ratio, token.advantage))
    return found


FORMULAS: dict[type[Objective], Callable[[Any, list[Token], Rows], list[float]]] = {
    config.Clip: clip,
    config.Gspo: gspo,
    config.Luspo: luspo,
    config.Cispo: cispo,
    config.Sapo: sapo,
    config.Gmpo: gmpo,
    config.ClipCov: clip_cov,
    config.KlCov: kl_cov,
    config.Reinforce: reinforce,
    config.ImportancePg: importance_pg,
    config.DppoTv: dppo_tv,
    config.DppoKl: dppo_kl,
    config.Topr: topr,
    config.Vespo: vespo,
    config.Dro: dro,
    config.Bapo: bapo,
    config.Aspo: aspo,
    config.Fipo: fipo,
}


def weighted(loss: Objective, rows: Rows) -> list[list[float]]:
    """The weighted loss of each token."""
    return [
        [token.weight * value for token, value in zip(row, FORMULAS[type(loss)](loss, row, rows), strict=True)]
        for row in rows
    ]


def reduced(reduction: Reduction, values: list[list[float]], prompts: list[int]) -> float:
    """One number from values per token; every row has tokens."""
    sums, tokens = [sum(row) for row in values], [len(row) for row in values]
    if reduction.mode == "prompt-mean":
        ids = sorted(set(prompts))
        return mean(
            [
                sum(s for s, prompt in zip(sums, prompts, strict=True) if prompt == each)
                / sum(n for n, prompt in zip(tokens, prompts, strict=True) if prompt == each)
                for each in ids
            ]
        )
    constant = reduction.constant or 1.0
    return {
        "token-mean": lambda: sum(sums) / sum(tokens),
        "token-sum": lambda: sum(sums) / constant,
        "seq-mean-token-mean": lambda: mean([s / n for s, n in zip(sums, tokens, strict=True)]),
        "seq-mean-token-sum": lambda: mean(sums),
        "seq-mean-token-sum-norm": lambda: mean(sums) / constant,
    }[reduction.mode]()


def value(loss: Objective, reduction: Reduction, rows: Rows) -> float:
    return reduced(reduction, weighted(loss, rows), [row[0].prompt for row in rows])


def slopes(loss: Objective, reduction: Reduction, rows: Rows, step: float = 1e-6) -> list[list[float]]:
    """The derivative with respect to each token's log-prob, by central differences."""

    def moved(i: int, j: int, by: float) -> float:
        changed = [list(row) for row in rows]
        changed[i][j] = replace(rows[i][j], now=rows[i][j].now + by)
        return value(loss, reduction, changed)

    return [
        [(moved(i, j, step) - moved(i, j, -step)) / (2 * step) for j in range(len(row))] for i, row in enumerate(rows)
    ]
