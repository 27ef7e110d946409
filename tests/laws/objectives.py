"""Losses, reductions and corrections for the laws, and one way to run them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from tests.laws.batches import Sample
from trimtab.config import losses as config
from trimtab.config.correction import Correction
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction
from trimtab.config.presets import preset
from trimtab.losses.policy import policy_loss

LOSSES: list[Objective] = [
    config.Clip(),
    config.Clip(low=0.1, high=0.3, dual=1.5, log_limit=20.0),
    config.Gspo(low=0.05, high=0.05),
    config.Gspo(low=0.05, high=0.05, level="sequence-token", scope="trained", log_upper=10.0),
    config.Gspo(low=0.05, high=0.05, advantage="sequence", dual=2.0),
    config.Luspo(low=0.05, high=0.05),
    config.Cispo(lower=0.8, upper=1.2),
    config.Cispo(level="sequence", upper=None),
    config.Sapo(),
    config.Sapo(level="sequence", advantage="sequence"),
    config.Gmpo(),
    config.Gmpo(weights="geometric"),
    config.ClipCov(fraction=1.0, lower=0.01, upper=5.0),
    config.KlCov(fraction=0.3),
    config.Reinforce(),
    config.ImportancePg(),
    config.DppoTv(low=0.05, high=0.05, ratio_cap=3.0),
    config.DppoKl(low=0.02, high=0.02, gradient="ratio"),
    config.Topr(),
    config.Topr(level="token", positive=2.0, negative=0.5),
    config.Vespo(),
    config.Vespo(weights="inside"),
    config.Dro(),
    config.Bapo(target=1.1),
    config.Aspo(low=0.1, high=0.1, dual=1.2, dual_positive=1.3),
]
SEGMENTS = config.Gspo(level="segment", low=0.05, high=0.05)
FUTURE = config.Fipo(low=0.1, high=0.1, ratio_cap=1.5, half_life=2.0, lower=0.9, upper=1.3, safety=1.1)
WHOLE = [SEGMENTS, FUTURE]
"""Losses that need whole sequences on a rank."""

REDUCTIONS = [
    Reduction(mode="token-mean"),
    Reduction(mode="token-sum"),
    Reduction(mode="seq-mean-token-mean"),
    Reduction(mode="seq-mean-token-sum"),
    Reduction(mode="seq-mean-token-sum-norm", constant=16.0),
    Reduction(mode="prompt-mean"),
]

CORRECTIONS: dict[str, Correction | None] = {
    "none": None,
    "geo-rs+token-mis": preset("geo-rs+token-mis", lower=0.9, upper=1.1),
    "geo-rs, kept": preset("geo-rs", lower=0.9, upper=1.1).but(denominator="kept"),
    "icepop": preset("icepop", lower=0.8, upper=1.25),
    "opsm": preset("opsm", delta=0.02),
    "bypass-token-tis": preset("bypass-token-tis", upper=1.2),
    "m2po": preset("m2po", tau=0.005),
}
OF_THE_BATCH = {name for name, rule in CORRECTIONS.items() if rule is not None and rule.needs_whole_step}
"""Rules with a statistic over the whole batch: worked out once per step, not per micro-batch."""

COVARIANCE = (config.ClipCov, config.KlCov, config.Bapo)
"""Losses with a statistic over the tokens of a call: invariant over ranks, layouts and order
(of equal covariances the first are taken), not over micro-batches."""


@dataclass(frozen=True)
class Setup:
    """What is asked for; the tensors come from a sample."""

    loss: Objective
    reduction: Reduction
    rule: str
    extras: bool

    @property
    def correction(self) -> Correction | None:
        return CORRECTIONS[self.rule]

    def settings(self) -> dict[str, Any]:
        terms = {"kl": KlPenalty(coefficient=0.3), "entropy_bonus": EntropyBonus(coefficient=0.1, mask="kept")}
        return {"correction": self.correction, "reduction": self.reduction} | (terms if self.extras else {})


@st.composite
def setups(draw: st.DrawFn, losses: list[Objective] | None = None) -> Setup:
    return Setup(
        draw(st.sampled_from(losses or [*LOSSES, *WHOLE])),
        draw(st.sampled_from(REDUCTIONS)),
        draw(st.sampled_from(list(CORRECTIONS))),
        draw(st.booleans()),
    )


def tensors(sample: Sample, *, kind: torch.dtype = torch.float64) -> dict[str, Tensor]:
    """The sample's tokens, with a reference policy, entropies and prompts of mixed size; float64, so that only rounding differs."""
    found = {name: each if name == "mask" else each.to(kind) for name, each in sample.tensors().items()}
    found["reference"] = (found["proximal"] - 0.3).contiguous()
    found["entropy"] = found["behavior"].abs() + 0.1
    return found | {"group": torch.arange(len(sample.lengths)) % 3 * 5 - 1}


def gradients(setup: Setup, data: Mapping[str, Tensor], **more: Any) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss, and the gradients of what has one."""
    leaves = {name: data[name].clone().requires_grad_() for name in ("current", "entropy")}
    found = policy_loss(setup.loss, **(dict(data) | leaves), **(setup.settings() | more))
    found.loss.backward()
    grads: dict[str, Tensor] = {}
    for name, leaf in leaves.items():
        grads[name] = torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
    return found.loss.detach(), grads


def same(one: Tensor, other: Tensor, rtol: float = 1e-9) -> None:
    """Equal up to rounding, measured against the largest number."""
    size = float(other.abs().max()) if other.numel() else 0.0
    torch.testing.assert_close(one, other, rtol=rtol, atol=rtol * max(size, 1e-6))
