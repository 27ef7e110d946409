"""open-instruct: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect, Version
from trimtab.dialects.open_instruct import SIGNATURE
from trimtab.dialects.open_instruct.advantage import advantage_of
from trimtab.dialects.open_instruct.correction import REMOVED, candidates, correction_of
from trimtab.dialects.open_instruct.hints import HINTS
from trimtab.dialects.open_instruct.keys import KEYS
from trimtab.dialects.open_instruct.loss import loss_of
from trimtab.dialects.open_instruct.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="e6c3044a",
    versions=(Version("before the rho_* flags", REMOVED),),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    entry_points=r"(?!.*\.py$).*|mason\.py|(.*/)?(grpo|grpo_fast)\.py",
    apart=("The log-ratio is held within ±10.",),
    candidates=candidates,
    hints=HINTS,
)
