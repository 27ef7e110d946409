"""prime-rl: what it reads, what it computes, what is surprising about it."""

import re

from trimtab.dialects.dialect import Dialect, Version
from trimtab.dialects.prime_rl.advantage import advantage_of
from trimtab.dialects.prime_rl.correction import candidates, correction_of
from trimtab.dialects.prime_rl.examples import EXAMPLES
from trimtab.dialects.prime_rl.hints import HINTS
from trimtab.dialects.prime_rl.keys import KEYS, SECTION
from trimtab.dialects.prime_rl.kinds import ORCHESTRATOR, REMOVED, REPLACED
from trimtab.dialects.prime_rl.loss import loss_of
from trimtab.dialects.prime_rl.remarks import REMARKS

DIALECT = Dialect(
    name="prime-rl",
    short="prime",
    title="prime-rl",
    version="2026-09",
    versions=(Version("before 02bdca2e4", REMOVED), Version("up to 559b4477", REPLACED)),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    is_loss=True,
    remarks=REMARKS,
    closed=(SECTION,),
    roots=("trainer", "orchestrator", "inference", "model", "log", "max_steps"),
    packages=("prime_rl",),
    programs=r"rl|prime_rl[./]\w.*",
    own_keys=rf"orchestrator\.\w.*|trainer\.loss\..*|{'|'.join(map(re.escape, ORCHESTRATOR))}",
    apart=("A dropped token whose ratio overflows gives 0 × inf = NaN; ours gives 0.",),
    candidates=candidates,
    hints=HINTS,
    examples=EXAMPLES,
)

__all__ = ["DIALECT"]
