"""miles, a descendant of slime: what it reads beside and apart from it, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect, Version
from trimtab.dialects.miles import SIGNATURE
from trimtab.dialects.miles.advantage import advantage_of
from trimtab.dialects.miles.correction import candidates, correction_of
from trimtab.dialects.miles.keys import KEYS
from trimtab.dialects.miles.loss import loss_of
from trimtab.dialects.miles.remarks import REMARKS
from trimtab.dialects.slime.hints import HINTS
from trimtab.dialects.slime.keys import BEFORE

DIALECT = Dialect(
    SIGNATURE,
    version="0.0.2 and later sources",
    versions=(
        Version("before use_rs", BEFORE),
        Version("after 0.0.2", ("skip_actor_forward_only", "observe_training_entropy", "use_opd", "opd_type")),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=(
        "A NaN log-prob counts as a ratio of 1 in the clip and spreads to the loss where --use-tis weighs; ours takes the token as never "
        "trained.",
    ),
    candidates=candidates,
    hints=HINTS,
)
