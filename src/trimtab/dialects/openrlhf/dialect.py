"""OpenRLHF: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.framework import Dialect, Version
from trimtab.dialects.openrlhf import SIGNATURE
from trimtab.dialects.openrlhf.advantage import advantage_of
from trimtab.dialects.openrlhf.correction import candidates, correction_of
from trimtab.dialects.openrlhf.hints import HINTS
from trimtab.dialects.openrlhf.keys import KEYS
from trimtab.dialects.openrlhf.loss import loss_of
from trimtab.dialects.openrlhf.remarks import REMARKS

DIALECT = Dialect(
    SIGNATURE,
    version="0.11.2",
    versions=(
        Version(
            "before 0.11.2",
            (
                "enable_vllm_is_correction",
                "vllm_is_truncated_threshold",
                "vllm_is_correction_type",
                "use_icepop",
                "is_correction_enable",
                "is_correction_type",
            ),
        ),
    ),
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    apart=("A NaN log-prob gives coefficient 0 and a NaN loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
)
