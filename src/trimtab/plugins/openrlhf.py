# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""OpenRLHF: `python -m trimtab.plugins.openrlhf --trimtab geo-rs+token-tis …`, the rest being the arguments of its own program.

OpenRLHF builds its loss inside Ray actors and has no hook for it: the launcher starts Ray so that every worker puts `TrimtabPolicyLoss`
in the place of `openrlhf.models.PolicyLoss`, then runs OpenRLHF's program unchanged.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from typing import Any, cast

from torch import Tensor

from trimtab.config.plan import Plan
from trimtab.core.reduce import Denominator
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Reading
from trimtab.errors import ConfigError
from trimtab.logged import logged
from trimtab.losses.policy import policy_loss
from trimtab.plugins.hook import Hook
from trimtab.plugins.versions import require

TRIED = ("0.11.2",)
require("OpenRLHF", "openrlhf", *TRIED)

from openrlhf.models.loss import PolicyLoss  # noqa: E402

VARIABLE = "TRIMTAB_OPENRLHF_PLAN"
"""How the launcher hands the plan to its workers."""
PROGRAM = "openrlhf.cli.train_ppo_ray"
OWN = "OpenRLHF adds it outside the loss: set its own arguments."
LOSS = Hook(
    place="OpenRLHF's --trimtab",
    keys=frozenset({"correction", "loss", "reduction"}),
    elsewhere={"kl": OWN, "entropy_bonus": OWN, "advantage": "Set algo.advantage.estimator."},
    reductions=frozenset({"token-mean", "seq-mean-token-mean"}),
    counts_kept="OpenRLHF counts tokens and rows before the loss is called.",
    whole_step=False,
)


class TrimtabPolicyLoss(PolicyLoss):
    """OpenRLHF's loss, worked out by the plan; what that leaves out is as OpenRLHF's own arguments say."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plan = LOSS.check(Plan.of(json.loads(os.environ.get(VARIABLE, "{}"))))
        own_settings = {
            "actor.policy_loss_type": self.policy_loss_type,
            "actor.eps_clip_low_high": [self.clip_eps_low, self.clip_eps_high],
            "actor.dual_clip": self.dual_clip,
            "actor.loss_agg_mode": "token-mean" if self.token_level_loss else "seq-mean-token-mean",
            "algo.advantage.is_correction_level": self.is_correction_level,
            "algo.advantage.is_correction_mode": self.is_correction_mode,
            "algo.advantage.is_correction_gating": self.is_correction_gating,
            "algo.advantage.is_correction_threshold": list(self.is_correction_threshold),
        }
        if self.plan.correction is not None:
            self._check_log_probs()
            own_settings = {key: value for key, value in own_settings.items() if "is_correction" not in key}
        self.own = read("openrlhf", {key: value for key, value in own_settings.items() if value is not None})
        self.rule = self.plan.correction or self.own.correction
        self.objective = cast("Any", self.plan.loss or self.own.loss)
        LOSS.check_parts(self.rule, self.objective, self.plan.reduction or self.own.reduction)

    def _check_log_probs(self) -> None:
        rule = self.plan.correction
        if rule is not None and "behavior" in rule.needs and self.is_correction_level == "off":
            raise ConfigError(
                f"{LOSS.place} needs rollout log-probs, got algo.advantage.is_correction_level off. OpenRLHF keeps them only where it is "
                "token or seq; set it, the plan's rule acts in its place."
            )

    def forward(
        self,
        log_probs: Tensor,
        old_log_probs: Tensor,
        advantages: Tensor,
        action_mask: Tensor | None = None,
        rollout_log_probs: Tensor | None = None,
        dp_size: int = 1,
        batch_num_tokens: float | None = None,
        global_batch_size: float | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
        """The loss and the four numbers that OpenRLHF logs; it has room for no others."""
        mask = (log_probs.detach() == log_probs.detach()) if action_mask is None else action_mask > 0
        tokens = mask.sum() if batch_num_tokens is None else batch_num_tokens
        rows = mask.any(-1).sum() if global_batch_size is None else global_batch_size
        found = policy_loss(
            self.objective,
            current=log_probs,
            proximal=old_log_probs,
            behavior=None if self.rule is None else rollout_log_probs,
            mask=mask,
            advantages=advantages,
            correction=self.rule,
            reduction=self.plan.reduction or self.own.reduction,
            denominator=Denominator(tokens, rows, averaged_over=dp_size),
        )
        theirs = logged(Reading("openrlhf", correction=self.rule, loss=self.objective), found.metrics)
        clipped = theirs.get("ppo_clip_ratio", found.metrics["policy/clip_high"] + found.metrics["policy/clip_low"])
        moved = theirs.get("ppo_kl", found.metrics.get("policy/k1", found.loss.detach() * 0))
        return found.loss, clipped, moved, theirs.get("vllm_kl"), theirs.get("is_filter_ratio")


def install() -> None:
    """Put the loss in place; Ray calls this when a worker process starts, before OpenRLHF's actor is imported there."""
    import openrlhf.models as models

    models.PolicyLoss = TrimtabPolicyLoss


def main() -> None:
    """OpenRLHF's program under a Ray whose workers have the plan's loss."""
    plan, rest = arguments(sys.argv[1:])
    LOSS.check(plan)
    import ray

    environment = {VARIABLE: json.dumps(plan.settings())}
    os.environ |= environment
    ray.init(runtime_env={"worker_process_setup_hook": "trimtab.plugins.openrlhf.install", "env_vars": environment})
    sys.argv = [PROGRAM, *rest]
    runpy.run_module(PROGRAM, run_name="__main__", alter_sys=True)


def arguments(words: list[str]) -> tuple[Plan, list[str]]:
    """The plan, and OpenRLHF's own arguments."""
    if "--trimtab" not in words or words.index("--trimtab") + 1 == len(words):
        raise ConfigError("The launcher needs --trimtab with a preset's name or the path of a YAML file, got none.")
    place = words.index("--trimtab")
    return Plan.of(words[place + 1]), words[:place] + words[place + 2 :]


if __name__ == "__main__":
    main()
