"""open-instruct: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="open-instruct",
    title="open-instruct",
    roots=("exp_name", "learning_rate", "model_name_or_path", "num_samples_per_prompt_rollout"),
    packages=("open_instruct",),
    programs=r"(.*/)?open_instruct[./].*|mason\.py",
    own_keys=r"num_samples_per_prompt_rollout|num_unique_prompts_rollout|dataset_mixer_list",
)
