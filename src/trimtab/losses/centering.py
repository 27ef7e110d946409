"""Score centering (arXiv 2609.20807): each token's gradient less its mean under the sampler.

The loss of a token has the slope c(v) = d loss / d log current(v), were v the id that was sampled: its advantage, the weight, what
gates say of it, the ratio, the clip. The sampler draws v with probability q(v), so that Σ_v q(v) c(v) ∇log current(v) is there on
average whatever the answers are worth. It is taken off:

    loss(y) − Σ_b q(b) · sg(c(b)) · log current(b)            b: the ids of the head, and all others as one

With −A·w·log current as the loss that is −A·(w(y) log p(y) − Σ q(b) w(b) log p(b)), the form of the paper. Over a replayed mask or a
whole vocabulary it is exact; a tail is taken to be drawn as the current policy draws it, α = tail of q / tail of p times as often.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.correction import Correction
from trimtab.config.losses import Objective
from trimtab.core.batch import batch
from trimtab.core.correct import decide
from trimtab.core.head import Buckets, HeadLogProbs, buckets_of
from trimtab.core.layout import Packed
from trimtab.core.ratio import zero_outside
from trimtab.errors import ConfigError, InputError
from trimtab.losses.table import OBJECTIVES
from trimtab.losses.terms import Terms, attach


def check_centering(loss: Objective, rule: Correction | None, head: HeadLogProbs | None) -> None:
    """A loss that can be centered, and a head to do it over."""
    if rule is None or rule.centering is None:
        return
    if not loss.is_of_token:
        raise ConfigError(
            f"Centering score needs a loss whose gradient depends on each token alone, got {type(loss).__name__} with these settings. "
            "Use Reinforce, Cispo, Clip or ImportancePg at token level."
        )
    if head is None or head.current is None:
        raise InputError(
            "This correction centers scores and needs head with current log-probs, got None. Pass "
            "trimtab.HeadLogProbs(head, targets, current=selected_log_probs(…, head=head).head)."
        )


def score_mean(loss: Objective, rule: Correction, terms: Terms, head: HeadLogProbs) -> Float[Tensor, "*tokens"]:
    """−Σ_b q(b)·sg(c(b))·log current(b) for each token, to be added to its loss; 0 where it is not trained."""
    names = tuple(dict.fromkeys(["current", "behavior", *rule.of_tokens.needs, terms.anchor]))
    valid = terms.batch.valid
    buckets = buckets_of(head, names, valid.dtype)
    slopes, counted = _slopes(loss, rule, terms, buckets)
    q = zero_outside(buckets.log_probs["behavior"].detach().exp(), counted)
    current = buckets.log_probs["current"]
    log_p = attach(current, zero_outside(current.detach(), counted), counted)
    return buckets.per_token(-q * slopes * log_p, valid.numel()).view(valid.shape)


def _slopes(
    loss: Objective, rule: Correction, terms: Terms, buckets: Buckets
) -> tuple[Float[Tensor, " buckets"], Float[Tensor, " buckets"]]:
    """The slope of the weighted loss in each bucket's log-prob, had it been sampled; and which buckets count."""
    alone, token = rule.of_tokens, buckets.token
    mask = buckets.present & terms.batch.valid.reshape(-1)[token].bool()
    pairs = tuple(dict.fromkeys([*alone.pairs, f"current/{terms.anchor}"]))
    policies = {name: each.detach() for name, each in buckets.log_probs.items()}
    bounds = torch.tensor([0, len(token)], device=token.device)
    advantages = terms.advantages.expand(terms.batch.valid.shape).reshape(-1)[token]
    entries = batch(policies, pairs, mask, Packed(cu_seqlens=bounds, tokens=len(token)), advantages=advantages)
    decisions = decide(alone, entries)
    with torch.enable_grad():
        leaf = policies["current"].clone().requires_grad_()
        entry_terms = Terms(entries, terms.anchor, leaf, decisions.kept, decisions.weight, entries.lengths)
        surrogate = OBJECTIVES[type(loss)](loss, entry_terms)
        weight = decisions.weight if surrogate.weight is None else surrogate.weight
        (slopes,) = torch.autograd.grad((surrogate.value * weight).sum(), leaf)
    return torch.nan_to_num(slopes), entries.valid
