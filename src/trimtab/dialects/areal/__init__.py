"""AReaL: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="areal",
    title="AReaL",
    roots=(
        "actor",
        "ref",
        "critic",
        "rollout",
        "gconfig",
        "cluster",
        "train_dataset",
        "experiment_name",
        "saver",
        "evaluator",
    ),
    packages=("areal",),
    programs=r"(.*/)?areal[./]\w.*",
    own_keys=r"gconfig\.\w+|actor\.(behav|eps_clip_higher|m2_threshold|rejection_sampling|use_decoupled_loss|recompute_logprob).*"
    r"|ppo\.(behav_imp_weight_cap|use_decoupled_loss|recompute_logprob)",
)
