"""ROLL: `loss_agg_mode`, as far as it looks at the mask."""

from __future__ import annotations

from trimtab.config.losses import Reduction
from trimtab.dialects.keys import Given, Key, text
from trimtab.dialects.objectives.kinds import Descent, reduced

KEYS = (Key("loss_agg_mode", text, "seq-mean-token-mean", part="loss"),)
MODES = {name: name for name in ("seq-mean-token-mean", "seq-mean-token-sum")}
BLIND = ("token-mean", "seq-mean-token-sum-norm")
"""Modes that no reduction can say: one ignores the mask, the other forgets the number of sequences."""


def descent(given: Given) -> Descent:
    """The reduction only: the loss is the worker's."""
    mode = given["loss_agg_mode"]
    found: Reduction | None = None if mode in BLIND else reduced(MODES, "ROLL loss_agg_mode", mode)
    return Descent(reduction=found)
