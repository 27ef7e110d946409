"""ms-swift's scalars."""

from __future__ import annotations

from torch import Tensor

from trimtab.config.losses import Cispo
from trimtab.core.ratio import above
from trimtab.logged.clipping import Clipping, cispo_clips, clips, clips_high, clips_low
from trimtab.logged.drift import DRIFT, LIMIT, ess
from trimtab.logged.views import CorrectionView, LossView, Table, fill, mean


def _threshold(x: CorrectionView) -> float:
    assert x.rule.weight is not None
    found = [x.rule.weight.upper, *(gate.upper for gate in x.rule.gates if gate.metric == "ratio")]
    return next(upper for upper in found if upper is not None)


def _clip_fraction(x: CorrectionView) -> Tensor:
    """Tokens beyond the threshold, or rows (all of them) whose geometric mean is."""
    assert x.weighed is not None
    by_row = x.weighed.units is not None or any(gate.metric == "ratio" for gate in x.rule.gates)
    if by_row:
        return above(x.by_row(x.log_r_within(LIMIT)).exp(), _threshold(x)).mean()
    return x.mean(above(x.raw, _threshold(x)))


APART: Table[CorrectionView] = {
    **DRIFT,
    "k3_kl": lambda x: x.mean((x.log_r_within(LIMIT).expm1() - x.log_r_within(LIMIT)).clamp(-10, 10)),
    "chi2_seq": lambda x: (2 * x.by_row(x.log_r).clamp(-LIMIT, LIMIT)).expm1().mean(),
}
"""Their χ² of a sequence squares its geometric mean."""

WEIGHT: Table[CorrectionView] = {
    "is_weight_mean": lambda x: x.mean(x.weight),
    "ess": lambda x: ess(x.weight.clamp(1 / _threshold(x), _threshold(x)), x.valid),
    "clipped_frac": _clip_fraction,
}


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """`rollout_correction/…`."""
    weighs = x.weighed is not None
    return fill({**APART, **WEIGHT} if weighs else APART, x, "rollout_correction/")


CLIP: Table[LossView] = {
    "clip_ratio/low_mean": lambda x: mean(clips_low(x), x.kept),
    "clip_ratio/low_min": lambda x: mean(clips_low(x), x.kept),
    "clip_ratio/high_mean": lambda x: mean(clips_high(x), x.kept),
    "clip_ratio/high_max": lambda x: mean(clips_high(x), x.kept),
    "clip_ratio/region_mean": lambda x: mean(clips(x), x.kept),
}
"""Their least and greatest are over processes."""


def loss(x: LossView) -> dict[str, Tensor]:
    """Clipping over the tokens that the sequence mask left."""
    found = {"kl": x.metrics["policy/kl"]} if "policy/kl" in x.metrics else {}
    if isinstance(x.loss, Clipping):
        return found | fill(CLIP, x)
    return found | {"cispo_clip_ratio": mean(cispo_clips(x), x.kept)} if isinstance(x.loss, Cispo) else found
