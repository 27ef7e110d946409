"""TRL: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.dialect import Dialect
from trimtab.dialects.trl.advantage import advantage_of
from trimtab.dialects.trl.correction import candidates, correction_of
from trimtab.dialects.trl.examples import EXAMPLES
from trimtab.dialects.trl.hints import HINTS
from trimtab.dialects.trl.keys import KEYS
from trimtab.dialects.trl.loss import loss_of
from trimtab.dialects.trl.remarks import REMARKS

DIALECT = Dialect(
    name="trl",
    title="TRL",
    version="1.16.0",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    roots=("model_name_or_path", "learning_rate", "output_dir", "per_device_train_batch_size", "num_generations"),
    packages=("trl",),
    programs=r"(.*/)?trl (grpo|rloo)|trl\..*(GRPO|RLOO).*|trl\.\w.*|(.*/)?(grpo|rloo|gspo)\w*\.py",
    apart=("A NaN log-ratio counts as 0, so the token weighs 1; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
    examples=EXAMPLES,
)

__all__ = ["DIALECT"]
