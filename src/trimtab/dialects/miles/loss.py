"""miles: PPO's clip or GSPO, a mean per sample or per token, and the KL term, as slime has them."""

from __future__ import annotations

from trimtab.dialects.framework import Given
from trimtab.dialects.miles.correction import refuse_slimes
from trimtab.dialects.parts import LossPart
from trimtab.dialects.slime.loss import loss_of as slime_loss


def loss_of(given: Given) -> LossPart:
    """As slime, without what only slime has."""
    refuse_slimes(given)
    return slime_loss(given)
