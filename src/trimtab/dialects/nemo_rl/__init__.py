"""NeMo-RL: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="nemo-rl",
    short="nemo",
    title="NeMo-RL",
    roots=("grpo", "loss_fn", "policy", "data", "env", "logger", "cluster", "checkpointing"),
    packages=("nemo_rl",),
    programs=r"(.*/)?run_(async_)?(grpo|sliding|vlm_grpo|dapo)\w*\.py|nemo_rl\.\w.*",
    own_keys=r"loss_fn\.\w+|grpo\.num_prompts_per_step|policy\.generation\..*",
)
