"""prime-rl: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect, Version
from trimtab.dialects.prime_rl import SIGNATURE
from trimtab.dialects.prime_rl.advantage import advantage_of
from trimtab.dialects.prime_rl.correction import candidates, correction_of
from trimtab.dialects.prime_rl.hints import HINTS
from trimtab.dialects.prime_rl.keys import KEYS, SECTION
from trimtab.dialects.prime_rl.kinds import REMOVED, REPLACED
from trimtab.dialects.prime_rl.loss import loss_of
from trimtab.dialects.prime_rl.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="2026-09",
    versions=(Version("before 02bdca2e4", REMOVED), Version("up to 559b4477", REPLACED)),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    is_loss=True,
    remarks=REMARKS,
    closed=(SECTION,),
    apart=("A dropped token whose ratio overflows gives 0 × inf = NaN; ours gives 0.",),
    candidates=candidates,
    hints=HINTS,
)
