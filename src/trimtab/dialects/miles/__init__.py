"""miles: how its files are known. What it reads and computes is in `dialect`."""

from trimtab.dialects.signature import Signature

SIGNATURE = Signature(
    name="miles",
    title="miles",
    ancestor="slime",
    roots=("use_miles_router", "recompute_logprobs_via_prefill", "max_weight_staleness"),
    packages=("miles", "miles_plugins"),
    programs=r"miles(_plugins)?[./]\w.*|(.*/)?miles/train(_async)?\.py",
    own_keys=r"recompute_logprobs_via_prefill|true_on_policy_model|max_weight_staleness|use_miles_router|miles_router_\w+"
    r"|skip_actor_forward_only|observe_training_entropy|use(_rollout)?_indexer_replay",
)
