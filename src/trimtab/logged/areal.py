"""AReaL's scalars: means over the valid tokens before rejection."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from trimtab.config.losses import Sapo
from trimtab.core.ratio import above
from trimtab.logged.views import CorrectionView, LossView, Table, beyond, fill, greatest, least, mean


def _rejections(x: CorrectionView) -> Tensor:
    """Tokens rejected; under `clamp`, tokens whose weight the bounds changed."""
    lost = x.valid - x.kept
    if x.weighed is not None:
        weight = x.weighed.weight
        for high_or_low in beyond(x.raw, weight.lower, weight.upper):
            lost = torch.maximum(lost, high_or_low * x.kept)
        for each in x.gates("clamp"):
            outside = torch.maximum(*beyond(x.raw, each.gate.lower, each.gate.upper))
            lost = torch.maximum(lost, outside * each.fails)
    return lost


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """Nothing where no rejection is configured; M2PO logs none."""
    return {} if x.weighed is None else {"rs_filtered_fraction": x.mean(_rejections(x))}


def _ratio(x: LossView) -> Tensor:
    """0 where a token was rejected."""
    return x.rho * x.kept


def _gate(x: LossView, positive: bool | None) -> Tensor:
    """SAPO's (4/τ)·sigmoid(τ(ρ − 1)) with the τ of one sign, or of the advantage's own."""
    assert isinstance(x.loss, Sapo)
    rises = above(x.advantages, 0.0) if positive is None else torch.full_like(x.valid, float(positive))
    tau = x.loss.tau_negative + (x.loss.tau_positive - x.loss.tau_negative) * rises
    return 4.0 / tau * (tau * (x.rho - 1.0)).sigmoid()


STATISTICS: Table[LossView] = {
    "importance_weight": _ratio,
    "approx_kl": lambda x: x.log_rho,
    "actor_loss": lambda x: x.value * x.terms.weight,
    "clip_ratio": lambda x: x.mark("clip_high", "clip_low") * x.kept,
    "dual_clip_ratio": lambda x: x.mark("clip_dual") * x.kept,
}
SAPO: Table[LossView] = {
    "sapo_soft_gate": lambda x: _gate(x, None),
    "sapo_scaled_gate_pos": lambda x: _gate(x, True),
    "sapo_scaled_gate_neg": lambda x: _gate(x, False),
}
WEIGHED: Table[CorrectionView] = {
    "behave_imp_weight": lambda x: x.trace.weight,
    "behave_approx_kl": lambda x: x.log_r,
}
"""Per token; logged as `…/avg`, `…/min`, `…/max`."""

SIZES: Table[LossView] = {
    "clipped_tokens": lambda x: (x.mark("clip_high", "clip_low") * x.kept).sum(),
    "dual_clipped_tokens": lambda x: (x.mark("clip_dual") * x.kept).sum(),
}


def _describe(values: Mapping[str, Tensor], over: Tensor) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for name, value in values.items():
        found |= {
            f"{name}/avg": mean(value, over),
            f"{name}/min": least(value, over),
            f"{name}/max": greatest(value, over),
        }
    return found


def loss(x: LossView) -> dict[str, Tensor]:
    """The actor's. What M2PO drops is not counted, what rejection drops is."""
    seen = x.seen
    dropped_before = seen is not None and any(gate.agg == "budget" for gate in seen.rule.gates)
    over = x.kept if dropped_before else x.valid
    found = fill(SIZES, x) | {"n_valid_tokens": over.sum()}
    found |= _describe(fill({**STATISTICS, **SAPO} if isinstance(x.loss, Sapo) else STATISTICS, x), over)
    if seen is not None and seen.weighed is not None:
        weighing = above(seen.trace.weight, 0.0) * seen.kept
        found |= _describe(fill(WEIGHED, seen), weighing) | {"unclipped_behave_tokens": weighing.sum()}
    return found
