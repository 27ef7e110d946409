"""What a correction saw and did, as 0-d tensors by name. Worked out section by section, only when asked for.

Only valid units count: sequences without tokens never do, tokens without log-probs never do. Log-ratios are held within
±20 before they are exponentiated here, so that one token cannot make a mean infinite. docs/metrics.md lists every name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.algebra import Correction, Gate
from trimtab.core.batch import Batch, Scope
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
    kept: Scope
    stays: Float[Tensor, "*tokens"]  # `kept` over the tokens
    weight: Float[Tensor, "*tokens"]

    def count(self, tokens: Tensor, rows: Tensor) -> Float[Tensor, ""]:
        """How many of the indicated tokens this rank holds; `rows`, their number per sequence, spares a pass over them."""
        return _sum(rows if self.ranks.context is None else tokens)

    @property
    def number(self) -> Float[Tensor, ""]:
        """How many valid tokens this rank holds."""
        return self.count(self.batch.valid, self.batch.lengths)

    @property
    def ranks(self) -> Ranks:
        """The ranks that hold the batch."""
        return self.batch.layout.ranks

    @property
    def log_r(self) -> Float[Tensor, "*tokens"]:
        """The log-ratio of the rule's own pair."""
        return self.batch.log_r[self.rule.pair]


Section = Callable[[Trace], dict[str, Tensor]]


def _nothing() -> dict[str, Tensor]:
    return {}


def _no_sections() -> dict[str, Section]:
    return {}


@dataclass(frozen=True, eq=False)
class Metrics(Mapping[str, Tensor]):
    """A read-only dict of 0-d tensors; a value is worked out, with its section, when it is first read."""

    trace: Trace
    _found: dict[str, Tensor] = field(default_factory=_nothing, repr=False)
    _sections: dict[str, Section] = field(default_factory=_no_sections, repr=False)

    @property
    def _table(self) -> dict[str, Section]:
        if not self._sections:
            self._sections.update(_sections(self.trace))
        return self._sections

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
    if ranks.whole is None:
        return sums
    return tuple(ranks.summed(torch.stack([each.double() for each in sums])).unbind())


def _per(total: Tensor, number: Tensor) -> Tensor:
    """A mean that is 0 where there is nothing to average."""
    return (total / number.clamp(min=torch.finfo(torch.float64).tiny)).float()


def _row_sum(trace: Trace, rows: Tensor) -> Tensor:
    return _sum(rows) * trace.ranks.row_share


def _present(rows: Tensor) -> Tensor:
    return rows.clamp(max=1.0)


def _described(
    held: Tensor,
    present: Tensor,
    number: Tensor,
    ranks: Ranks,
    share: float = 1.0,
    least: float = -math.inf,
    room: Tensor | None = None,
) -> dict[str, Tensor]:
    """Mean, biased standard deviation, least and greatest of the present values; `held` is 0 where they are not.

    Two passes, so that nothing cancels. Where no value is below `least` >= 0, the absent zeros cannot be the greatest.
    """
    room = torch.empty_like(held) if room is None else room
    total = _sum(held)
    centre = _per(total, number)
    apart = torch.addcmul(
        held, present, -centre.to(held.dtype), out=room
    ).flatten()  # about the mean as float32 has it …
    second = (
        torch.dot(apart, apart).double() + 2 * centre.double() * total - number * centre.double().square()
    )  # … and back
    number, total, second = _summed(ranks, number * share, total * share, second * share)
    mean = total / number.clamp(min=1e-300)
    high, low = ranks.greatest(_ends(held, present, room, least)).unbind()
    some = number > 0
    return {
        "mean": mean.float(),
        "std": (second / number.clamp(min=1e-300) - mean.square()).clamp(min=0.0).sqrt().float(),
        "min": torch.where(some, 0.0 - low.float(), 0.0),
        "max": torch.where(some, high.float(), 0.0),
    }


def _ends(held: Tensor, present: Tensor, room: Tensor, least: float) -> Tensor:
    """The greatest present value and minus the least; `room` is written over."""
    if not held.numel():
        return held.new_full((2,), -torch.inf)
    outside = torch.sub(present, 1.0, out=room).mul_(torch.finfo(held.dtype).max)  # 0 or the lowest number
    high = held.amax() if least >= 0 else (held + outside).amax()
    return torch.stack([high, outside.sub_(held).amax()])


