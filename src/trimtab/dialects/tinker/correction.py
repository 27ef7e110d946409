"""Tinker: two policies only. A loss sees the sampler's log-probs and those of the model being trained; nothing is gated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trimtab.config.algebra import Correction, Weight
from trimtab.dialects.framework import Given
from trimtab.dialects.tinker.loss import REFUSED, loss_name

TWO_POLICIES = Correction(policies="bypass", weight=Weight(level="one"))


def correction_of(given: Given) -> Correction | None:
    """The ratio of the loss is current/behavior and carries the whole correction."""
    return None if loss_name(given) in REFUSED else TWO_POLICIES


def candidates(rule: Correction) -> Iterator[dict[str, Any]]:
    """The losses, where nothing is gated or weighed beside them."""
    if not rule.gates and rule.centering is None and (rule.weight is None or rule.weight.level == "one"):
        yield from ({"loss_fn": name} for name in ("importance_sampling", "ppo", "cispo", "gspo", "dro"))
