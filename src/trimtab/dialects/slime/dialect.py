"""slime: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect, Version
from trimtab.dialects.slime import SIGNATURE
from trimtab.dialects.slime.advantage import advantage_of
from trimtab.dialects.slime.correction import candidates, correction_of
from trimtab.dialects.slime.hints import HINTS
from trimtab.dialects.slime.keys import BEFORE, KEYS
from trimtab.dialects.slime.loss import loss_of
from trimtab.dialects.slime.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="624b824a",
    versions=(
        Version("before use_rs", BEFORE),
        Version("after 624b824a, and vime", ("use_score_centering", "score_centering_top_k")),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
)
