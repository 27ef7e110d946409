"""Tunix's scalars: the agreement of sampler and trainer, the sampler's weight, and the clip."""

from __future__ import annotations

import torch
from torch import Tensor

from trimtab.config.losses import Clip, Gspo
from trimtab.core.ratio import above
from trimtab.logged.clipping import clips
from trimtab.logged.views import CorrectionView, LossView, Table, fill, greatest, least, mean

LIMIT = 20.0


def _prob_diff(x: CorrectionView) -> Tensor:
    return (x.log_prob(1).exp() - x.log_prob(0).exp()).abs()


def _correlation(x: CorrectionView) -> Tensor:
    """Pearson's, between the probabilities of the two."""
    one, other = (x.log_prob(side).double().exp() for side in (1, 0))
    over, count = x.valid.double(), x.valid.sum(dtype=torch.float64).clamp(min=1.0)
    one, other = ((each - (each * over).sum() / count) * over for each in (one, other))
    spread = one.square().sum() * other.square().sum() / count.square()
    return ((one * other).sum() / count / spread.clamp(min=1e-12).sqrt()).float()


def _cut(x: CorrectionView) -> Tensor:
    assert x.weighed is not None
    upper = x.weighed.weight.upper
    return above(x.raw, torch.inf if upper is None else upper)


SAMPLER: Table[CorrectionView] = {
    "sampler_trainer/logp_diff_mean": lambda x: x.mean(x.log_r.abs()),
    "sampler_trainer/logp_diff_max": lambda x: greatest(x.log_r.abs(), x.valid),
    "sampler_trainer/prob_diff_mean": lambda x: x.mean(_prob_diff(x)),
    "sampler_trainer/prob_diff_max": lambda x: greatest(_prob_diff(x), x.valid),
    "sampler_trainer/probs_pearson_corr": _correlation,
    "sampler_is/weight_mean": lambda x: x.mean(x.weight),
    "sampler_is/weight_max": lambda x: greatest(x.weight, x.valid),
    "sampler_is/frac_clipped_at_threshold": lambda x: x.mean(_cut(x)),
}
CLIP: Table[LossView] = {
    "pg_clipfrac": lambda x: mean(clips(x), x.valid),
    "ppo_kl": lambda x: -mean(x.log_rho, x.valid),
    "is_ratio/mean": lambda x: mean(_ratio(x), x.valid),
    "is_ratio/max": lambda x: greatest(_ratio(x), x.valid),
    "is_ratio/min": lambda x: least(_ratio(x), x.valid),
}


def _ratio(x: LossView) -> Tensor:
    return x.rho if isinstance(x.loss, Gspo) else x.log_rho.clamp(-LIMIT, LIMIT).exp()


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """Where sampler_is weighs: the trainer's log-probs are then known apart from the sampler's."""
    return {} if x.weighed is None or x.rule.policies == "bypass" else fill(SAMPLER, x)


def loss(x: LossView) -> dict[str, Tensor]:
    """The clip, over the tokens."""
    return fill(CLIP, x) if isinstance(x.loss, Clip | Gspo) else {}
