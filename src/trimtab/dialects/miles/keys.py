"""The settings of miles that concern us, with its defaults: slime's, some otherwise, and its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trimtab.dialects.framework import Key
from trimtab.dialects.slime.keys import KEYS as SLIME
from trimtab.dialects.slime.keys import EstimatorName
from trimtab.dialects.values import flag, text

ESTIMATORS = ("grpo", "gspo", "ppo", "reinforce_plus_plus", "reinforce_plus_plus_baseline")
OTHERWISE: dict[str, dict[str, Any]] = {
    "advantage_estimator": {"kind": EstimatorName(ESTIMATORS)},
    "tis_batch_normalize": {"default": False},
}
"""What slime's keys are here: miles has no CISPO, and its recipe does not normalise unless it is told to."""
REPLAYED = "rollout_top_p"
"""slime replays what top-p kept; miles only proposes to (miles#2596)."""
NOT_HERE = ("use_score_centering", "pg_loss_type", "tis_binary_kl_threshold", "use_mopd")
"""Keys of slime that no release of miles has; read in order to be refused."""
KEYS = (
    *(replace(key, legacy=key.legacy or key.path in NOT_HERE, **OTHERWISE.get(key.path, {})) for key in SLIME),
    Key("partial_rollout", flag, False, part="other"),
    Key("mask_offpolicy_in_partial_rollout", flag, False, part="other"),
    Key("recompute_logprobs_via_prefill", flag, False, part="other"),
    Key("skip_actor_forward_only", flag, False, part="other"),
    Key("qkv_format", text, "thd", part="other"),
)
