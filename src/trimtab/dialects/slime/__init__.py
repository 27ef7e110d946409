"""slime: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="slime",
    title="slime",
    roots=("rollout_batch_size", "n_samples_per_prompt", "hf_checkpoint", "advantage_estimator", "global_batch_size"),
    packages=("slime", "vime"),
    programs=r"(slime|vime)\.\w.*|command_utils.*",
    own_keys=r"rollout_max_response_len|rollout_function_path|custom_rm_path|rollout_num_gpus(_per_engine)?|ref_load|hf_checkpoint"
    r"|sglang_mem_fraction_static|use_m?opd|mopd_\w+|custom_tis_function_path",
)
