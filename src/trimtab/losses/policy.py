"""`policy_loss`: a loss, a correction and a reduction on one batch; one number with a gradient out.

log-probs ─► batch ─► correction ─► weight, kept ─┐
               ├────► log ρ, advantages ──────────┴─► objective ─► Σ weight · loss / counts of the step ─┬─► loss
               └────► KL to reference, entropy ──────────────────► Σ mask · term / counts of the step ───┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.config.base import of_kind
from trimtab.config.correction import Correction
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction
from trimtab.config.presets.named import as_correction
from trimtab.core.batch import Batch, batch
from trimtab.core.correct import Corrected, check_further, check_head, decide, is_whole_batch
from trimtab.core.head import HeadLogProbs
from trimtab.core.inputs import check_group, checked_layout, takes_arrays
from trimtab.core.metrics import Metrics, WeightMetrics, say_all_rejected
from trimtab.core.ranks import groups
from trimtab.core.ratio import indicator, zero_outside
from trimtab.core.reduce import Denominator, denominator_of, share
from trimtab.losses.call import (
    LossCall,
    anchor_of,
    check_has_tokens,
    check_terms,
    chosen_reduction,
    compared_pairs,
    compared_policies,
    known_mask,
    rule_of,
    warn_of_doubts,
)
from trimtab.losses.centering import check_centering, score_mean
from trimtab.losses.fast import fast_policy_loss
from trimtab.losses.kl import UNIT, kl_term
from trimtab.losses.metrics import CorrectionMetrics, PolicyMetrics, policy_metrics
from trimtab.losses.table import OBJECTIVES, loss_named
from trimtab.losses.terms import Surrogate, Terms, attach, gathered, term_and_coefficient, total

BONUS = EntropyBonus(coefficient=1.0)
"""What a bare coefficient multiplies."""


@dataclass(frozen=True, eq=False)
class PolicyLoss:
    """A loss to descend, and what it saw."""

    loss: Float[Tensor, ""]
    """This call's share of the step's loss; connected to `current` even where it is 0."""
    metrics: PolicyMetrics
    """0-d tensors by name, worked out when asked for. With process groups, ask on every rank."""


@takes_arrays("current", "entropy")
def policy_loss(
    loss: Objective | str,
    *,
    current: Float[Tensor, "*tokens"],
    advantages: Tensor,
    mask: Tensor,
    proximal: Float[Tensor, "*tokens"] | None = None,
    behavior: Float[Tensor, "*tokens"] | None = None,
    reference: Float[Tensor, "*tokens"] | None = None,
    entropy: Float[Tensor, "*tokens"] | None = None,
    correction: Correction | Corrected | str | None = None,
    reduction: Reduction | str | None = None,
    kl: KlPenalty | float | None = None,
    entropy_bonus: EntropyBonus | float | None = None,
    denominator: Denominator | None = None,
    group: Tensor | None = None,
    head: HeadLogProbs | None = None,
    age: Tensor | None = None,
    cu_seqlens: Int[Tensor, " bounds"] | None = None,
    process_group: ProcessGroup | None = None,
    context_group: ProcessGroup | None = None,
    generator: torch.Generator | None = None,
) -> PolicyLoss:
    """The loss of one micro-batch and its metrics.

    Tokens are padded `[rows, width]`, or packed `[tokens]` with `cu_seqlens`; `advantages` are per token or per sequence (as
    `[rows, 1]` where both fit). A token without a log-prob it needs is as if it had never been trained. ρ divides by proximal, or
    by behavior under a bypass rule.

    `denominator` holds the counts of the whole step. Without one this call is the step, on all ranks of `process_group`, over
    which gradients are then averaged (as DDP does). A rule with statistics over the batch is worked out by `correct` over the
    whole step and handed in by `Corrected.part`. `group` is a prompt id per row; `generator` draws Clip-Cov's choice.
    `head`: what the policies say of more ids than the sampled one, for score centering and gates on `head_tv` and `head_kl`.
    `age`: the learner's version less that of each token's, for gates on it; `entropy` and `group` serve bounds and weights that look at
    them too.
    A loss or a correction may be given by its name, `kl` and `entropy_bonus` by their coefficient.
    `reduction`: left out, token-mean, and seq-mean-token-mean for Luspo.
    """
    loss = loss_named(loss) if isinstance(loss, str) else loss
    if correction is not None and not isinstance(correction, Corrected):
        correction = as_correction(correction)
    penalty = (None, 0.0) if kl is None else term_and_coefficient(UNIT, kl, "kl")
    bonus = (None, 0.0) if entropy_bonus is None else term_and_coefficient(BONUS, entropy_bonus, "entropy_bonus")
    check_terms(loss, penalty[0], reference, bonus[0], entropy, mask, context_group)
    reduction = chosen_reduction(loss, reduction)
    warn_of_doubts(loss, rule_of(correction), reduction, behavior=behavior if correction is None else None)
    if denominator is None and process_group is None and context_group is None:
        check_has_tokens(mask)
    policies = {"current": current, "proximal": proximal, "behavior": behavior, "reference": reference}
    check_centering(loss, rule_of(correction), head)
    if isinstance(correction, Correction) or head is not None:
        check_head(as_correction(rule_of(correction) or "off"), head, mask)
    if isinstance(correction, Correction):
        check_further(correction, age=age, entropy=entropy, group=group)
    mask = known_mask(mask, correction, policies, advantages, context_group)
    anchor = anchor_of(loss, policies, correction)
    compared = compared_policies(policies, pairs := compared_pairs(correction, anchor, penalty[0]))
    layout = checked_layout(compared, mask, cu_seqlens, groups(process_group, context_group))
    call = LossCall(
        loss=loss,
        correction=correction,
        reduction=reduction,
        penalty=penalty,
        bonus=bonus,
        policies=compared,
        pairs=pairs,
        anchor=anchor,
        advantages=advantages,
        mask=mask,
        layout=layout,
        entropy=entropy,
        denominator=denominator,
        group=group,
        generator=generator,
        head=head,
        age=age,
    )
    quick = fast_policy_loss(call, plain_loss)  # the same in one pass, where it fits
    result = PolicyLoss(*(plain_loss(call, current) if quick is None else quick))
    _say_if_all_rejected(call, result, mask)
    return result


def _say_if_all_rejected(call: LossCall, result: PolicyLoss, mask: Tensor) -> None:
    """Where this call is the whole step, log that nothing of it was kept. A micro-batch of one may well be rejected."""
    rule, seen = call.correction, result.metrics.correction
    if not isinstance(rule, Correction) or not isinstance(seen, Metrics) or call.denominator is not None:
        return
    if is_whole_batch(rule, mask, call.layout) and not result.loss.detach() and seen["all_rejected"]:
        say_all_rejected(rule, seen)


def plain_loss(call: LossCall, current: Tensor) -> tuple[Tensor, PolicyMetrics]:
    """The loss of a call for these log-probs, and its metrics."""
    (penalty, kl_coefficient), (bonus, bonus_coefficient), reduction = call.penalty, call.bonus, call.reduction
    tokens = _batch(call, current)
    check_group(call.group, len(tokens.lengths))
    leaf = current.to(tokens.valid.dtype)
    leaf = leaf if penalty is None else gathered(leaf)  # a loss alone sends back what is finite already
    terms, seen = _with_decisions(call.correction, _terms_before(tokens, call.anchor, leaf, call.generator))
    surrogate = OBJECTIVES[type(call.loss)](call.loss, terms)
    parts = {"policy": _policy_part(surrogate, terms, reduction)}
    rule = rule_of(call.correction)
    if rule is not None and rule.centering is not None and call.head is not None:
        on = terms.tokens("centered")
        parts["centering"] = Part(score_mean(call.loss, rule, terms, call.head), on, on, 1.0, reduction)
    if penalty is not None:
        parts["kl"] = _kl_part(penalty, kl_coefficient, terms, call.correction, reduction)
    if bonus is not None and call.entropy is not None:
        parts["entropy"] = _entropy_part(call.entropy, bonus, bonus_coefficient, terms, reduction)

    by_prompt = any(part.reduction.mode == "prompt-mean" for part in parts.values())
    step = call.denominator or denominator_of(terms.lengths, call.group if by_prompt else None, call.layout.ranks)
    step = of_kind(Denominator, step, "denominator needs to be a Denominator", "trimtab.Denominator.of(masks)")
    value = torch.stack([part.share(terms, step, call.group) for part in parts.values()]).sum()
    means = _means(parts, tokens.valid, call.entropy)
    over = step.averaged_over
    return value, policy_metrics(terms, surrogate, loss=value, averaged_over=over, correction=seen, means=means)


@torch.no_grad()
def _batch(call: LossCall, current: Tensor) -> Batch:
    rule = call.correction if isinstance(call.correction, Correction) else None
    return batch(
        {**call.policies, "current": current},
        call.pairs,
        call.mask,
        call.layout,
        advantages=call.advantages,
        head=call.head,
        age=call.age,
        entropy=call.entropy if rule is not None and rule.needs_entropy else None,
        group=call.group if rule is not None and rule.needs_group else None,
    )


@dataclass(frozen=True, eq=False)
class Part:
    """One term of the loss: a value per token, its weight, the tokens it is paid on, and how it is reduced."""

    value: Float[Tensor, "*#tokens"]
    weight: Float[Tensor, "*#tokens"]
    on: Float[Tensor, "*tokens"]
    coefficient: float
    reduction: Reduction

    def share(self, terms: Terms, step: Denominator, group: Tensor | None) -> Float[Tensor, ""]:
        """What the term adds to the loss of the step."""
        shares = share(self.reduction, terms.lengths, step, group)
        return total(self.value, shares.over(terms.layout, self.weight)) * (shares.factor * self.coefficient)


def _policy_part(surrogate: Surrogate, terms: Terms, reduction: Reduction) -> Part:
    weight = terms.weight if surrogate.weight is None else surrogate.weight
    return Part(surrogate.value, weight, terms.kept, 1.0, reduction)


def _kl_part(
    kl: KlPenalty, coefficient: float, terms: Terms, correction: Correction | Corrected | None, reduction: Reduction
) -> Part:
    on, rule = terms.tokens(kl.mask), rule_of(correction)
    weight = on * terms.weight if rule is not None and rule.applies_to == "policy+kl" else on
    return Part(kl_term(kl, terms), weight, on, coefficient, kl.reduction or reduction)


def _entropy_part(entropy: Tensor, bonus: EntropyBonus, coefficient: float, terms: Terms, reduction: Reduction) -> Part:
    on = terms.tokens(bonus.mask)
    value = attach(entropy.to(on.dtype), zero_outside(entropy.detach(), on), on)
    return Part(value, on, on, -coefficient, bonus.reduction or reduction)


def _means(parts: Mapping[str, Part], valid: Tensor, entropy: Tensor | None) -> dict[str, tuple[Tensor, Tensor]]:
    """What metrics average, with the tokens they do it over; an entropy that earns no bonus is only reported."""
    means = {name: (part.value, part.on) for name, part in parts.items() if name != "policy"}
    if entropy is not None and "entropy" not in parts:
        means["entropy"] = zero_outside(entropy.detach(), valid), valid
    return means


def _terms_before(tokens: Batch, anchor: str, current: Tensor, generator: torch.Generator | None) -> Terms:
    """The terms before a correction: every valid token is kept, at weight 1."""
    valid = tokens.valid
    return Terms(tokens, anchor, current, valid, valid, tokens.lengths, generator)


@torch.no_grad()
def _with_decisions(correction: Correction | Corrected | None, terms: Terms) -> tuple[Terms, CorrectionMetrics]:
    """The terms with what the correction decided, and its metrics."""
    tokens = terms.batch
    if correction is None:
        return terms, {}
    if isinstance(correction, Correction):
        corrected = decide(correction, tokens)
        kept, weight = corrected.kept, corrected.weight
        seen = Metrics(correction, lambda: corrected, valued=True, aged=tokens.age is not None)
        centered = corrected.centered
    else:
        kept = indicator(correction.kept, tokens.valid.dtype) * tokens.valid
        weight, seen = zero_outside(correction.weight, kept), correction.metrics
        seen = seen if isinstance(seen, Metrics | WeightMetrics) else dict(seen)
        centered = None
        if correction.centered is not None:
            centered = indicator(correction.centered, tokens.valid.dtype) * tokens.valid
    rule = rule_of(correction)
    after = rule is not None and rule.denominator == "kept"
    lengths = tokens.layout.total(kept) if after else tokens.lengths
    return replace(terms, kept=kept, weight=weight, centered=centered, lengths=lengths), seen
