"""The tensors of one call, checked and made finite: what every gate and weight reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.distributed as dist
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.config.algebra import Limit
from trimtab.core.add import number_of
from trimtab.core.checks import check_all, check_device, check_log_probs, check_mask, rounding
from trimtab.core.head import HeadLogProbs, buckets_of, head_divergence
from trimtab.core.layout import Layout, Packed, Padded, Turns, run_index, turn_units
from trimtab.core.once import once
from trimtab.core.ranks import Ranks
from trimtab.core.ratio import above, indicator, is_finite, working_type, zero_outside
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
            f"Metrics need the {policy} log-probs they are worked out from, got a tensor changed in place since. "
            "Read them before, or pass a copy."
        )


@dataclass(frozen=True, eq=False)
class LogRatio:
    """The log-ratio of a pair, and its sum over each sequence: gates, weight and metrics ask for the same one."""

    layout: Layout
    per_token: Float[Tensor, "*tokens"]

    @once
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

    @once
    def lengths(self) -> Float[Tensor, " rows"]:
        """How many valid tokens each sequence has."""
        return self.layout.count(self.valid)

    @once
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
        held = self.log_r[pair]
        if limit is not None and limit.at == "token":
            held = held.clamp(-limit.bound, limit.bound)
        return held if scope is self.valid else held * scope  # a log-ratio is 0 outside `valid` already

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
        found = head_divergence(metric, direction, buckets, target, base, self.valid.numel())
        return zero_outside(found.view(self.valid.shape), self.valid)

    def log_probs(self, policy: str) -> Tensor:
        """Log-probs as given. A copy would cost as much as the correction; so a change made since is an error, not another number."""
        given = self.policies[policy].detach()
        check_unchanged(policy, given, self._edits.get(policy))
        return given


def batch(
    policies: Mapping[str, Tensor],
    pairs: tuple[str, ...],
    mask: Tensor,
    *,
    advantages: Tensor | None,
    cu_seqlens: Tensor | None,
    ranks: Ranks,
    head: HeadLogProbs | None = None,
    age: Tensor | None = None,
    entropy: Tensor | None = None,
    group: Tensor | None = None,
) -> Batch:
    """Check the tensors against each other, then clean them. Data never raises here, only shapes, types and devices."""
    layout = checked_layout(policies, mask, cu_seqlens, ranks)
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
    _check_like("age", age, mask)
    held = age.detach().double()
    return torch.where(held >= 0, held.clamp(max=UNKNOWN_AGE), UNKNOWN_AGE)


def _known_entropy(entropy: Tensor, mask: Tensor, valid: Tensor) -> Float[Tensor, "*tokens"]:
    """Entropies as given; 0 where one is not known (NaN, infinite, negative)."""
    _check_like("entropy", entropy, mask, "One number per token")
    return zero_outside(entropy.detach().to(valid.dtype), valid).clamp_(min=0.0)


def _group_numbers(group: Tensor, mask: Tensor, layout: Layout) -> Int[Tensor, " rows"]:
    """Group ids as numbers from 0, in the order of the ids: equal ones become neighbours by sorting, and nothing is read on the host."""
    check_group(group, number_of_sequences(mask, layout))
    check_device("group", group, mask.device)
    ids, order = group.to(torch.int64).sort()
    opens = torch.zeros_like(ids)
    opens[1:] = ids[1:] != ids[:-1]
    return torch.empty_like(ids).scatter_(0, order, opens.cumsum(0))


def number_of_sequences(mask: Tensor, layout: Layout) -> int:
    """How many sequences lie in a mask; −1 where turns are the units."""
    return len(mask) if isinstance(layout, Padded) else len(layout.cu_seqlens) - 1 if isinstance(layout, Packed) else -1


def check_group(group: Tensor | None, rows: int) -> None:
    """A group id belongs to a row."""
    if group is None:
        return
    if group.shape != (rows,):
        raise InputError(
            f"group needs one id per row, shape ({rows},), got {tuple(group.shape)}. A prompt has rows, not tokens: "
            "pass the id of each sequence once."
        )
    if group.is_floating_point() or group.dtype == torch.bool:
        raise InputError(f"group needs integer ids, got {group.dtype}. Number the prompts.")


def checked_layout(policies: Mapping[str, Tensor], mask: Tensor, cu_seqlens: Tensor | None, ranks: Ranks) -> Layout:
    """Where sequences lie, with every tensor checked against the mask."""
    layout = layout_of(mask, cu_seqlens, ranks)
    for name, log_probs in policies.items():
        _check_like(name, log_probs, mask)
        if not log_probs.is_floating_point():
            raise InputError(
                f"{name} needs floating-point log-probs, got {log_probs.dtype}. Pass log-probs, not token ids."
            )
        check_log_probs(name, log_probs, mask)
    return layout


def as_mask(mask: Tensor) -> Bool[Tensor, "*tokens"]:
    """A copy of a mask of any type: metrics read it later, when the caller's may have changed."""
    return mask.detach().clone() if mask.dtype == torch.bool else mask.detach() != 0


