"""The tensors of one call, checked and made finite: what every gate and weight reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.config.correction import Limit
from trimtab.core.cached import cached
from trimtab.core.head import HeadLogProbs, buckets_of, head_divergence
from trimtab.core.inputs import (
    check_device,
    check_group,
    check_like,
    number_of_sequences,
    per_token,
    rounding,
)
from trimtab.core.layout import Layout, Turns, run_index, turn_units
from trimtab.core.ratio import above, indicator, is_finite, number_of, working_type, zero_outside
from trimtab.errors import InputError

UNKNOWN_AGE = float(2**24)
"""The age of a token whose version is not known: never read as fresh, and exact in every number type."""


def _no_edits() -> dict[str, int | None]:
    return {}


def edits(tensor: Tensor) -> int | None:
    """How often a tensor was changed in place, where torch counts."""
    return None if torch.compiler.is_compiling() or tensor.is_inference() else tensor._version


def check_unchanged(policy: str, log_probs: Tensor, before: int | None) -> None:
    """Log-probs are what they were when they had been changed `before` times."""
    now = edits(log_probs)
    if before is not None and now is not None and before != now:
        raise InputError(
            f"Metrics need the {policy} log-probs they are worked out from, got a tensor that was modified in place. "
            "Read the metrics first, or pass a copy."
        )


@dataclass(frozen=True, eq=False)
class LogRatio:
    """The log-ratio of a pair, and its sum over each sequence: gates, weight and metrics ask for the same one."""

    layout: Layout
    per_token: Float[Tensor, "*tokens"]

    @cached
    def per_sequence(self) -> Float[Tensor, " rows"]:
        """In float64."""
        return self.layout.sums(self.per_token)


@dataclass(frozen=True, eq=False)
class Batch:
    """Finite log-ratios and indicators of one batch. `valid` is the mask less the tokens whose log-probs are missing."""

    layout: Layout
    mask: Bool[Tensor, "*tokens"]  # a copy
    valid: Float[Tensor, "*tokens"]
    log_r: Mapping[str, Float[Tensor, "*tokens"]]  # by pair, 0 outside `valid`
    policies: Mapping[str, Tensor]  # as given; read by `log_probs`
    advantages: Float[Tensor, "*tokens"] | None
    unvalued: Float[Tensor, ""] | None = (
        None  # valid tokens of this rank whose advantage is NaN or infinite, and taken as 0
    )
    partial: Float[Tensor, ""] | None = (
        None  # valid tokens of this rank whose mask is a number other than 1; None: it is boolean
    )
    head: HeadLogProbs | None = None
    age: Float[Tensor, "*tokens"] | None = None  # in versions; unknown ones hold `UNKNOWN_AGE`, 0 outside `valid`
    entropy: Float[Tensor, "*tokens"] | None = (
        None  # of each token's distribution; 0 outside `valid` and where not known
    )
    group: Int[Tensor, " rows"] | None = None  # a number from 0 for the group of each sequence of this rank
    _edits: Mapping[str, int | None] = field(default_factory=_no_edits)
    _ratios: tuple[LogRatio, ...] = ()

    @cached
    def lengths(self) -> Float[Tensor, " rows"]:
        """How many valid tokens each sequence has."""
        return self.layout.count(self.valid)

    @cached
    def turns(self) -> Turns:
        """The contiguous runs of `valid` as units."""
        return turn_units(self.layout, run_index(self.layout, self.valid))

    def count(self, units: Layout, scope: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        """How many tokens of each unit are in `scope`."""
        return self.lengths if units is self.layout and scope is self.valid else units.count(scope)

    def sums(self, units: Layout, value: Float[Tensor, "*tokens"]) -> Float[Tensor, " units"]:
        """The sum over each unit, in float64; that of a log-ratio over sequences is worked out once."""
        known = (each.per_sequence for each in self._ratios if each.per_token is value and units is self.layout)
        found = next(known, None)
        return units.sums(value) if found is None else found

    def log_r_over(self, scope: Float[Tensor, "*tokens"], pair: str, limit: Limit | None) -> Float[Tensor, "*tokens"]:
        """The log-ratio of a pair on the tokens in `scope`, 0 elsewhere, held within a limit that bites on tokens."""
        log_r = self.log_r[pair]
        if limit is not None and limit.at == "token":
            log_r = log_r.clamp(-limit.bound, limit.bound)
        return log_r if scope is self.valid else log_r * scope  # a log-ratio is 0 outside `valid` already

    def probability(self, policy: str) -> Float[Tensor, "*tokens"]:
        """The probability of each token under a policy; 1 outside `valid`, and finite whatever a log-prob claims."""
        return zero_outside(self.log_probs(policy), self.valid).exp_().clamp_(max=torch.finfo(self.valid.dtype).max)

    def improbability(self, policy: str) -> Float[Tensor, "*tokens"]:
        """1 less the probability of each token under a policy; 0 outside `valid`, and never negative."""
        return zero_outside(self.log_probs(policy), self.valid).expm1_().neg_().clamp_(min=0.0)

    def positive(self) -> Float[Tensor, ""]:
        """How many valid tokens of this rank have a log-prob above 0, beyond rounding, under some policy."""
        kind, given = self.valid.dtype, [self.log_probs(policy) for policy in self.policies]
        marks = [above(each, rounding(each.dtype)).to(kind) for each in given]
        for mark in marks[1:]:
            torch.maximum(marks[0], mark, out=marks[0])
        return number_of(marks[0].mul_(self.valid))

    def over_head(self, metric: str, direction: str | None, pair: str) -> Float[Tensor, "*tokens"]:
        """A divergence of a pair over the head of each token; 0 outside `valid`."""
        assert self.head is not None
        target, base = pair.split("/")
        sampled = {name: zero_outside(self.log_probs(name), self.valid) for name in (target, base)}
        buckets = buckets_of(self.head, (target, base), self.valid.dtype, sampled)
        divergence = head_divergence(metric, direction, buckets, target, base, self.valid.numel())
        return zero_outside(divergence.view(self.valid.shape), self.valid)

    def log_probs(self, policy: str) -> Tensor:
        """Log-probs as given. A copy would cost as much as the correction; so a change made since is an error, not another number."""
        given = self.policies[policy].detach()
        check_unchanged(policy, given, self._edits.get(policy))
        return given


def batch(
    policies: Mapping[str, Tensor],
    pairs: tuple[str, ...],
    mask: Tensor,
    layout: Layout,
    *,
    advantages: Tensor | None,
    head: HeadLogProbs | None = None,
    age: Tensor | None = None,
    entropy: Tensor | None = None,
    group: Tensor | None = None,
) -> Batch:
    """The tensors of a call, cleaned. `inputs.checked_layout` has checked policies and mask; what stands beside them is checked here.

    Data never raises, only shapes, types and devices.
    """
    kind, masked = working_type(*policies.values()), as_mask(mask)
    differences = {pair: _difference(policies, pair, kind) for pair in pairs}
    valid = indicator(masked, kind)
    for difference in differences.values():
        valid.mul_(is_finite(difference))
    log_r = {pair: zero_outside(difference, valid, out=difference) for pair, difference in differences.items()}
    valued = None if advantages is None else per_token(advantages, mask, layout).to(kind)
    return Batch(
        layout=layout,
        mask=masked,
        valid=valid,
        log_r=log_r,
        policies=policies,
        advantages=None if valued is None else zero_outside(valued, valid),
        unvalued=None if valued is None else (valid * (1.0 - is_finite(valued))).sum(),
        partial=None if mask.dtype == torch.bool else (valid * (mask != 1)).sum(),
        head=head,
        age=None if age is None else _known_age(age, mask).to(kind) * valid,
        entropy=None if entropy is None else _known_entropy(entropy, mask, valid),
        group=None if group is None else _group_numbers(group, mask, layout),
        _edits={name: edits(log_probs) for name, log_probs in policies.items()},
        _ratios=tuple(LogRatio(layout, each) for each in log_r.values()),
    )


def _known_age(age: Tensor, mask: Tensor) -> Tensor:
    """Ages as given, unknown ones (negative, NaN) above every bound."""
    check_like("age", age, mask)
    ages = age.detach().double()
    return torch.where(ages >= 0, ages.clamp(max=UNKNOWN_AGE), UNKNOWN_AGE)


def _known_entropy(entropy: Tensor, mask: Tensor, valid: Tensor) -> Float[Tensor, "*tokens"]:
    """Entropies as given; 0 where one is not known (NaN, infinite, negative)."""
    check_like("entropy", entropy, mask, "One number per token")
    return zero_outside(entropy.detach().to(valid.dtype), valid).clamp_(min=0.0)


def _group_numbers(group: Tensor, mask: Tensor, layout: Layout) -> Int[Tensor, " rows"]:
    """Group ids as numbers from 0, in the order of the ids: equal ones become neighbours by sorting, and nothing is read on the host."""
    check_group(group, number_of_sequences(mask, layout))
    check_device("group", group, mask.device)
    ids, order = group.to(torch.int64).sort()
    opens = torch.zeros_like(ids)
    opens[1:] = ids[1:] != ids[:-1]
    return torch.empty_like(ids).scatter_(0, order, opens.cumsum(0))


def as_mask(mask: Tensor) -> Bool[Tensor, "*tokens"]:
    """A copy of a mask of any type: metrics read it later, when the caller's may have changed."""
    return mask.detach().clone() if mask.dtype == torch.bool else mask.detach() != 0


def _difference(policies: Mapping[str, Tensor], pair: str, kind: torch.dtype) -> Tensor:
    target, base = pair.split("/")
    return policies[target].detach().to(kind) - policies[base].detach().to(kind)
