"""ROLL: what it reads, what it computes, what is surprising about it."""

from trimtab.dialects.dialect import Dialect
from trimtab.dialects.roll.advantage import advantage_of
from trimtab.dialects.roll.correction import candidates, correction_of
from trimtab.dialects.roll.examples import EXAMPLES
from trimtab.dialects.roll.hints import HINTS
from trimtab.dialects.roll.keys import KEYS, SECTION
from trimtab.dialects.roll.loss import loss_of
from trimtab.dialects.roll.remarks import REMARKS

DIALECT = Dialect(
    name="roll",
    title="ROLL",
    version="8eb27cc2",
    keys=KEYS,
    correction_of=correction_of,
    loss_of=loss_of,
    advantage_of=advantage_of,
    remarks=REMARKS,
    closed=(SECTION, f"{SECTION}.is_weight"),
    roots=("exp_name", "actor_train", "actor_infer", "reference", "rewards", "rollout_batch_size", "pretrain"),
    packages=("roll",),
    programs=r"(.*/)?start_\w+_pipeline\.py|roll\.\w.*",
    own_keys=r"actor_train\.(training_args|strategy_args|model_args)\..*|num_return_sequences_in_group|train_infer_correction\..*",
    apart=("A NaN log-prob spreads to the loss; ours takes the token as never trained.",),
    candidates=candidates,
    hints=HINTS,
    examples=EXAMPLES,
)

__all__ = ["DIALECT"]