def _difference(policies: Mapping[str, Tensor], pair: str, kind: torch.dtype) -> Tensor:
    target, base = pair.split("/")
    return policies[target].detach().to(kind) - policies[base].detach().to(kind)


def per_token(advantages: Tensor, mask: Tensor, layout: Layout) -> Tensor:
    """Advantages of the tokens as given, or one per sequence laid over its tokens (broadcasts against them); detached."""
    advantages = advantages.detach()
    rows = number_of_sequences(mask, layout)
    check_device("advantages", advantages, mask.device, plural=True)
    advantages = column_per_token(advantages, rows, mask, layout)
    if advantages.shape != mask.shape:
        if advantages.shape != (rows,):
            raise InputError(
                f"advantages need shape {tuple(mask.shape)} (per token) or ({rows},) (per sequence), got {tuple(advantages.shape)}."
            )
        advantages = layout.spread(advantages)
    return advantages


def column_per_token(value: Tensor, rows: int, mask: Tensor, layout: Layout) -> Tensor:
    """`[sequences, 1]` laid over the tokens: one per sequence in every layout, also where there are as many tokens as sequences."""
    return layout.spread(value.squeeze(-1)).expand(mask.shape) if value.shape == (rows, 1) else value


def layout_of(mask: Tensor, cu_seqlens: Tensor | None, ranks: Ranks) -> Layout:
    """Where the sequences of a mask lie, checked."""
    check_mask(mask)
    if cu_seqlens is None:
        if mask.ndim != 2:
            raise InputError(
                f"mask needs two dimensions [rows, width] without cu_seqlens, got {tuple(mask.shape)}. "
                "Pass cu_seqlens for packed tokens."
            )
        return Padded(ranks=ranks)
    if mask.ndim != 1:
        raise InputError(
            f"mask needs one dimension [tokens] with cu_seqlens, got {tuple(mask.shape)}. Drop cu_seqlens for padded rows."
        )
    if cu_seqlens.ndim != 1 or len(cu_seqlens) == 0 or cu_seqlens.dtype not in (torch.int32, torch.int64):
        raise InputError(
            f"cu_seqlens needs one dimension of int32 or int64 with a leading 0, got {cu_seqlens.dtype} {tuple(cu_seqlens.shape)}."
        )
    check_device("cu_seqlens", cu_seqlens, mask.device)
    _check_boundaries(cu_seqlens, mask.numel())
    return Packed(cu_seqlens=cu_seqlens, tokens=mask.numel(), ranks=ranks)


def _check_boundaries(cu_seqlens: Tensor, tokens: int) -> None:
    """Boundaries start at 0, never go back and end at the token count."""
    first, last = cu_seqlens[0], cu_seqlens[-1]
    on_host = cu_seqlens.device.type == "cpu" and not torch.compiler.is_compiling()
    check_all(
        int(first) == 0 and int(last) == tokens if on_host else (first == 0) & (last == tokens),
        f"cu_seqlens needs to start at 0 and end at the number of tokens ({tokens})",
        lambda: (
            f"{int(cu_seqlens[0])} … {int(cu_seqlens[-1])}. "
            "Leave padding tokens out, or give them a sequence of their own with a False mask."
        ),
    )
    check_all(
        cu_seqlens[1:] >= cu_seqlens[:-1],
        "cu_seqlens needs to never go back",
        lambda: _first_step_back(cu_seqlens.tolist()),
    )


def _first_step_back(bounds: list[int]) -> str:
    index, (here, there) = next((at, pair) for at, pair in enumerate(pairwise(bounds), 1) if pair[1] < pair[0])
    return f"{here} then {there} at index {index}. Pass cumulative lengths."


def _check_like(name: str, tensor: Tensor, mask: Tensor, each: str = "One log-prob per token") -> None:
    if tensor.shape != mask.shape:
        raise InputError(
            f"{name} needs the shape of mask {tuple(mask.shape)}, got {tuple(tensor.shape)}. {each}, same index everywhere."
        )
    check_device(name, tensor, mask.device)


def groups(process_group: ProcessGroup | None, context_group: ProcessGroup | None) -> Ranks:
    """The ranks that hold the batch, and those among them that share each sequence."""
    if process_group is not None and context_group is not None and not torch.compiler.is_compiling():
        # Known on the host since the groups were made: nothing is sent and no device is waited for.
        held, shared = (dist.get_process_group_ranks(each) for each in (process_group, context_group))
        if not set(held) >= set(shared):
            raise InputError(
                f"process_group needs every rank of context_group, got ranks {held} without "
                f"{sorted(set(shared) - set(held))}. Statistics run over the whole batch: pass the group of all ranks that "
                "hold a part of it, data parallel and context parallel together."
            )
    return Ranks(batch=process_group, context=context_group)
