"""The head of the sampler's distribution: for each token some ids of the vocabulary, with the log-probs the sampler gave them.

Two tokens, the first with three ids, the second with one:

    padded   ids [[4, 7, 9], [2, -1, -1]]                    one row per token, -1 where it has fewer
    ragged   ids [4, 7, 9, 2], offsets [0, 3, 4]             as engines send them

Distributions over a head: its ids, and all others as one more, the tail. Sums over the vocabulary become sums over these buckets.

vocabulary     a     b     c     d     e            head {a, b}, sampled d
q            0.5   0.2   0.1   0.1   0.1
buckets      0.5   0.2   |------ 0.3 -----|         for a mean under q (score centering): the head may not depend on the sample
             0.5   0.2   0.1 (d)   0.2 (c, e)       for a divergence: the sampled id is known, so it stands by itself
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trimtab.core.inputs import check_device
from trimtab.errors import InputError


@dataclass(frozen=True, eq=False)
class HeadEntries:
    """The ids of all tokens as one list; what fills up a padded row is not `present`."""

    token: Int[Tensor, " entries"]
    ids: Int[Tensor, " entries"]
    present: Bool[Tensor, " entries"]
    log_probs: Float[Tensor, " entries"] | None

    def contain(self, targets: Int[Tensor, " tokens"]) -> Bool[Tensor, " tokens"]:
        """Whether each token's id is among its own; False where it has none."""
        hits = (self.ids == targets.long().index_select(0, self.token)) & self.present
        found = torch.zeros(len(targets), dtype=torch.int32, device=self.ids.device)
        return found.index_add(0, self.token, hits.int()) > 0


@dataclass(frozen=True, eq=False)
class Head:
    """Ids that a sampler could have drawn for each token, or its likeliest ones, padded or ragged. No token need have any."""

    ids: Tensor
    """int32 or int64: `[*tokens, k]` with -1 where a token has fewer than k, or `[entries]` beside `offsets`."""
    log_probs: Tensor | None = None
    """Log-probs of the ids under the distribution that was sampled from; None for a bare set."""
    offsets: Tensor | None = None
    """Token i has `ids[offsets[i]:offsets[i + 1]]`; None where ids are padded."""

    def __post_init__(self) -> None:
        if self.ids.dtype not in (torch.int32, torch.int64):
            raise InputError(f"Head needs int32 or int64 ids, got {self.ids.dtype}.")
        if self.log_probs is not None and self.log_probs.shape != self.ids.shape:
            raise InputError(
                f"Head needs one log-prob per id {tuple(self.ids.shape)}, got {tuple(self.log_probs.shape)}."
            )
        if self.offsets is None and self.ids.ndim < 2:
            raise InputError(
                f"Head needs ids [*tokens, k], or offsets beside them, got ids {tuple(self.ids.shape)} alone."
            )
        if self.offsets is not None:
            self._check_ragged(self.offsets)

    def _check_ragged(self, offsets: Tensor) -> None:
        if self.ids.ndim != 1 or offsets.ndim != 1 or len(offsets) == 0:
            raise InputError(
                f"Head with offsets needs ids and offsets of one dimension, got {tuple(self.ids.shape)} and {tuple(offsets.shape)}."
            )
        check_device("offsets", offsets, self.ids.device, plural=True)

    @property
    def tokens(self) -> int:
        """How many tokens it is about."""
        return self.ids.shape[:-1].numel() if self.offsets is None else len(self.offsets) - 1

    def entries(self, dtype: torch.dtype = torch.int64) -> HeadEntries:
        """All ids, token after token, as numbers of a type."""
        flat = self.ids.reshape(-1).to(dtype)
        log_probs = None if self.log_probs is None else self.log_probs.reshape(-1)
        return HeadEntries(self._token(dtype), flat, flat >= 0, log_probs)

    def contains(self, targets: Int[Tensor, "*tokens"]) -> Bool[Tensor, "*tokens"]:
        """Whether each token's id is among its own; False where it has none."""
        self.check_tokens(targets)
        return self.entries().contain(targets.reshape(-1)).view(targets.shape)

    def check_tokens(self, targets: Tensor) -> None:
        """One head per target."""
        check_device("head", self.ids, targets.device)
        shaped = self.offsets is not None or self.ids.shape[:-1] in (targets.shape, targets.reshape(-1).shape)
        if self.tokens != targets.numel() or not shaped:
            raise InputError(
                f"Head needs one set of ids per token {tuple(targets.shape)}, got {self.tokens} of them "
                f"(ids {tuple(self.ids.shape)}). Cut it with the batch."
            )

    def _token(self, dtype: torch.dtype) -> Int[Tensor, " entries"]:
        """The token of each entry; nothing is read on the host."""
        if self.offsets is None:
            order = torch.arange(self.tokens, dtype=dtype, device=self.ids.device)
            return order.repeat_interleave(self.ids.shape[-1])
        return torch.repeat_interleave(self.offsets.diff().to(dtype), output_size=self.ids.numel())


TAIL_FLOOR = 1e-6
"""Least mass of a tail, as in arXiv 2609.20807, appendix A.3: what float32 sums leave of 1 is no more exact than this."""

LEAST_LOG = -1e4
"""Stands for the log of a probability of 0, so that a divergence is large and not infinite."""


