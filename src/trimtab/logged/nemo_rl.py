"""NeMo-RL's scalars: means over the tokens left after `seq_logprob_error_threshold`, a KL each way by `reference_policy_kl_type`."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from trimtab.config.losses import Clip, Gspo
from trimtab.core.divergence import k3
from trimtab.core.weight import bound_ratio
from trimtab.logged.views import (
    CorrectionView,
    GateView,
    LossView,
    Table,
    beyond,
    fill,
    greatest,
    least,
    mean,
)
from trimtab.losses.kl import ESTIMATORS


def _k3_to_mixture(x: CorrectionView, side: int) -> Tensor:
    """k3 of one policy against the even mixture of both."""
    ours, other = x.log_prob(side), x.log_prob(1 - side)
    mixture = torch.logaddexp(ours, other) - math.log(2.0)
    return k3(ours - mixture)


def _row_count(x: CorrectionView) -> Tensor:
    return x.layout.peak(x.kept).clamp(min=0.0).sum()


ERRORS: Table[CorrectionView] = {
    "token_mult_prob_error": lambda x: mean(x.log_r.abs().exp(), x.kept),
    "gen_kl_error": lambda x: mean(ESTIMATORS[x.kl](-x.log_r), x.kept),
    "policy_kl_error": lambda x: mean(ESTIMATORS[x.kl](x.log_r), x.kept),
    "js_divergence_error": lambda x: mean((_k3_to_mixture(x, 0) + _k3_to_mixture(x, 1)) / 2, x.kept),
}

SEQUENCES: Table[GateView] = {
    "max_seq_mult_prob_error": lambda x: greatest(x.rows, x.seen.present),
    "mean_seq_mult_prob_error": lambda x: mean(x.rows, x.seen.present),
    "min_seq_mult_prob_error": lambda x: least(x.rows, x.seen.present),
    "max_seq_mult_prob_error_after_mask": lambda x: greatest(x.rows, x.seen.present * x.verdict.inside),
    "mean_seq_mult_prob_error_after_mask": lambda x: mean(x.rows, x.seen.present * x.verdict.inside),
    "min_seq_mult_prob_error_after_mask": lambda x: least(x.rows, x.seen.present * x.verdict.inside),
    "num_masked_seqs": lambda x: (x.seen.present * (1.0 - x.verdict.inside)).sum(),
}


def _outside(x: CorrectionView) -> Tensor | None:
    """What the bounds act on: tokens, or sequences where their geometric mean is tested."""
    assert x.weighed is not None
    for each in x.gates("zero"):
        left = x.layout.peak(x.kept).clamp(min=0.0)
        return mean(1.0 - each.verdict.inside, left)
    weight = x.weighed.weight
    if weight.upper is None:
        return None
    high, low = beyond(x.raw, weight.lower, weight.upper)
    return mean(high + low, x.kept)


def _sum_of_weights(x: CorrectionView) -> Tensor:
    """The sum, not the mean, of the weights of all rows, 1 for a row that is out: the shapes broadcast to rows by rows."""
    assert x.weighed is not None
    out = bound_ratio(torch.zeros_like(x.lengths), x.weighed.weight)
    return torch.where(x.layout.peak(x.kept) > 0, x.unit_weight, out).sum()


def _weights(x: CorrectionView) -> dict[str, Tensor]:
    if x.weighed is None:
        return {}
    ratio = mean(x.weight, x.kept) if x.weighed.units is None else _sum_of_weights(x)
    outside = _outside(x)
    return {"sampling_importance_ratio": ratio} | ({} if outside is None else {"is_oob_ratio": outside})


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """Errors between the policies, and the weights."""
    found = fill(ERRORS, x) | _weights(x) | {"num_valid_samples": _row_count(x)}
    for each in x.gates("reject"):
        found |= fill(SEQUENCES, each)
    return found


def _clips(x: LossView) -> Tensor:
    assert isinstance(x.loss, Clip | Gspo)
    return x.rho.clamp(1.0 - x.loss.low, 1.0 + x.loss.high)


RATIO: Table[LossView] = {
    "probs_ratio": lambda x: mean(x.rho, x.kept),
    "probs_ratio_min": lambda x: least(x.rho, x.kept),
    "probs_ratio_max": lambda x: greatest(x.rho, x.kept),
    "probs_ratio_clamped": lambda x: mean(_clips(x), x.kept),
    "probs_ratio_clamped_min": lambda x: least(_clips(x), x.kept),
    "probs_ratio_clamped_max": lambda x: greatest(_clips(x), x.kept),
}


def loss(x: LossView) -> dict[str, Tensor]:
    """PPO's ratio, and an entropy weighed back to the current policy."""
    found = fill(RATIO, x) if isinstance(x.loss, Clip | Gspo) else {}
    if "behavior" in x.terms.batch.policies:
        found["approx_entropy"] = mean(-x.toward("behavior").exp() * x.log_prob, x.kept)
    return found
