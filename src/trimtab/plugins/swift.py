# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""ms-swift: `--external_plugins FILE`, a file of yours that imports `register_trainer` from here and calls `register_trainer("token-tis")`.

Weight only: ms-swift multiplies the weight into its own loss and, with it, into its KL term.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from trimtab.config.plan import Plan
from trimtab.core.correct import correct
from trimtab.errors import ConfigError
from trimtab.plugins.hook import Hook
from trimtab.plugins.metrics import as_floats, logged_metrics
from trimtab.plugins.record import recorder_of
from trimtab.plugins.versions import require

TRIED = ("4.6.0",)
require("ms-swift", "ms-swift", *TRIED)

from swift.rlhf_trainers.grpo_trainer import GRPOTrainer as _GRPOTrainer  # noqa: E402

SWIFTS_OWN = "ms-swift keeps its own loss: set its own arguments."
WEIGHT = Hook(
    place="ms-swift's plan",
    keys=frozenset({"correction", "kl", "record"}),
    policies=frozenset({"proximal", "behavior"}),
    elsewhere={"current": "Current log-probs do not reach this hook."}
    | dict.fromkeys(("loss", "reduction", "entropy_bonus", "advantage", "shaping"), SWIFTS_OWN),
    counts_kept="ms-swift keeps rejected tokens in its denominators.",
    whole_step=False,
    sees_advantages=False,
)


class TrimtabGRPOTrainer(_GRPOTrainer):
    """ms-swift's GRPO trainer, its weight against the sampler by the plan."""

    plan = Plan()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.check_plan()

    def check_plan(self) -> None:
        """Refuse settings of ms-swift's beside which the plan would not act, or act on more than it says; called at construction."""
        rule = self.plan.correction
        if self.beta and rule is not None and rule.applies_to != "policy+kl":
            raise ConfigError(
                f"{WEIGHT.place} needs applies_to policy+kl beside beta {self.beta:g}, got policy. ms-swift weighs its KL term too."
            )
        if self.rollout_importance_sampling_mode is None:
            raise ConfigError(
                f"{WEIGHT.place} needs rollout_importance_sampling_mode set, got null. ms-swift asks for weights only then; the plan's act."
            )

    def _compute_loss_and_metrics(self, model: Any, model_inputs: dict[str, Any], grpo_batch: Any) -> Any:
        self._record(model_inputs, grpo_batch)
        return super()._compute_loss_and_metrics(model, model_inputs, grpo_batch)

    def _record(self, inputs: dict[str, Any], batch: Any) -> None:
        """This micro-batch with both log-probs; its token ids unless rows stand end to end, as with padding_free."""
        recorder = recorder_of(self.plan, WEIGHT.place)
        if recorder is None or not self.model.training:
            return
        mask, tokens = batch.completion_mask, inputs.get("input_ids")
        padded = tokens is not None and tokens.ndim == 2 and len(tokens) == len(mask)
        recorder.add(
            step=self.state.global_step,
            tokens=tokens if padded else None,
            attention=inputs.get("attention_mask") if padded else None,
            mask=mask,
            behavior=batch.rollout_per_token_logps,
            proximal=batch.old_per_token_logps,
            reference=batch.ref_per_token_logps,
            advantages=batch.advantages,
            learner_version=self.state.global_step,
        )

    def _get_rollout_is_correction(
        self, old_per_token_logps: Tensor, rollout_per_token_logps: Tensor, completion_mask: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        if self.disable_rollout_importance_sampling:
            return None, None
        assert self.plan.correction is not None
        out = correct(
            self.plan.correction,
            proximal=old_per_token_logps,
            behavior=rollout_per_token_logps,
            mask=completion_mask.bool(),
        )
        lists = self._metrics["train" if self.model.training else "eval"]
        for name, value in as_floats(logged_metrics(self.plan, out.metrics, frozenset({"mean"}))).items():
            lists[name].append(value)
        return out.log_r, out.weight


def plan_of(source: Any) -> Plan:
    """The plan, if a weight can honour it."""
    plan = WEIGHT.check(Plan.of(source))
    if plan.correction is None or plan.kl is not None:
        raise ConfigError(
            f"{WEIGHT.place} needs a correction and no term of a loss, got {', '.join(plan.asked) or 'nothing'}."
        )
    return plan


def register_trainer(plan: Any) -> None:
    """Make ms-swift's trainer factory hand out this trainer for GRPO; `plan` is a preset's name, a mapping, or a YAML path."""
    from swift.trainers.trainer_factory import TrainerFactory

    TrimtabGRPOTrainer.plan = plan_of(plan)
    TrainerFactory.TRAINER_MAPPING["grpo"] = f"{__name__}.{TrimtabGRPOTrainer.__name__}"
