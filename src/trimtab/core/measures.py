"""The metrics of a correction, a section of names each. Only valid units count.

Every number is finite: log-ratios are held within ±20 before they are exponentiated here, weights, perplexities and what gates
measured within ±MOST, and sums run in float64. One token cannot make a mean infinite.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from trimtab.core.batch import UNKNOWN_AGE, Batch
from trimtab.core.bounds import Bound
from trimtab.core.decisions import Decisions
from trimtab.core.divergence import k3
from trimtab.core.quantiles import quantiles
from trimtab.core.ranks import Ranks
from trimtab.core.ratio import (
    above,
    below,
    is_inside,
    number_of,
    saturating_cast,
    small_sum_of,
    squares_of,
    sum_of,
    zero_outside,
)
from trimtab.core.sums import (
    GAPS,
    LIMIT,
    MEANS,
    MOST,
    POINTS,
    SELECTION,
    TOUCHED,
    as_metric,
    describe,
    has_tokens,
    means,
    over_ranks,
    quotient,
    sum_of_rows,
    total_sums,
    with_prefix,
)

Measure = Callable[[Decisions], dict[str, Tensor]]


def counts(decisions: Decisions) -> dict[str, Tensor]:
    """How many tokens and sequences there are, lack log-probs, and stay."""
    batch, lengths = decisions.batch, decisions.batch.layout.count(decisions.kept)
    rows, some_kept = (sum_of_rows(decisions.ranks, has_tokens(each)) for each in (batch.lengths, lengths))
    masked = batch.mask.view(torch.uint8).sum(dtype=torch.int32).double()
    local = {
        "masked": masked,
        "tokens": decisions.number,
        "kept": number_of(decisions.kept),
        "kept_rows": some_kept,
        "rows": rows,
    }
    sums = total_sums(decisions.ranks, local)
    numbers = {"tokens": sums["tokens"].float(), "sequences": sums["rows"].float()}
    sums |= {"missing": sums["masked"] - sums["tokens"]}
    return numbers | means(MEANS, sums) | {"all_rejected": (sums["kept"] == 0).float()}


def drift(decisions: Decisions) -> dict[str, Tensor]:
    """How far the two policies lie apart on the tokens."""
    log_r = decisions.log_r
    limited = log_r.clamp(-LIMIT, LIMIT)
    excess = limited.expm1()  # r − 1: 0 on masked tokens, so nothing needs masking here
    square, linear = small_sum_of(excess.square()), small_sum_of(excess)  # at most e^40: far from the ends of float32
    weighted = small_sum_of(torch.addcmul(limited, excess, limited))  # r·ℓ = ℓ + (r − 1)·ℓ
    estimate = small_sum_of(excess.sub_(limited).clamp_(min=0.0))
    distances = torch.abs(log_r, out=limited)
    total = sum_of_rows(decisions.ranks, decisions.total_log_r)
    local = {
        "tokens": decisions.number,
        "log_r": total,
        "r_log_r": weighted,
        "excess_squares": square,
        "excess": linear,
    }
    sums = total_sums(decisions.ranks, local | {"k3": estimate, "abs_log_r": sum_of(distances)})
    sums |= {"minus_log_r": 0.0 - sums["log_r"], "chi2_token": sums["excess_squares"] + 2 * sums["excess"]}
    peak = decisions.ranks.greatest(distances.amax() if log_r.numel() else log_r.new_zeros(()))
    return means(MEANS, sums) | {"drift/abs_log_r_max": as_metric(peak)}


def reverse(decisions: Decisions) -> dict[str, Tensor]:
    """k3 in the other direction."""
    estimate = small_sum_of(k3(decisions.log_r.clamp(-LIMIT, LIMIT).neg_()))
    return means(MEANS, total_sums(decisions.ranks, {"k3_reverse": estimate, "tokens": decisions.number}))


def probabilities(decisions: Decisions) -> dict[str, Tensor]:
    """How far the probabilities lie apart."""
    target, base = decisions.rule.pair.split("/")
    apart = (decisions.batch.probability(target) - decisions.batch.probability(base)).abs_()
    sums = total_sums(decisions.ranks, {"prob_diff": sum_of(apart), "tokens": decisions.number})
    peak = decisions.ranks.greatest(apart.amax() if apart.numel() else apart.new_zeros(()))
    return means(MEANS, sums) | {"drift/prob_diff_max": as_metric(peak)}


def perplexity(decisions: Decisions) -> dict[str, Tensor]:
    """How surprised each policy is, sequence by sequence."""
    batch = decisions.batch
    lengths = batch.lengths.clamp(min=1.0)
    present = has_tokens(batch.lengths)
    behavior = batch.layout.sums(zero_outside(batch.log_probs("behavior"), batch.valid)) / lengths
    apart = decisions.total_log_r / lengths  # log perplexity of behavior less that of the target
    most = math.log(MOST)
    rows = {
        "perplexity_behavior": (-behavior).clamp(max=most).exp(),
        "perplexity_target": (-behavior - apart).clamp(max=most).exp(),
        "perplexity_ratio": (-apart).clamp(max=most).exp(),
        "log_diff": -apart,
        "log_diff_abs": apart.abs(),
        "chi2_sequence": (2 * decisions.total_log_r.clamp(-LIMIT, LIMIT)).expm1(),
    }
    local = {name: sum_of_rows(decisions.ranks, each * present) for name, each in rows.items()}
    sums = total_sums(decisions.ranks, {"rows": sum_of_rows(decisions.ranks, present)} | local)
    apart = saturating_cast(apart, torch.float32).clamp(-MOST, MOST).to(present.dtype)
    ends = describe(-apart * present, present, sum_of(present), decisions.ranks, decisions.ranks.row_share)
    return means(MEANS, sums) | {
        "perplexity/log_diff_max": as_metric(ends.greatest),
        "perplexity/log_diff_min": as_metric(ends.least),
    }


def raw_ratio(decisions: Decisions) -> dict[str, Tensor]:
    """The raw ratio before any bound."""
    valid = decisions.batch.valid
    value = decisions.log_r.clamp(-LIMIT, LIMIT).exp_().mul_(valid)
    return describe(value, valid, decisions.number, decisions.ranks, least=0.0).as_metrics("ratio/")


def quantile_points(value: Tensor, counted: Tensor, ranks: Ranks) -> dict[str, Tensor]:
    """The quantiles that are reported, by name."""
    return dict(zip(POINTS, quantiles(value, counted, list(POINTS.values()), ranks).unbind(), strict=True))


def ratio_quantiles(decisions: Decisions) -> dict[str, Tensor]:
    """The raw ratio where one token cannot own the figure."""
    ratio = decisions.log_r.clamp(-LIMIT, LIMIT).exp_()
    middle = quantiles(decisions.log_r.abs(), decisions.batch.valid, [0.5], decisions.ranks)
    points = with_prefix("ratio/", quantile_points(ratio, decisions.batch.valid, decisions.ranks))
    return points | {"drift/abs_log_r_p50": as_metric(middle[0])}


def weight(decisions: Decisions) -> dict[str, Tensor]:
    """The weight of the kept tokens, and the effective share of the trained ones: a rejected token weighs 0."""
    return _weights(decisions, decisions.weight.clamp(max=MOST), "weight/")


def raw_weight(decisions: Decisions) -> dict[str, Tensor]:
    """The same before bounds, zeroing gates and normalisation."""
    assert decisions.weighing is not None
    raw = decisions.weighing.log_raw.clamp(max=math.log(MOST)).exp_()
    return _weights(decisions, decisions.weighing.spread(raw) * decisions.kept, "weight/raw_")


def _weights(decisions: Decisions, values: Tensor, prefix: str) -> dict[str, Tensor]:
    weights = describe(values, decisions.kept, number_of(decisions.kept), decisions.ranks, least=0.0)
    (trained,) = over_ranks(decisions.ranks, decisions.number)
    square = weights.variance + weights.mean.square()
    # Σw = number · mean and Σw² = number · square: (Σw)² / (trained · Σw²) is this
    ess = quotient(weights.number * weights.mean.square(), square * trained)
    return weights.as_metrics(prefix) | {f"{prefix}ess": ess}


AGES = {"0": (0.0, 0.0), "1": (1.0, 1.0), "2-3": (2.0, 3.0), "4-7": (4.0, 7.0), "8-up": (8.0, UNKNOWN_AGE - 1)}
"""Bands of ages, in versions: the least and the greatest of each. A token whose age is not known is in none."""


def ess_by_age(decisions: Decisions) -> dict[str, Tensor]:
    """The effective share of the tokens of each age."""
    age, valid = decisions.batch.age, decisions.batch.valid
    assert age is not None
    weights = decisions.weight.clamp(max=MOST)
    sums: list[Tensor] = []
    for least, most in AGES.values():
        band = is_inside(age, least, most).mul_(valid)
        part = weights * band
        sums += [sum_of(part), squares_of(part), number_of(band)]
    totals_of_bands = over_ranks(decisions.ranks, *sums)
    totals, squares, numbers = totals_of_bands[0::3], totals_of_bands[1::3], totals_of_bands[2::3]
    return {
        f"weight/ess_age/{name}": quotient(total.square(), square * number)
        for name, total, square, number in zip(AGES, totals, squares, numbers, strict=True)
    }


def weight_quantiles(decisions: Decisions) -> dict[str, Tensor]:
    """The weight where one token cannot own the figure."""
    return with_prefix("weight/", quantile_points(decisions.weight.clamp(max=MOST), decisions.kept, decisions.ranks))


def beyond_bounds(decisions: Decisions) -> dict[str, Tensor]:
    """The fraction of tokens whose raw ratio lies beyond a bound of the weight, each side apart."""
    weighed = decisions.weighing
    assert weighed is not None
    counted = weighed.counted.flatten()
    number = small_sum_of(counted)

    def beyond(lower: Bound, upper: Bound) -> Tensor:
        if lower is None and upper is None:  # no bound on this side
            return torch.zeros_like(number)
        return number - small_sum_of(is_inside(weighed.log_raw, lower, upper).flatten().mul_(counted))

    local = {
        "above": beyond(None, weighed.bounds.upper),
        "below": beyond(weighed.bounds.lower, None),
        "weighed": number,
    }
    sums = total_sums(decisions.ranks, local)  # of sequences, each as often as it has ranks: shares are the same
    return means(TOUCHED, sums)


def found_weight_bound(decisions: Decisions) -> dict[str, Tensor]:
    """The upper bound of the weight that was found in the batch."""
    assert decisions.weighing is not None
    return {"weight/upper": bound_figure(decisions.weighing.bounds.upper, of_ratio=True)}


def bound_figure(bound: Bound, *, of_ratio: bool) -> Tensor:
    """A bound that was found in the batch, as it is reported."""
    assert isinstance(bound, Tensor)
    return as_metric((bound.double().exp() if of_ratio else bound.double()).clamp(max=MOST))


def advantage_gaps(decisions: Decisions) -> dict[str, Tensor]:
    """How much of what is trained came without a usable advantage."""
    return missing_advantages(decisions.batch)


def doubtful(decisions: Decisions) -> dict[str, Tensor]:
    """How much of what is trained came with something else than log-probs, or with a mask of neither 0 nor 1."""
    return doubtful_tokens(decisions.batch)


def doubtful_tokens(tokens: Batch) -> dict[str, Tensor]:
    """Valid tokens with a log-prob above 0, and with a mask of neither 0 nor 1 / valid tokens, over all ranks."""
    valid = number_of(tokens.valid)
    partial = torch.zeros_like(valid) if tokens.partial is None else sum_of(tokens.partial)
    local = {"doubtful": tokens.positive(), "partial": partial, "tokens": valid}
    return means(MEANS, total_sums(tokens.layout.ranks, local))


def missing_advantages(tokens: Batch) -> dict[str, Tensor]:
    """Valid tokens whose advantage is NaN or infinite, which is taken as 0 / valid tokens, over all ranks."""
    assert tokens.unvalued is not None
    local = {"unvalued": sum_of(tokens.unvalued), "tokens": number_of(tokens.valid)}
    return means(GAPS, total_sums(tokens.layout.ranks, local))


def selection(decisions: Decisions) -> dict[str, Tensor]:
    """Does the filter keep right answers as often as wrong ones? A kept set with negative mean advantage only pushes down.

    Kept is here what acts: a token that was zeroed is lost to the step like one that was rejected.
    """
    advantages = decisions.batch.advantages
    assert advantages is not None
    kept, valid = above(decisions.weight, 0.0), decisions.batch.valid
    up, down = above(advantages, 0.0), below(advantages, 0.0)
    marks = {"positive": up, "positive_acting": up * kept, "negative": down, "negative_acting": down * kept}
    local = {name: small_sum_of(each) for name, each in (marks | {"tokens": valid, "acting": kept}).items()}
    local |= {"advantage": sum_of(advantages), "acting_advantage": sum_of(advantages * kept)}
    return means(SELECTION, total_sums(decisions.ranks, local))
