"""ms-swift: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.dialect import Dialect
from trimtab.dialects.swift.advantage import advantage_of
from trimtab.dialects.swift.correction import candidates, correction_of
from trimtab.dialects.swift.examples import EXAMPLES
from trimtab.dialects.swift.hints import HINTS
from trimtab.dialects.swift.keys import KEYS
from trimtab.dialects.swift.loss import loss_of
from trimtab.dialects.swift.remarks import REMARKS

DIALECT = Dialect(
    name="ms-swift",
    short="swift",
    title="ms-swift",
    version="4.6.0",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    roots=("model", "rlhf_type", "learning_rate", "output_dir", "num_generations", "beta"),
    packages=("swift",),
    programs=r"(.*/)?(swift|megatron) rlhf|swift\.\w.*",
    own_keys=r"rlhf_type|external_plugins|train_type",
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
    examples=EXAMPLES,
)

__all__ = ["DIALECT"]
