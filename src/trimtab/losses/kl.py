"""KL to the reference policy, per token: a term of the loss, or a deduction from the reward. d = log current − log reference."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.losses import KlPenalty
from trimtab.core.inputs import check_log_probs, check_mask, takes_arrays
from trimtab.core.ratio import indicator, is_finite, working_type
from trimtab.errors import InputError
from trimtab.losses.terms import Terms, attach, largest_log, ratio, term_and_coefficient

ESTIMATORS: dict[str, Callable[[Tensor], Tensor]] = {
    "k1": lambda d: d,
    "k2": lambda d: d.square() * 0.5,
    # by expm1, which near 0 keeps the digits that e^(−d) − 1 loses
    "k3": lambda d: (-d).clamp(max=largest_log(d.dtype)).expm1() + d,
    "abs": lambda d: d.abs(),
}


UNIT = KlPenalty(coefficient=1.0)
"""What a bare coefficient multiplies."""


def estimate(penalty: KlPenalty, d: Float[Tensor, "*tokens"]) -> Float[Tensor, "*tokens"]:
    """The estimator of a penalty, within its limits."""
    held = d if penalty.input_limit is None else d.clamp(-penalty.input_limit, penalty.input_limit)
    value = ESTIMATORS[penalty.estimator](held)
    return value if penalty.output_limit is None else value.clamp(-penalty.output_limit, penalty.output_limit)


def kl_term(penalty: KlPenalty, terms: Terms) -> Float[Tensor, "*tokens"]:
    """The KL of each trained token; its gradient, as asked for, on those of the penalty's mask."""
    tokens = terms.tokens(penalty.mask)
    d = attach(terms.current, terms.batch.log_r["current/reference"], tokens)
    value = estimate(penalty, d)
    source = ESTIMATORS["k2"](d) if penalty.gradient == "unbiased" else value
    if penalty.importance == "none":
        return _straight(value, source)
    rho = ratio(terms.log_ratio_over(penalty.mask))
    if penalty.importance_cap is not None:
        rho = rho.clamp(max=penalty.importance_cap)
    return rho * _straight(value, source) if penalty.importance == "full" else _straight(value, rho.detach() * source)


def _straight(value: Tensor, source: Tensor) -> Tensor:
    """The value of one expression with the gradient of another."""
    return value if source is value else value.detach() + (source - source.detach())


@takes_arrays()
@torch.no_grad()
def kl_penalty(
    penalty: KlPenalty | float,
    *,
    policy: Float[Tensor, "*tokens"],
    reference: Float[Tensor, "*tokens"],
    mask: Tensor,
) -> Float[Tensor, "*tokens"]:
    """coefficient · KL of each token, to be subtracted from its reward; 0 outside the mask and where a log-prob is missing.

    `penalty` may be given by its coefficient. `policy` is the one whose KL is charged: proximal, or behavior where that is all there is.
    """
    penalty, coefficient = term_and_coefficient(UNIT, penalty, "kl_penalty")
    if not policy.shape == reference.shape == mask.shape:
        raise InputError(
            f"policy, reference and mask need one shape, got {tuple(policy.shape)}, {tuple(reference.shape)} and "
            f"{tuple(mask.shape)}. One log-prob per token, same index everywhere."
        )
    check_mask(mask)
    for name, log_probs in (("policy", policy), ("reference", reference)):
        check_log_probs(name, log_probs, mask)
    kind = working_type(policy, reference)
    d = policy.detach().to(kind) - reference.detach().to(kind)
    counted = is_finite(d).mul_(indicator(mask, kind))
    d = torch.nan_to_num(d, nan=0.0, posinf=0.0, neginf=0.0).mul_(counted)
    return estimate(penalty, d) * counted * coefficient
