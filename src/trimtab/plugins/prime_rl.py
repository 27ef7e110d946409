# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""prime-rl: `[trainer.loss] type = "custom"`, `import_path = "trimtab.plugins.prime_rl.loss"`, the plan as `kwargs`.

One sample at a time arrives, [tokens]; the sum over its tokens is returned, and prime-rl divides by the tokens of the step.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from trimtab.config.losses import ImportancePg
from trimtab.config.plan import Plan
from trimtab.core.reduce import Denominator
from trimtab.dialects.reading import Reading
from trimtab.errors import ConfigError
from trimtab.logged import logged
from trimtab.losses.policy import policy_loss
from trimtab.plugins.hook import Hook
from trimtab.plugins.metrics import logged_metrics
from trimtab.plugins.versions import require_module

TRIED = "559b4477"
require_module("prime-rl", "prime_rl.trainer.rl.loss", TRIED)

from prime_rl.trainer.rl.loss import LossOutputs  # noqa: E402

LOSS = Hook(
    place="prime-rl's trainer.loss.kwargs",
    keys=frozenset({"correction", "loss", "kl"}),
    policies=frozenset({"current", "behavior"}),
    elsewhere={
        "proximal": "prime-rl has no proximal policy: take the bypass form of the preset.",
        "reduction": "prime-rl divides by the tokens of the step.",
    },
    counts_kept="prime-rl counts the tokens of the step before the loss is called.",
    whole_step=False,
    scaled_advantages=True,
)
SUM = Denominator(1.0, 1.0)


def loss(inputs: Any, **settings: Any) -> Any:
    """prime-rl's custom loss: the plan on one sample. Without a loss, −A·ρ, as prime-rl's own."""
    plan = _plan(json.dumps(settings))
    advantages = inputs.advantages if inputs.loss_weights is None else inputs.advantages * inputs.loss_weights
    if plan.kl is not None and inputs.ref_logprobs is None:
        raise ConfigError(
            f"{LOSS.place} needs reference log-probs for kl, got none. Configure a reference model, or drop kl."
        )
    objective = plan.loss or ImportancePg()
    found = policy_loss(
        objective,
        current=inputs.trainer_logprobs,
        behavior=None if plan.correction is None else inputs.inference_logprobs,
        reference=inputs.ref_logprobs,
        mask=inputs.loss_mask,
        advantages=advantages,
        correction=plan.correction,
        kl=plan.kl,
        reduction="token-sum",
        denominator=SUM,
        cu_seqlens=inputs.loss_mask.new_tensor([0, len(inputs.loss_mask)], dtype=int),
    )
    theirs = logged(Reading("prime-rl", correction=plan.correction, loss=objective), found.metrics)
    return LossOutputs(loss=found.loss, metrics=theirs | logged_metrics(plan, found.metrics, frozenset({"mean"})))


@lru_cache
def _plan(text: str) -> Plan:
    plan = LOSS.check(Plan.of(json.loads(text)))
    if plan.correction is None:
        raise ConfigError(
            f"{LOSS.place} needs a correction, got none. Name one, such as bypass-token-mis, or bypass-off."
        )
    if plan.correction.policies != "bypass":
        raise ConfigError(f"{LOSS.place} needs a bypass correction, got a decoupled one. {LOSS.elsewhere['proximal']}")
    LOSS.check_parts(plan.correction, plan.loss or ImportancePg())
    return plan
