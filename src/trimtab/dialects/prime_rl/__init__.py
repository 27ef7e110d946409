"""prime-rl: how its files are known. What it reads and computes is in `dialect`."""

import re

from trimtab.dialects.signature import Signature

ORCHESTRATOR = (
    "rollouts_per_example",
    "max_off_policy_steps",
    "max_inflight_rollouts",
    "train.env",
    "pre_batch_filters",
    "post_batch_filters",
)
"""Keys of the orchestrator, which stand at the top where it has a file of its own."""
SIGNATURE = Signature(
    name="prime-rl",
    short="prime",
    title="prime-rl",
    roots=("trainer", "orchestrator", "inference", "model", "log", "max_steps"),
    packages=("prime_rl",),
    programs=r"rl|prime_rl[./]\w.*",
    own_keys=rf"orchestrator\.\w.*|trainer\.loss\..*|{'|'.join(map(re.escape, ORCHESTRATOR))}",
)
