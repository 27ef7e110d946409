"""ms-swift: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="ms-swift",
    short="swift",
    title="ms-swift",
    roots=("model", "rlhf_type", "learning_rate", "output_dir", "num_generations", "beta"),
    packages=("swift",),
    programs=r"(.*/)?(swift|megatron) rlhf|swift\.\w.*",
    own_keys=r"rlhf_type|external_plugins|train_type",
)
