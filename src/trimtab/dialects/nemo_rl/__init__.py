"""NeMo-RL: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.dialect import Dialect
from trimtab.dialects.nemo_rl.advantage import advantage_of
from trimtab.dialects.nemo_rl.correction import candidates, correction_of
from trimtab.dialects.nemo_rl.examples import EXAMPLES
from trimtab.dialects.nemo_rl.hints import HINTS
from trimtab.dialects.nemo_rl.keys import KEYS
from trimtab.dialects.nemo_rl.loss import loss_of
from trimtab.dialects.nemo_rl.remarks import REMARKS

DIALECT = Dialect(
    name="nemo-rl",
    short="nemo",
    title="NeMo-RL",
    version="7ea279ab",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    roots=("grpo", "loss_fn", "policy", "data", "env", "logger", "cluster", "checkpointing"),
    packages=("nemo_rl",),
    programs=r"(.*/)?run_(async_)?(grpo|sliding|vlm_grpo|dapo)\w*\.py|nemo_rl\.\w.*",
    own_keys=r"loss_fn\.\w+|grpo\.num_prompts_per_step|policy\.generation\..*",
    apart=("A non-finite ratio weighs 0 and stays in the denominator; ours takes the token as never trained.",),
    logged_kl=lambda given: given["reference_policy_kl_type"],
    candidates=candidates,
    hints=HINTS,
    examples=EXAMPLES,
)

__all__ = ["DIALECT"]
