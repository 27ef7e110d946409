"""What a correction saw and did, as 0-d tensors by name. Worked out section by section, only when asked for.

Only valid units count: sequences without tokens never do, tokens without log-probs never do. Log-ratios are held within
±20 before they are exponentiated here, so that one token cannot make a mean infinite. docs/metrics.md lists every name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.algebra import Correction, Gate
from trimtab.core.batch import Batch
from trimtab.core.gate import Verdict, bounds
from trimtab.core.metric import k3
from trimtab.core.order import quantiles
from trimtab.core.ranks import Ranks
from trimtab.core.ratio import cleaned, is_inside
from trimtab.core.weight import Weighing

LIMIT = 20.0
POINTS = {"p01": 0.01, "p50": 0.5, "p99": 0.99}


@dataclass(frozen=True, eq=False)
class Trace:
    """Everything `correct` worked out on its way, for the metrics to read."""

    rule: Correction
    batch: Batch
    verdicts: tuple[Verdict, ...]
    weighing: Weighing | None
    kept: Float[Tensor, "*tokens"]
    weight: Float[Tensor, "*tokens"]

    @property
    def ranks(self) -> Ranks:
        """The ranks that hold the batch."""
        return self.batch.layout.ranks

    @property
    def log_r(self) -> Float[Tensor, "*tokens"]:
        """The log-ratio of the rule's own pair."""
        return self.batch.log_r[self.rule.pair]


Section = Callable[[Trace], dict[str, Tensor]]


@dataclass(frozen=True, eq=False)
class Metrics(Mapping[str, Tensor]):
    """A read-only dict of 0-d tensors; a value is worked out, with its section, when it is first read."""

    trace: Trace
    _found: dict[str, Tensor] = field(default_factory=dict[str, Tensor], repr=False)

    @cached_property
    def _table(self) -> dict[str, Section]:
        return _sections(self.trace)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._found:
            with torch.no_grad():
                self._found.update(self._table[name](self.trace))
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def gate_name(index: int, gate: Gate) -> str:
    """How a gate is called in metric names: its place, metric and level."""
    return f"gate/{index}-{gate.metric}-{gate.level}"


def _sections(trace: Trace) -> dict[str, Section]:
    """Each metric's name and the section it is worked out in; known from the rule alone."""
    table: dict[str, Section] = {}

    def add(names: str, section: Section, prefix: str = "") -> None:
        table.update(dict.fromkeys([f"{prefix}{name}" for name in names.split()], section))

    add("tokens sequences missing_fraction kept_fraction kept_sequence_fraction all_rejected", _counts)
    add("kl kl_reverse k3 chi2_token abs_log_r abs_log_r_max", _drift, "drift/")
    add("k3_reverse", _reverse, "drift/")
    add("prob_diff prob_diff_max", _probabilities, "drift/")
    add("drift/chi2_sequence perplexity/behavior perplexity/target perplexity/ratio", _perplexity)
    add("log_diff log_diff_abs log_diff_max log_diff_min", _perplexity, "perplexity/")
    add("mean std min max", _ratio, "ratio/")
    add("p01 p50 p99", _ratio_quantiles, "ratio/")
    add("abs_log_r_p50", _ratio_quantiles, "drift/")
    add("mean std min max ess", _weight, "weight/")
    if trace.weighing is not None:
        add("touched_high touched_low", _touched, "weight/")
        add("p01 p50 p99", _weight_quantiles, "weight/")
    for index, gate in enumerate(trace.rule.gates):
        name = f"{gate_name(index, gate)}/"
        add("mean std min max", _gate_statistic(index, name), name)
        add("p01 p50 p99", _gate_quantiles(index, name), name)
        add("rejected_tokens rejected_sequences high_tokens low_tokens", _gate_verdict(index, name), name)
    if trace.batch.advantages is not None:
        add("kept_given_positive kept_given_negative net_advantage mean_advantage", _selection, "selection/")
    return table


def _sum(value: Tensor) -> Tensor:
    return value.sum().double()


def _summed(ranks: Ranks, *sums: Tensor) -> tuple[Tensor, ...]:
    """Local sums as sums over the whole batch, in one collective."""
    return tuple(ranks.summed(torch.stack([each.double() for each in sums])).unbind())


def _per(total: Tensor, number: Tensor) -> Tensor:
    """A mean that is 0 where there is nothing to average."""
    return (total / number.clamp(min=torch.finfo(torch.float64).tiny)).float()


def _row_sum(trace: Trace, rows: Tensor) -> Tensor:
    return _sum(rows) * trace.ranks.row_share


def _present(rows: Tensor) -> Tensor:
    return rows.clamp(max=1.0)


