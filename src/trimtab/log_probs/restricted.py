"""Log-probs over the ids that each token's sampler could have drawn, from the logits of these ids and no others.

Tokens are worked out in another order: those that keep the whole vocabulary, then those with a support; ignored ones not at all.

    token         0        1         2        3          target 4 of token 2 is not among its own, token 3 is ignored
    support       4, 7     2         5, 6     1
    target        7        2         4        −1
    order         2, 0, 1            one with the whole vocabulary, two with a support
    pairs         (1, 4), (1, 7), (2, 2)                 places in that order, and ids; chosen: 1, 2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import Function, once_differentiable

from trimtab.core.head import Head, HeadEntries
from trimtab.log_probs.softmax import LOG_ZERO
from trimtab.log_probs.sparse_logits import Pairs


@dataclass(frozen=True, eq=False)
class SupportedTokens:
    """The tokens of a batch as they are worked out, and the pairs of token and id that count."""

    order: Int[Tensor, " some"]
    row: Int[Tensor, " tokens"]
    """Where each token of the batch stands among them; −1 if it is ignored."""
    restricted: Bool[Tensor, " tokens"]
    pairs: Pairs
    chosen: Int[Tensor, " restricted"]
    """Where each target stands among the pairs."""

    @classmethod
    def of(cls, support: Head, targets: Int[Tensor, " tokens"], size: int) -> SupportedTokens:
        """The tokens of a batch; how many there are of each kind is read on the host."""
        narrow = torch.int32 if len(targets) * size < 1 << 31 else torch.int64  # half the memory to go through
        entries, tokens = support.entries(narrow), torch.arange(len(targets), device=targets.device)
        token, ids = entries.token, entries.ids
        if not bool(entries.present.all()):
            token, ids = token[entries.present], ids[entries.present]
        pairs = Pairs.of(token, ids, first=0, tokens=len(targets), size=size)
        restricted = pairs.find(tokens, targets)[1] & (targets >= 0)
        free = (targets >= 0) & ~restricted
        whole, own = free.nonzero().squeeze(1), restricted.nonzero().squeeze(1)
        row = torch.where(restricted, restricted.cumsum(0) + len(whole), torch.where(free, free.cumsum(0), 0)) - 1
        if len(own) < len(targets):
            pairs = pairs.only(restricted, row, first=len(whole), tokens=len(whole) + len(own))
        return cls(
            order=torch.cat([whole, own]),
            row=row,
            restricted=restricted,
            pairs=pairs,
            chosen=pairs.find(row[own], targets[own])[0],
        )

    def whole_head(self, head: HeadEntries) -> HeadEntries | None:
        """The entries of a head that belong to tokens with the whole vocabulary; None: there are none."""
        if self.pairs.first == 0:
            return None
        there = head.present & (self.row >= 0)[head.token] & ~self.restricted[head.token]
        return HeadEntries(torch.where(there, self.row[head.token], 0), head.ids, there, head.log_probs)

    def of_head(self, head: HeadEntries, log_probs: Float[Tensor, " pairs"]) -> Float[Tensor, " entries"]:
        """The log-probs of a head's entries at tokens with a support; −inf elsewhere and outside it."""
        if len(log_probs) == 0:
            return log_probs.new_full(head.ids.shape, -torch.inf)
        place, there = self.pairs.find(self.row[head.token], head.ids)
        there = there & head.present & self.restricted[head.token]
        return torch.where(there, log_probs.index_select(0, place), -torch.inf)

    def spread(self, values: Float[Tensor, " some"]) -> Float[Tensor, " tokens"]:
        """One number per token of the batch; 0 for an ignored one."""
        return values.new_zeros(len(self.row)).index_copy(0, self.order, values)


class PairSoftmax(Function):
    """Log-probs of pairs under a softmax over each token's own, with that of the chosen one and the entropy.

    Two pairs of one token with logits log 2 and log 5, the first one chosen: log 2/7 and log 5/7, chosen log 2/7,
    entropy −2/7 log 2/7 − 5/7 log 5/7.
    """

    @staticmethod
    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, logits: Tensor, temperature: Tensor | None, pairs: Pairs, chosen: Tensor, with_entropy: bool
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Chosen log-probs, entropies, log-probs of all pairs."""
        token = pairs.own
        scaled = logits if temperature is None else logits / temperature.to(logits.dtype).index_select(0, token)
        # Finite, so that a token of nothing but −inf gives exp(−inf) and not exp(−inf + inf).
        peak = pairs.greatest(scaled).clamp_(min=torch.finfo(logits.dtype).min / 4)
        below = scaled - peak.index_select(0, token)
        power = below.exp()
        total = pairs.sums(power)
        entropy = None
        if with_entropy:
            entropy = total.log() - pairs.sums(power.mul_(below.clamp(min=LOG_ZERO))) / total
        log_probs = below.sub_(total.log().index_select(0, token))
        ctx.pairs = pairs
        ctx.save_for_backward(logits if ctx.needs_input_grad[1] else None, temperature, chosen, entropy, log_probs)
        ctx.set_materialize_grads(False)
        return log_probs[chosen], entropy, log_probs

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
        ctx: Any, grad_chosen: Tensor | None, grad_entropy: Tensor | None, grad_pairs: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        """With d log p = 1[chosen] − p and d entropy = −p (log p + entropy).

        A token that is asked nothing of receives 0, whatever it holds.
        """
        logits, temperature, chosen, entropy, log_probs = ctx.saved_tensors
        pairs: Pairs = ctx.pairs
        token, level = pairs.own, grad_chosen
        if level is None:
            level = log_probs.new_zeros(pairs.tokens - pairs.first)
        active, grad = level != 0, torch.zeros_like(log_probs)
        if grad_pairs is not None:
            grad = torch.where(log_probs > -torch.inf, grad_pairs, 0.0)
            active = active | (pairs.sums((grad != 0).to(level.dtype)) > 0)
            level = level + pairs.sums(grad)
        if grad_chosen is not None:
            grad.index_add_(0, chosen, grad_chosen)
        power = log_probs.exp()
        if grad_entropy is not None and entropy is not None:
            active = active | (grad_entropy != 0)
            level = level + grad_entropy * torch.where(active, entropy, 0.0)
            grad -= power * log_probs.clamp(min=LOG_ZERO) * grad_entropy.index_select(0, token)
        asked = active.index_select(0, token)
        grad = torch.where(asked, grad - power * level.index_select(0, token), 0.0)
        if temperature is None:
            return grad, *[None] * 4
        scale = torch.where(active, temperature.to(grad.dtype), 1.0).reciprocal()
        grad = grad * scale.index_select(0, token)
        if logits is None:
            return grad, *[None] * 4
        finite = torch.where(asked, logits, 0.0).clamp(min=LOG_ZERO)
        slope = pairs.sums(grad * finite)
        return grad, (-slope * scale).to(temperature.dtype), *[None] * 3
