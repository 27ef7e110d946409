# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""NeMo-RL: `loss_fn = trimtab.plugins.nemo_rl.PolicyLossFn(plan)` in the run script, in place of the one that `setup` returns.

Tokens arrive padded, log-probs of the next token; counts of the whole step come with each call.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from trimtab.config.losses import Clip, Reduction
from trimtab.config.plan import Plan
from trimtab.core.metrics import combination
from trimtab.core.reduce import Denominator
from trimtab.losses.policy import policy_loss
from trimtab.plugins.hook import BY_ROWS_AND_TOKENS, Hook
from trimtab.plugins.metrics import as_floats, logged_metrics
from trimtab.plugins.versions import require_module

TRIED = "7ea279ab"
require_module("NeMo-RL", "nemo_rl.algorithms.loss.interfaces", TRIED)

from nemo_rl.algorithms.loss.interfaces import LossInputType, LossType  # noqa: E402

LOSS = Hook(
    place="NeMo-RL's PolicyLossFn",
    keys=frozenset({"correction", "loss", "reduction", "kl"}),
    elsewhere={
        "advantage": "NeMo-RL's estimators are its own: set grpo.adv_estimator.",
        "entropy_bonus": "Entropies do not arrive.",
    },
    reductions=BY_ROWS_AND_TOKENS,
    counts_kept="NeMo-RL counts tokens and sequences before the loss is called.",
    whole_step=False,
)
BY_TOKEN = Reduction(mode="token-mean")


class PolicyLossFn:
    """A loss object as NeMo-RL's workers call it. Without a loss in the plan: PPO's clip at 0.2, reduced by token."""

    input_type = LossInputType.LOGPROB

    def __init__(self, plan: Any) -> None:
        self.plan = LOSS.check(Plan.of(plan))
        self.reduction = self.plan.reduction or BY_TOKEN
        by_token = self.reduction.mode.startswith("token")
        self.loss_type = LossType.TOKEN_LEVEL if by_token else LossType.SEQUENCE_LEVEL

    def __call__(
        self,
        next_token_logprobs: Tensor,
        data: Any,
        global_valid_seqs: Tensor,
        global_valid_toks: Tensor,
        **_: Any,
    ) -> tuple[Tensor, dict[str, float]]:
        """This micro-batch's share of the step's loss; the worker multiplies by its ranks."""
        plan, reference = self.plan, data.get("reference_policy_logprobs", None)
        mask = (data["token_mask"][:, 1:] * data["sample_mask"][:, None]) > 0
        found = policy_loss(
            plan.loss or Clip(),
            current=next_token_logprobs,
            proximal=data["prev_logprobs"][:, 1:],
            behavior=None if plan.correction is None else data["generation_logprobs"][:, 1:],
            reference=None if reference is None else reference[:, 1:],
            mask=mask,
            advantages=data["advantages"][:, 1:],
            correction=plan.correction,
            reduction=self.reduction,
            kl=plan.kl,
            denominator=Denominator(global_valid_toks, global_valid_seqs),
        )
        share = mask.sum() / torch.as_tensor(global_valid_toks).clamp(min=1)
        ours = logged_metrics(plan, found.metrics, frozenset({"mean", "sum"}))
        # NeMo-RL adds up what micro-batches return, so that a mean comes as this one's part of it
        parts = {
            name: value * share if combination(name.removeprefix("trimtab/")) == "mean" else value
            for name, value in ours.items()
        }
        plain = {"loss": found.loss.detach(), "num_valid_samples": data["sample_mask"].sum()}
        return found.loss, as_floats(plain | parts)
