"""Tinker and its cookbook: what they read, what they compute, what is surprising about it."""

from trimtab.dialects.dialect import Dialect
from trimtab.dialects.tinker import SIGNATURE
from trimtab.dialects.tinker.advantage import advantage_of
from trimtab.dialects.tinker.correction import candidates, correction_of
from trimtab.dialects.tinker.examples import EXAMPLES
from trimtab.dialects.tinker.hints import HINTS
from trimtab.dialects.tinker.keys import KEYS, SECTION
from trimtab.dialects.tinker.loss import loss_of
from trimtab.dialects.tinker.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="tinker 0.36.0, tinker-cookbook 0.5.8",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    is_loss=True,
    remarks=REMARKS,
    closed=(SECTION,),
    entry_points=r"(?!.*/).*",
    apart=("A NaN log-prob of a sampler spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
    examples=EXAMPLES,
)