def _counts(trace: Trace) -> dict[str, Tensor]:
    batch, lengths = trace.batch, trace.kept.lengths()
    alive, rows = _row_sum(trace, _present(lengths)), _row_sum(trace, _present(batch.lengths))
    kept = _row_sum(trace, lengths)
    masked = _sum(room := batch.room().copy_(_bytes(batch.mask)))
    batch.keep_room(room)
    masked, valid, kept, alive, rows = _summed(trace.ranks, masked, trace.number, kept, alive, rows)
    return {
        "tokens": valid.float(),
        "sequences": rows.float(),
        "missing_fraction": _per(masked - valid, masked),
        "kept_fraction": _per(kept, valid),
        "kept_sequence_fraction": _per(alive, rows),
        "all_rejected": (kept == 0).float(),
    }


def _bytes(mask: Tensor) -> Tensor:
    return (mask if mask.dtype == torch.bool else mask != 0).view(torch.uint8)


def _drift(trace: Trace) -> dict[str, Tensor]:
    log_r, held, excess = trace.log_r, trace.batch.room(), trace.batch.room()
    torch.clamp(log_r, -LIMIT, LIMIT, out=held)
    torch.expm1(held, out=excess)  # r − 1: 0 on masked tokens, so nothing needs masking here
    flat, flat_excess = held.flatten(), excess.flatten()
    weighted, square, linear = torch.dot(flat_excess, flat), torch.dot(flat_excess, flat_excess), _sum(excess)
    estimate = _sum(excess.sub_(held).clamp_(min=0.0))
    distances = torch.abs(log_r, out=held)
    total = _row_sum(trace, trace.batch.row_total(trace.rule.pair, None))
    number, total, weighted, square, linear, estimate, distance = _summed(
        trace.ranks, trace.number, total, weighted, square, linear, estimate, _sum(distances)
    )
    peak = trace.ranks.greatest(distances.amax() if log_r.numel() else log_r.new_zeros(()))
    trace.batch.keep_room(held, excess)
    return {
        "drift/kl": _per(0.0 - total, number),
        "drift/kl_reverse": _per(weighted + total, number),
        "drift/k3": _per(estimate, number),
        "drift/chi2_token": _per(square + 2 * linear, number),
        "drift/abs_log_r": _per(distance, number),
        "drift/abs_log_r_max": peak.float(),
    }


def _reverse(trace: Trace) -> dict[str, Tensor]:
    estimate, number = _summed(trace.ranks, _sum(k3(trace.log_r.clamp(-LIMIT, LIMIT).neg_())), trace.number)
    return {"drift/k3_reverse": _per(estimate, number)}


def _probabilities(trace: Trace) -> dict[str, Tensor]:
    target, base = trace.rule.pair.split("/")
    apart = (trace.batch.probability(target) - trace.batch.probability(base)).abs_()
    total, number = _summed(trace.ranks, _sum(apart), trace.number)
    peak = trace.ranks.greatest(apart.amax() if apart.numel() else apart.new_zeros(()))
    return {"drift/prob_diff": _per(total, number), "drift/prob_diff_max": peak.float()}


def _clean_behavior(batch: Batch) -> Tensor:
    log_probs, valid = batch.policies["behavior"].detach(), batch.valid
    if log_probs.dtype != valid.dtype:
        return cleaned(log_probs, valid)
    return torch.nan_to_num(log_probs, nan=0.0, posinf=0.0, neginf=0.0, out=batch.room()).mul_(valid)


def _perplexity(trace: Trace) -> dict[str, Tensor]:
    batch = trace.batch
    lengths = batch.lengths.clamp(min=1.0)
    present = _present(batch.lengths)
    behavior = batch.layout.total(room := _clean_behavior(batch)) / lengths
    batch.keep_room(room)
    total_log_r = batch.row_total(trace.rule.pair, None)
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
    ends = _described(-apart * present, present, _sum(present), trace.ranks, trace.ranks.row_share)
    return means | {"perplexity/log_diff_max": ends["max"], "perplexity/log_diff_min": ends["min"]}


def _named(prefix: str, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}{name}": value for name, value in values.items()}


def _ratio(trace: Trace) -> dict[str, Tensor]:
    batch = trace.batch
    ratio, room = torch.clamp(trace.log_r, -LIMIT, LIMIT, out=batch.room()).exp_().mul_(batch.valid), batch.room()
    found = _named("ratio/", _described(ratio, batch.valid, trace.number, trace.ranks, least=0.0, room=room))
    batch.keep_room(ratio, room)
    return found


def _points(value: Tensor, counted: Tensor, ranks: Ranks) -> dict[str, Tensor]:
    return dict(zip(POINTS, quantiles(value, counted, list(POINTS.values()), ranks).unbind(), strict=True))


def _ratio_quantiles(trace: Trace) -> dict[str, Tensor]:
    points = _points(trace.log_r, trace.batch.valid, trace.ranks)
    middle = quantiles(trace.log_r.abs(), trace.batch.valid, [0.5], trace.ranks)
    return _named("ratio/", {name: value.exp() for name, value in points.items()}) | {"drift/abs_log_r_p50": middle[0]}