@dataclass(frozen=True, eq=False)
class HeadLogProbs:
    """What each policy says of a head's ids. Log-probs have the shape of `head.ids`; those of the sampler are `head.log_probs`."""

    head: Head
    targets: Int[Tensor, "*tokens"]
    """The ids that were sampled, in the shape of the mask."""
    current: Tensor | None = None
    """With gradient, for score centering: `selected_log_probs(…, head=head).head`."""
    proximal: Tensor | None = None
    complete: bool = False
    """Whether no other id could be drawn: a replayed mask, or a whole vocabulary. If not, the rest is one more bucket."""

    def __post_init__(self) -> None:
        self.head.check_tokens(self.targets)
        if self.head.log_probs is None:
            raise InputError("HeadLogProbs needs a head with the sampler's log-probs, got ids alone. Record them too.")
        for name, given in (("current", self.current), ("proximal", self.proximal)):
            if given is not None and given.shape != self.head.ids.shape:
                raise InputError(
                    f"HeadLogProbs needs {name} in the shape of the ids {tuple(self.head.ids.shape)}, got {tuple(given.shape)}."
                )

    def of(self, policy: str) -> Float[Tensor, " entries"]:
        """Log-probs of a policy, one entry after the other."""
        found = self.head.log_probs if policy == "behavior" else getattr(self, policy)
        if found is None:
            raise InputError(f"HeadLogProbs needs {policy} log-probs of its ids, got None. They are compared.")
        return found.reshape(-1)


@dataclass(frozen=True, eq=False)
class Buckets:
    """Log-probs by bucket for several policies; `present` says which buckets there are."""

    token: Int[Tensor, " buckets"]
    present: Bool[Tensor, " buckets"]
    log_probs: Mapping[str, Float[Tensor, " buckets"]]
    """By policy; of a bucket that is not present they mean nothing."""

    def per_token(self, value: Float[Tensor, " buckets"], tokens: int) -> Float[Tensor, " tokens"]:
        """The sum over each token's buckets."""
        values = torch.where(self.present, value, 0.0)
        return values.new_zeros(tokens).index_add(0, self.token, values)


def buckets_of(
    given: HeadLogProbs, policies: tuple[str, ...], dtype: torch.dtype, sampled: Mapping[str, Tensor] | None = None
) -> Buckets:
    """The buckets of every token, for these policies; with the sampled id as one of them where its log-probs are given.

    A token with a NaN among its ids has none at all. Gradients pass through to each policy's log-probs.
    """
    entries, tokens = given.head.entries(), given.head.tokens
    recorded = {name: given.of(name).to(dtype) for name in policies}
    unknown = torch.stack([each.detach().isnan() for each in recorded.values()]).any(0) & entries.present
    broken = torch.zeros(tokens, dtype=torch.int32, device=unknown.device).index_add_(0, entries.token, unknown.int())
    token, present = [entries.token], [entries.present & (broken == 0)[entries.token]]
    log_probs = {name: [each] for name, each in recorded.items()}
    every = torch.arange(tokens, device=unknown.device)
    if sampled is not None:
        token.append(every)
        present.append(~given.head.contains(given.targets).reshape(-1) & (broken == 0))
        for name in policies:
            log_probs[name].append(sampled[name].reshape(-1).to(dtype))
    heads = Buckets(torch.cat(token), torch.cat(present), {name: torch.cat(each) for name, each in log_probs.items()})
    return heads if given.complete else _with_tail(heads, every, broken == 0)


def _with_tail(heads: Buckets, every: Int[Tensor, " tokens"], unbroken: Bool[Tensor, " tokens"]) -> Buckets:
    tails = {name: _log_tail(heads, each, len(every)) for name, each in heads.log_probs.items()}
    return Buckets(
        torch.cat([heads.token, every]),
        torch.cat([heads.present, unbroken]),
        {name: torch.cat([each, tails[name]]) for name, each in heads.log_probs.items()},
    )


def _log_tail(heads: Buckets, log_probs: Tensor, tokens: int) -> Float[Tensor, " tokens"]:
    """log(1 − what the others hold), the mass at least `TAIL_FLOOR`; its slope is that of the mass over the floored mass."""
    mass = 1.0 - heads.per_token(log_probs.exp(), tokens)
    floored = mass.detach().clamp(min=TAIL_FLOOR, max=1.0)
    return floored.log() + (mass - mass.detach()) / floored


# One token, head {a, b}, sampled a:     a      b     tail
#     q                                 0.5    0.3    0.2
#     p                                 0.4    0.3    0.3
#     head_tv          ½(0.1 + 0 + 0.1) = 0.1
#     head_kl forward  0.5·log(5/4) + 0 + 0.2·log(2/3) = 0.1116 − 0.0811 = 0.0305
def head_divergence(
    metric: str, direction: str | None, buckets: Buckets, target: str, base: str, tokens: int
) -> Float[Tensor, " tokens"]:
    """The divergence of two policies over each token's buckets; exactly 0 where they agree on all of them."""
    log_p, log_q = (buckets.log_probs[name] for name in (target, base))
    p, q = log_p.exp(), log_q.exp()
    if metric == "head_tv":
        return buckets.per_token((p - q).abs().mul_(0.5), tokens)
    gap = log_p.clamp(min=LEAST_LOG) - log_q.clamp(min=LEAST_LOG)
    both = {"forward": -q * gap, "reverse": p * gap}
    asked = both.values() if direction == "max" else [both[direction or "forward"]]
    return torch.stack([buckets.per_token(each, tokens) for each in asked]).amax(0).clamp_(min=0.0)
