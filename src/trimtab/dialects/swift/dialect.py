"""ms-swift: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect
from trimtab.dialects.swift import SIGNATURE
from trimtab.dialects.swift.advantage import advantage_of
from trimtab.dialects.swift.correction import candidates, correction_of
from trimtab.dialects.swift.hints import HINTS
from trimtab.dialects.swift.keys import KEYS
from trimtab.dialects.swift.loss import loss_of
from trimtab.dialects.swift.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="4.6.0",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
)