def _described(value: Tensor, present: Tensor, ranks: Ranks, share: float = 1.0) -> dict[str, Tensor]:
    """Mean, biased standard deviation, least and greatest of the present values; two passes, so that nothing cancels."""
    held = value * present
    number, total = _sum(present), _sum(held)
    centre = _per(total, number)
    about = _sum((held - centre * present).square())  # about the mean as float32 has it; what that misses is added back
    second = about + 2 * centre.double() * total - number * centre.double().square()
    number, total, second = _summed(ranks, number * share, total * share, second * share)
    mean = total / number.clamp(min=1e-300)
    outside = (present - 1.0) * torch.finfo(value.dtype).max
    ends = [value.new_full((), -torch.inf)] * 2
    if value.numel():
        ends = [(held + outside).amax(), (outside - held).amax()]
    high, low = ranks.greatest(torch.stack(ends)).unbind()
    some = number > 0
    return {
        "mean": mean.float(),
        "std": (second / number.clamp(min=1e-300) - mean.square()).clamp(min=0.0).sqrt().float(),
        "min": torch.where(some, -low.float(), 0.0),
        "max": torch.where(some, high.float(), 0.0),
    }


def _counts(trace: Trace) -> dict[str, Tensor]:
    batch = trace.batch
    alive = _row_sum(trace, _present(batch.layout.total(trace.kept)))
    rows = _row_sum(trace, _present(batch.lengths))
    masked, valid, kept, alive, rows = _summed(
        trace.ranks, _sum(batch.masked), _sum(batch.valid), _sum(trace.kept), alive, rows
    )
    return {
        "tokens": valid.float(),
        "sequences": rows.float(),
        "missing_fraction": _per(masked - valid, masked),
        "kept_fraction": _per(kept, valid),
        "kept_sequence_fraction": _per(alive, rows),
        "all_rejected": (kept == 0).float(),
    }


def _drift(trace: Trace) -> dict[str, Tensor]:
    log_r = trace.log_r
    held = log_r.clamp(-LIMIT, LIMIT)
    excess = held.expm1()  # r − 1: 0 on masked tokens, so nothing needs masking here
    flat, flat_excess = held.flatten(), excess.flatten()
    number, total, weighted, square, linear = _summed(
        trace.ranks,
        _sum(trace.batch.valid),
        _sum(log_r),
        torch.dot(flat_excess, flat),
        torch.dot(flat_excess, flat_excess),
        _sum(excess),
    )
    estimate, distance = _summed(trace.ranks, _sum(excess.sub_(held).clamp_(min=0.0)), _sum(log_r.abs()))
    peak = trace.ranks.greatest(log_r.abs().amax() if log_r.numel() else log_r.new_zeros(()))
    return {
        "drift/kl": _per(-total, number),
        "drift/kl_reverse": _per(weighted + total, number),
        "drift/k3": _per(estimate, number),
        "drift/chi2_token": _per(square + 2 * linear, number),
        "drift/abs_log_r": _per(distance, number),
        "drift/abs_log_r_max": peak.float(),
    }


def _reverse(trace: Trace) -> dict[str, Tensor]:
    estimate, number = _summed(trace.ranks, _sum(k3(trace.log_r.clamp(-LIMIT, LIMIT).neg_())), _sum(trace.batch.valid))
    return {"drift/k3_reverse": _per(estimate, number)}


def _probabilities(trace: Trace) -> dict[str, Tensor]:
    target, base = trace.rule.pair.split("/")
    apart = (trace.batch.probability(target) - trace.batch.probability(base)).abs_()
    total, number = _summed(trace.ranks, _sum(apart), _sum(trace.batch.valid))
    peak = trace.ranks.greatest(apart.amax() if apart.numel() else apart.new_zeros(()))
    return {"drift/prob_diff": _per(total, number), "drift/prob_diff_max": peak.float()}


def _perplexity(trace: Trace) -> dict[str, Tensor]:
    batch = trace.batch
    lengths = batch.lengths.clamp(min=1.0)
    present = _present(batch.lengths)
    behavior = batch.layout.total(cleaned(batch.policies["behavior"], batch.valid)) / lengths
    total_log_r = batch.layout.total(trace.log_r)
    apart = total_log_r / lengths  # log perplexity of behavior less that of the target
    rows = [
        (-behavior).exp(),
        (-behavior - apart).exp(),
        (-apart).exp(),
        -apart,
        apart.abs(),
        (2 * total_log_r.clamp(-LIMIT, LIMIT)).expm1(),
    ]
    number, *sums = _summed(trace.ranks, _row_sum(trace, present), *(_row_sum(trace, each * present) for each in rows))
    names = [
        "perplexity/behavior",
        "perplexity/target",
        "perplexity/ratio",
        "perplexity/log_diff",
        "perplexity/log_diff_abs",
    ]
    means = dict(zip([*names, "drift/chi2_sequence"], (_per(each, number) for each in sums), strict=True))
    ends = _described(-apart, present, trace.ranks, trace.ranks.row_share)
    return means | {"perplexity/log_diff_max": ends["max"], "perplexity/log_diff_min": ends["min"]}


