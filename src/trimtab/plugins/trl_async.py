# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""TRL's asynchronous trainer, which corrects nothing itself: `trimtab.plugins.trl.AsyncGRPOTrainer`, with `trimtab=` a correction.

Its batch holds the sampler's log-probs and no pass of the trainer's before the step. There is one update per batch, so proximal is current
without gradient. The correction takes the place of TRL's loss, whose clip, denominator and metrics stay.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from trl.experimental.async_grpo import async_grpo_trainer as theirs

from trimtab.config.losses import Clip, Reduction
from trimtab.config.plan import Plan
from trimtab.core.correct import correct
from trimtab.core.reduce import Denominator
from trimtab.losses.policy import policy_loss
from trimtab.plugins.hook import Hook
from trimtab.plugins.metrics import as_floats, logged_metrics

ASYNC = Hook(
    place="TRL's asynchronous trimtab",
    keys=frozenset({"correction"}),
    counts_kept="TRL counts the tokens of an optimiser step before the loss is called.",
    whole_step=False,
    elsewhere={
        "loss": "The loss is PPO's clip with epsilon and epsilon_high of TRL's own arguments.",
        "advantage": "Advantages are worked out by the rollout worker.",
        "record": "trimtab.Recorder in a rollout worker of your own records what it samples.",
    },
)
"""Ages are refused: TRL drops what is older than max_staleness, and leaves the version of a group out of the batch."""


class AsyncGRPOTrainer(theirs.AsyncGRPOTrainer):
    """TRL's AsyncGRPOTrainer with a correction of trimtab's; without one it only measures, and the loss is TRL's own."""

    def __init__(self, *args: Any, trimtab: Any = None, **kwargs: Any) -> None:
        self.trimtab = ASYNC.check(Plan.of(trimtab))
        super().__init__(*args, **kwargs)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor:
        """TRL's loss, for its metrics, and from the same forward pass ours in its place."""
        seen: list[Any] = []

        def kept(**given: Any) -> Any:
            seen.append(model(**given))
            return seen[-1]

        own = super().compute_loss(kept, inputs, return_outputs, num_items_in_batch)
        picked = inputs["token_index"] >= 0
        current = seen[0].log_probs.flatten()[inputs["token_index"][picked]].float()
        behavior, advantages, segments = (
            inputs[name][picked] for name in ("old_log_probs", "advantages", "segment_id")
        )
        ends = torch.nn.functional.pad(torch.bincount(segments).cumsum(0), (1, 0))
        batch: dict[str, Any] = {
            "behavior": behavior,
            "proximal": current.detach(),
            "mask": torch.ones_like(segments, dtype=torch.bool),
            "cu_seqlens": ends,
        }
        rule = self.trimtab.correction
        if rule is None:
            self._log_ours(correct("off", **batch).metrics)
            return own
        found = policy_loss(
            Clip(low=self.epsilon_low, high=self.epsilon_high),
            current=current,
            advantages=advantages,
            correction=rule,
            reduction=Reduction(mode="token-mean"),
            denominator=Denominator(
                inputs["global_n_tokens"][0], len(ends) - 1, averaged_over=self.accelerator.num_processes
            ),
            **batch,
        )
        self._log_ours(found.metrics)
        loss = found.loss / self.current_gradient_accumulation_steps
        if self.aux_loss_enabled:
            loss = loss + self.router_aux_loss_coef * seen[0].aux_loss / self.current_gradient_accumulation_steps
        return loss

    def _log_ours(self, metrics: Any) -> None:
        """Into TRL's own lists, which it reduces by the last word of a name; those of this rank, as its packing metrics are."""
        shown = logged_metrics(self.trimtab, metrics, frozenset({"mean", "max", "min"}))
        for name, value in as_floats(shown).items():
            self._metrics["train"][name].append(value)
