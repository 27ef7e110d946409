"""TRL: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="trl",
    title="TRL",
    roots=("model_name_or_path", "learning_rate", "output_dir", "per_device_train_batch_size", "num_generations"),
    packages=("trl",),
    programs=r"(.*/)?trl (grpo|rloo)|trl\..*(GRPO|RLOO).*|trl\.\w.*|(.*/)?(async_)?(grpo|rloo|gspo)\w*\.py",
    own_keys=r"vllm_importance_sampling_.*|reward_funcs|num_completions_to_print",
)
