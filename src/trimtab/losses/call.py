"""One call of `policy_loss`, its settings resolved and its tensors checked: what both forms of a loss work on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction
from trimtab.core.correct import Corrected
from trimtab.core.head import HeadLogProbs
from trimtab.core.layout import Layout
from trimtab.core.reduce import Denominator


@dataclass(frozen=True, eq=False, kw_only=True)
class LossCall:
    """What one call asks for. `policies` are those that are compared, in `pairs`; `anchor` the one that ρ divides by."""

    loss: Objective
    correction: Correction | Corrected | None
    reduction: Reduction
    penalty: tuple[KlPenalty | None, float]
    bonus: tuple[EntropyBonus | None, float]
    policies: Mapping[str, Tensor]
    pairs: tuple[str, ...]
    anchor: str
    advantages: Tensor
    mask: Tensor
    layout: Layout
    entropy: Tensor | None
    denominator: Denominator | None
    group: Tensor | None
    generator: torch.Generator | None
    head: HeadLogProbs | None = None
    age: Tensor | None = None
