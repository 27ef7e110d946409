"""ROLL: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect
from trimtab.dialects.roll import SIGNATURE
from trimtab.dialects.roll.advantage import advantage_of
from trimtab.dialects.roll.correction import candidates, correction_of
from trimtab.dialects.roll.hints import HINTS
from trimtab.dialects.roll.keys import KEYS, SECTION
from trimtab.dialects.roll.loss import loss_of
from trimtab.dialects.roll.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="8eb27cc2",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    closed=(SECTION, f"{SECTION}.is_weight"),
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
)
