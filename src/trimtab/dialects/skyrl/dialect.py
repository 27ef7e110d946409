"""SkyRL: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect, Version
from trimtab.dialects.skyrl import SIGNATURE
from trimtab.dialects.skyrl.advantage import advantage_of
from trimtab.dialects.skyrl.correction import candidates, correction_of
from trimtab.dialects.skyrl.hints import HINTS
from trimtab.dialects.skyrl.keys import KEYS, SECTION
from trimtab.dialects.skyrl.loss import loss_of
from trimtab.dialects.skyrl.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="0.4.0",
    releases=("0.3.0", "0.4.0"),
    versions=(Version("before #849", ("use_tis", "tis_imp_ratio_cap")),),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    closed=(SECTION,),
    entry_points=r"skyrl.*|.*main_dapo\w*",
    others=("token_mask_ratio",),
    apart=(
        "A NaN log-prob is kept by veto and sequence masks and dropped by the token mask; ours takes the token as never trained.",
    ),
    candidates=candidates,
    hints=HINTS,
)
