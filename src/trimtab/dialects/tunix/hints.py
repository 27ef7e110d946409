"""How Tunix's readers of losses and advantages are searched: what is written is the agentic learner's section."""

from __future__ import annotations

from trimtab.dialects.hints import UNSAID, Hints, names
from trimtab.dialects.tunix.advantage import GROUPED

HINTS = Hints(
    options={
        "advantage_estimator": names(GROUPED),
        "policy_loss_fn": (UNSAID,),
        "training_mode": (UNSAID,),
        "kl_method": (UNSAID,),
    },
    joint=(("beta", "kl_loss_mode"),),
    seeds={"max_response_length": 1024.0},
    toggles=("beta",),
    beside=lambda _: {"training_mode": "agentic_grpo"},
)