def _named(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": value for name, value in values.items()}


def _ratio(trace: Trace) -> dict[str, Tensor]:
    ratio = trace.log_r.clamp(-LIMIT, LIMIT).exp_()
    return _named("ratio/", _described(ratio, trace.batch.valid, trace.ranks))


def _points(value: Tensor, counted: Tensor, ranks: Ranks) -> dict[str, Tensor]:
    return dict(zip(POINTS, quantiles(value, counted, list(POINTS.values()), ranks).unbind(), strict=True))


def _ratio_quantiles(trace: Trace) -> dict[str, Tensor]:
    points = _points(trace.log_r, trace.batch.valid, trace.ranks)
    middle = quantiles(trace.log_r.abs(), trace.batch.valid, [0.5], trace.ranks)
    return _named("ratio/", {name: value.exp() for name, value in points.items()}) | {"drift/abs_log_r_p50": middle[0]}


def _weight(trace: Trace) -> dict[str, Tensor]:
    found = _named("weight/", _described(trace.weight, trace.kept, trace.ranks))
    flat = trace.weight.flatten()
    total, square, number = _summed(trace.ranks, _sum(flat), torch.dot(flat, flat), _sum(trace.batch.valid))
    return found | {"weight/ess": _per(total.square(), square * number)}


def _weight_quantiles(trace: Trace) -> dict[str, Tensor]:
    return _named("weight/", _points(trace.weight, trace.kept, trace.ranks))


def _touched(trace: Trace) -> dict[str, Tensor]:
    """The fraction of tokens whose raw ratio lies beyond a bound of the weight, each side apart."""
    weighed = trace.weighing
    assert weighed is not None
    raw, bounds = weighed.log_raw.exp(), weighed.weight
    share = 1.0 if weighed.units is None else trace.ranks.row_share
    high = (1.0 - is_inside(raw, None, bounds.upper)) * weighed.counted
    low = (1.0 - is_inside(raw, bounds.lower, None)) * weighed.counted
    above, below, number = _summed(trace.ranks, *(_sum(each) * share for each in (high, low, weighed.counted)))
    return {"weight/touched_high": _per(above, number), "weight/touched_low": _per(below, number)}


def _statistic(found: Verdict) -> Tensor:
    """One value per unit in the space users think in; for `every`, the value of the token farthest out."""
    value = found.high if found.low is found.high else torch.where(found.high >= -found.low, found.high, found.low)
    return value.clamp(-LIMIT, LIMIT).exp() if found.gate.metric == "ratio" else value


def _gate_statistic(index: int, name: str) -> Section:
    def section(trace: Trace) -> dict[str, Tensor]:
        found = trace.verdicts[index]
        share = 1.0 if found.units is None else trace.ranks.row_share
        return _named(name, _described(_statistic(found), _present(found.counted), trace.ranks, share))

    return section


def _gate_quantiles(index: int, name: str) -> Section:
    def section(trace: Trace) -> dict[str, Tensor]:
        found = trace.verdicts[index]
        return _named(name, _points(_statistic(found), _present(found.counted), trace.ranks))

    return section


def _gate_verdict(index: int, name: str) -> Section:
    def section(trace: Trace) -> dict[str, Tensor]:
        found, layout = trace.verdicts[index], trace.batch.layout
        fails = found.scope * (1.0 - found.passes)
        judged, lost = layout.total(found.scope), layout.total(fails)
        gone = _present(judged) * (lost == judged)
        high, low = (fails * side for side in _sides(found))
        sums = _summed(
            trace.ranks,
            _sum(found.scope),
            _sum(fails),
            _sum(high),
            _sum(low),
            _row_sum(trace, _present(judged)),
            _row_sum(trace, gone),
        )
        number, fallen, above, below, rows, whole = sums
        return _named(
            name,
            {
                "rejected_tokens": _per(fallen, number),
                "rejected_sequences": _per(whole, rows),
                "high_tokens": _per(above, number),
                "low_tokens": _per(below, number),
            },
        )

    return section


def _sides(found: Verdict) -> tuple[Tensor, Tensor]:
    """Which units lie above the upper bound, and which below the lower one, over the tokens."""
    lower, upper = bounds(found.gate)
    sides = (1.0 - is_inside(found.high, None, upper)), (1.0 - is_inside(found.low, lower, None))
    if found.gate.agg == "budget":
        sides = (1.0 - found.stays), torch.zeros_like(found.stays)
    high, low = (side if found.units is None else found.units.spread(side) for side in sides)
    return high, low


def _selection(trace: Trace) -> dict[str, Tensor]:
    """Does the filter keep right answers as often as wrong ones? A kept set with negative mean advantage only pushes down."""
    advantages = trace.batch.advantages
    assert advantages is not None
    kept, valid = trace.kept, trace.batch.valid
    up = torch.gt(advantages, 0.0, out=torch.empty_like(advantages))
    down = torch.lt(advantages, 0.0, out=torch.empty_like(advantages))
    parts = (up, up * kept, down, down * kept, advantages, advantages * kept, valid, kept)
    ups, ups_kept, downs, downs_kept, whole, net, number, left = _summed(trace.ranks, *(_sum(each) for each in parts))
    return {
        "selection/kept_given_positive": _per(ups_kept, ups),
        "selection/kept_given_negative": _per(downs_kept, downs),
        "selection/net_advantage": _per(net, left),
        "selection/mean_advantage": _per(whole, number),
    }
