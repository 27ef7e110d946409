"""NeMo-RL: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect
from trimtab.dialects.nemo_rl import SIGNATURE
from trimtab.dialects.nemo_rl.advantage import advantage_of
from trimtab.dialects.nemo_rl.correction import candidates, correction_of
from trimtab.dialects.nemo_rl.hints import HINTS
from trimtab.dialects.nemo_rl.keys import KEYS
from trimtab.dialects.nemo_rl.loss import loss_of
from trimtab.dialects.nemo_rl.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="7ea279ab",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=("A non-finite ratio weighs 0 and stays in the denominator; ours takes the token as never trained.",),
    logged_kl=lambda given: given["reference_policy_kl_type"],
    candidates=candidates,
    hints=HINTS,
)
