"""OpenRLHF's scalars."""

from __future__ import annotations

from torch import Tensor

from trimtab.logged.views import CorrectionView, LossView, beyond, mean


def _rejections(x: CorrectionView) -> Tensor:
    """Tokens outside the bounds; of whole sequences, rows, and there a row without tokens counts as filtered."""
    for each in x.gates("zero"):
        if each.gate.level == "sequence":
            return (1.0 - each.verdict.inside * x.present).mean()
        return x.mean(each.fails)
    assert x.weighed is not None
    high, low = beyond(x.raw, x.weighed.weight.lower, x.weighed.weight.upper)
    return x.mean(high + low)


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """Nothing where `is_correction_level` is off."""
    if x.weighed is None:
        return {}
    return {"vllm_kl": -x.mean(x.log_r), "is_filter_ratio": _rejections(x)}


def loss(x: LossView) -> dict[str, Tensor]:
    """Clipping, and drift from proximal; a corrected GSPO never reads proximal here."""
    found = {"ppo_clip_ratio": mean(x.mark("clip_high", "clip_low"), x.valid)}
    return found | {"ppo_kl": -mean(x.log_rho, x.valid)} if x.terms.anchor == "proximal" else found