def _weight(trace: Trace) -> dict[str, Tensor]:
    left = trace.count(trace.stays, trace.kept.lengths())
    found = _described(trace.weight, trace.stays, left, trace.ranks, least=0.0, room=(room := trace.batch.room()))
    trace.batch.keep_room(room)
    flat = trace.weight.flatten()
    total, square, number = _summed(trace.ranks, _sum(flat), torch.dot(flat, flat).double(), trace.number)
    return _named("weight/", found) | {"weight/ess": _per(total.square(), square * number)}


def _weight_quantiles(trace: Trace) -> dict[str, Tensor]:
    return _named("weight/", _points(trace.weight, trace.stays, trace.ranks))


def _touched(trace: Trace) -> dict[str, Tensor]:
    """The fraction of tokens whose raw ratio lies beyond a bound of the weight, each side apart."""
    weighed = trace.weighing
    assert weighed is not None
    counted, share = weighed.counted.flatten(), 1.0 if weighed.units is None else trace.ranks.row_share
    number = _sum(counted)

    def beyond(lower: float | None, upper: float | None) -> Tensor:
        if not (lower or upper):  # no bound on this side; nothing is below 0
            return torch.zeros_like(number)
        inside = is_inside(weighed.log_raw, math.log(lower) if lower else None, math.log(upper) if upper else None)
        return number - torch.dot(inside.flatten(), counted)

    sums = (beyond(None, weighed.weight.upper), beyond(weighed.weight.lower, None), number)
    above, below, number = _summed(trace.ranks, *(each * share for each in sums))
    return {"weight/touched_high": _per(above, number), "weight/touched_low": _per(below, number)}


def _statistic(found: Verdict) -> Tensor:
    """One value per unit in the space users think in; for `every`, the value of the token farthest out."""
    value = found.high if found.low is found.high else torch.where(found.high >= -found.low, found.high, found.low)
    return value.clamp(-LIMIT, LIMIT).exp() if found.gate.metric == "ratio" else value


def _gate_statistic(index: int, name: str) -> Section:
    def section(trace: Trace) -> dict[str, Tensor]:
        found = trace.verdicts[index]
        share = 1.0 if found.units is None else trace.ranks.row_share
        present = _present(found.counted)
        return _named(name, _described(_statistic(found) * present, present, _sum(present), trace.ranks, share))

    return section


def _gate_quantiles(index: int, name: str) -> Section:
    def section(trace: Trace) -> dict[str, Tensor]:
        found = trace.verdicts[index]
        return _named(name, _points(_statistic(found), _present(found.counted), trace.ranks))

    return section


def _gate_verdict(index: int, name: str) -> Section:
    def section(trace: Trace) -> dict[str, Tensor]:
        found = trace.verdicts[index]
        judged, lost, above, below = _fallen(trace, found)
        gone = _present(judged) * (lost == judged)
        sums = (judged, lost, above, below, _present(judged), gone)
        number, fallen, high, low, rows, whole = _summed(trace.ranks, *(_row_sum(trace, each) for each in sums))
        parts = {"rejected_tokens": (fallen, number), "rejected_sequences": (whole, rows)}
        parts |= {"high_tokens": (high, number), "low_tokens": (low, number)}
        return _named(name, {part: _per(*fraction) for part, fraction in parts.items()})

    return section


def _fallen(trace: Trace, found: Verdict) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Tokens judged, lost, lost above the upper bound and lost below the lower one, per sequence."""
    high, low = _sides(found)
    if found.by_row:
        judged = found.scope.lengths()
        lost = judged * (1.0 - found.passes)
        return judged, lost, lost * high, lost * low
    scope, total = found.scope.laid(), trace.batch.layout.total
    fails = scope * (1.0 - found.laid())
    if found.units is not None:
        high, low = found.units.spread(high), found.units.spread(low)
    return total(scope), total(fails), total(fails * high), total(fails * low)


def _sides(found: Verdict) -> tuple[Tensor, Tensor]:
    """Which units lie above the upper bound, and which below the lower one."""
    if found.gate.agg == "budget":
        return 1.0 - found.stays, torch.zeros_like(found.stays)
    lower, upper = bounds(found.gate)
    return 1.0 - is_inside(found.high, None, upper), 1.0 - is_inside(found.low, lower, None)


def _selection(trace: Trace) -> dict[str, Tensor]:
    """Does the filter keep right answers as often as wrong ones? A kept set with negative mean advantage only pushes down."""
    advantages = trace.batch.advantages
    assert advantages is not None
    kept, valid = trace.stays, trace.batch.valid
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
