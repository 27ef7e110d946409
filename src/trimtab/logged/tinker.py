"""The cookbook's scalars: how far the sampler is from the model being trained, over the answer tokens of the batch."""

from __future__ import annotations

from torch import Tensor

from trimtab.logged.views import CorrectionView, Table, fill

DRIFT: Table[CorrectionView] = {
    "optim/kl_sample_train_v1": lambda x: -x.mean(x.log_r),
    "optim/kl_sample_train_v2": lambda x: x.mean(x.log_r.square()) / 2,
    "optim/entropy": lambda x: -x.mean(x.log_prob(1)),
}


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """First and second order, and minus the mean of the sampler's log-probs, which it calls the entropy."""
    return fill(DRIFT, x)
