"""ROLL: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="roll",
    title="ROLL",
    roots=("exp_name", "actor_train", "actor_infer", "reference", "rewards", "rollout_batch_size", "pretrain"),
    packages=("roll",),
    programs=r"(.*/)?start_\w+_pipeline\.py|roll\.\w.*",
    own_keys=r"actor_train\.(training_args|strategy_args|model_args)\..*|num_return_sequences_in_group|train_infer_correction\..*",
)
