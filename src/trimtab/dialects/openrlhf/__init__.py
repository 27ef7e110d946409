"""OpenRLHF: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="openrlhf",
    title="OpenRLHF",
    roots=("actor", "algo", "critic", "data", "reward", "rollout", "train", "ref", "ckpt", "logger", "vllm"),
    packages=("openrlhf",),
    programs=r"openrlhf\.\w.*",
    own_keys=r"algo\.advantage\..*|remote_rm_url|vllm_num_engines|generate_max_len",
)
