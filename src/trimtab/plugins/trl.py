# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""TRL: `from trimtab.plugins.trl import GRPOTrainer`, with one argument more: `trimtab="geo-rs+token-tis"`, a mapping or a YAML path.

A plan of a correction alone replaces the weight that TRL multiplies its own loss by, where vLLM samples. Any other plan replaces the
loss; what it leaves out is then what TRL's own arguments say.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from trimtab.advantage.estimate import advantages
from trimtab.advantage.shaping import ended
from trimtab.config.correction import Correction
from trimtab.config.plan import Plan
from trimtab.core.correct import Corrected, correct
from trimtab.core.metrics import combination
from trimtab.core.reduce import Denominator
from trimtab.dialects.reading import Reading
from trimtab.logged import logged
from trimtab.losses.policy import policy_loss
from trimtab.plugins.metrics import PREFIX, logged_metrics
from trimtab.plugins.record import recorder_of
from trimtab.plugins.trl_checks import LOSS, SAMPLED, SCORED, check_trainer, refuse_plan
from trimtab.plugins.versions import require

TRIED = ("1.16.0",)
require("TRL", "trl", *TRIED)

import trl  # noqa: E402

DECIDED = ("weight", "kept", "trained", "log_r")
INPUTS = [
    "pixel_values",
    "image_grid_thw",
    "num_images",
    "pixel_attention_mask",
    "spatial_shapes",
    "num_tiles",
    "image_sizes",
    "token_type_ids",
    "mm_token_type_ids",
    "image_position_ids",
]
"""What of a batch the model reads besides tokens."""


def __getattr__(name: str) -> Any:
    """The asynchronous trainer and the callback, which have modules of their own."""
    home = {"AsyncGRPOTrainer": "trl_async", "Measure": "trl_measure"}.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"trimtab.plugins.{home}"), name)


class GRPOTrainer(trl.GRPOTrainer):
    """TRL's GRPOTrainer with trimtab's corrections, losses, reductions, advantages and metrics."""

    def __init__(self, *args: Any, trimtab: Any = None, **kwargs: Any) -> None:
        self.trimtab = Plan.of(trimtab)
        super().__init__(*args, **kwargs)
        self._trimtab_rewards: Tensor | None = None
        self._trimtab_own = Reading("trl")
        self.check_trimtab()

    @property
    def replaces_loss(self) -> bool:
        """Whether the plan takes more than TRL's weight."""
        asked = {"loss", "reduction", "kl", "entropy_bonus"} & {*self.trimtab.asked}
        return bool(asked) or (self.trimtab.correction is not None and not self._weighs)

    @property
    def _weighs(self) -> bool:
        """Whether TRL multiplies its loss by a weight that can be replaced."""
        return bool(self.use_vllm and self.vllm_importance_sampling_correction)

    def check_trimtab(self) -> None:
        """Refuse what cannot be honoured; called at construction."""
        own = check_trainer(self)
        self._trimtab_own = own or self._trimtab_own

    # --- before the step: weights and advantages ------------------------------------------------------------------------

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        rewards = self._trimtab_rewards = super()._calculate_rewards(*args, **kwargs)
        return rewards

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        plan = self.trimtab
        rule = plan.correction
        found = None
        early = rule is not None and "current" not in rule.needs
        if (
            rule is not None
            and early
            and (not self.replaces_loss or rule.needs_whole_step or plan.advantage is not None)
        ):
            found = self._decide(rule, output)
        if plan.advantage is not None:
            output["advantages"] = self._advantages(output, found)
        self._record(output)
        if found is None:
            return output
        if not self.replaces_loss:
            output["importance_sampling_ratio"] = found.weight
            self._log(logged(Reading("trl", correction=rule), found.metrics), last=True)
        if not self.replaces_loss or cast("Correction", rule).needs_whole_step:
            self._log(logged_metrics(plan, found.metrics), whole=True)
        if self.replaces_loss and cast("Correction", rule).needs_whole_step:
            output |= {f"trimtab_{name}": getattr(found, name) for name in DECIDED}
        return output

    def _record(self, output: dict[str, Any]) -> None:
        """This generation batch, its tokens and all its log-probs, into the plan's folder."""
        recorder = recorder_of(self.trimtab, LOSS.place)
        if recorder is None or not self.model.training:
            return
        rewards, first = (
            cast("Tensor", self._trimtab_rewards),
            self.accelerator.process_index * len(output["completion_ids"]),
        )
        rows = slice(first, first + len(output["completion_ids"]))
        recorder.add(
            step=self.state.global_step,
            tokens=torch.cat([output["prompt_ids"], output["completion_ids"]], 1),
            attention=torch.cat([output["prompt_mask"], output["completion_mask"]], 1),
            mask=_mask(output),
            behavior=output.get("sampling_per_token_logps"),
            proximal=output.get("old_per_token_logps"),
            reference=output.get("ref_per_token_logps"),
            advantages=output["advantages"],
            rewards=(rewards * self.reward_weights.to(rewards.device)).nansum(1)[rows],
            groups=torch.arange(rows.start, rows.stop) // self.num_generations,
            learner_version=self.state.global_step,
        )

    def _decide(self, rule: Correction, output: dict[str, Any]) -> Corrected:
        """What the rule says of this generation batch, on all ranks."""
        proximal, behavior = output.get("old_per_token_logps"), output.get("sampling_per_token_logps")
        if proximal is None or behavior is None:
            missing, remedy = ("proximal", SCORED) if proximal is None else ("behavior", SAMPLED)
            refuse_plan(f"{missing} log-probs before the step", "none", remedy)
        return correct(
            rule,
            proximal=proximal,
            behavior=cast("Tensor", behavior),
            mask=_mask(output),
            advantages=output["advantages"] if rule.needs_advantages else None,
            process_group=self._ranks,
        )

    def _advantages(self, output: dict[str, Any], found: Corrected | None) -> Tensor:
        plan, mask = self.trimtab, _mask(output)
        rewards, rows = cast("Tensor", self._trimtab_rewards), len(mask)
        first = self.accelerator.process_index * rows
        given = (rewards * self.reward_weights.to(rewards.device)).nansum(1)
        given = given.masked_fill(rewards.isnan().all(1), torch.nan)[first : first + rows]
        generations = self.num_generations if self.model.training else self.num_generations_eval
        shaping = plan.shaping
        asks = shaping is not None and shaping.no_eos != "keep"
        result = advantages(
            cast("Any", plan.advantage),
            rewards=given,
            mask=mask,
            group=torch.arange(first, first + rows, device=mask.device) // generations,
            kept=None if found is None else found.kept,
            shaping=shaping,
            ended=ended(output["completion_ids"], mask, self.eos_token_ids) if asks else None,
            process_group=self._ranks,
        )
        self._log(logged_metrics(plan, result.metrics), whole=True)
        return result.advantages if result.rows is None else result.rows

    @property
    def _ranks(self) -> Any:
        return dist.group.WORLD if self.accelerator.num_processes > 1 else None

    # --- the step -------------------------------------------------------------------------------------------------------

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        if not self.replaces_loss:
            return super()._compute_loss(model, inputs)
        plan, own = self.trimtab, self._trimtab_own
        current, entropy, aux_loss = self._forward(model, inputs)
        proximal, behavior = inputs.get("old_per_token_logps"), inputs.get("sampling_per_token_logps")
        correction = plan.correction or own.correction
        loss = plan.loss or own.loss
        found = policy_loss(
            cast("Any", loss),
            current=current,
            proximal=current.detach() if proximal is None else proximal,
            behavior=None if correction is None else behavior,
            reference=inputs.get("ref_per_token_logps"),
            entropy=entropy,
            mask=_mask(inputs),
            advantages=_columns(inputs["advantages"]),
            correction=_decisions(inputs, correction),
            reduction=plan.reduction or own.reduction,
            kl=plan.kl or own.kl,
            entropy_bonus=plan.entropy_bonus,
            denominator=self._denominator(inputs),
        )
        theirs = logged(replace(own, correction=None, loss=loss), found.metrics)
        ours = logged_metrics(
            plan, found.metrics, frozenset({"mean", "max", "min"})
        )  # sums would be averaged over micro-batches
        self._log({"entropy": found.metrics["policy/entropy"]} | theirs | ours)
        if not self.aux_loss_enabled:
            return found.loss
        self._log({"aux_loss": aux_loss.detach()})
        return found.loss + self.router_aux_loss_coef * aux_loss / self._accumulation

    def _forward(self, model: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor, Any]:
        tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
        attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
        return self._get_per_token_logps_and_entropies(
            model,
            tokens,
            attention,
            inputs["completion_ids"].size(1),
            compute_entropy=True,
            compute_aux_loss=self.aux_loss_enabled,
            **{name: inputs.get(name) for name in INPUTS},
        )

    @property
    def _accumulation(self) -> float:
        return float(self.current_gradient_accumulation_steps) if self.model.training else 1.0

    def _denominator(self, inputs: dict[str, Any]) -> Denominator:
        """Of one optimiser step: the generation batch's tokens rescaled to it, as TRL does, and its rows."""
        share = self._accumulation / self.args.steps_per_generation if self.model.training else 1.0
        ranks = self.accelerator.num_processes
        rows = len(inputs["completion_ids"]) * self._accumulation * ranks
        return Denominator(inputs["num_items_in_batch"] * share, rows, averaged_over=ranks)

    # --- metrics --------------------------------------------------------------------------------------------------------

    def _log(self, metrics: dict[str, Tensor], *, last: bool = False, whole: bool = False) -> None:
        """Into TRL's own lists, over all ranks, in one transfer. `last`: in place of what TRL put there; `whole`: of all ranks already."""
        if not metrics:
            return
        stacked = torch.stack([value.detach().float() for value in metrics.values()])
        rows = stacked[None] if whole else self.accelerator.gather(stacked[None])
        lists = self._metrics["train" if self.model.training else "eval"]
        for name, column in zip(metrics, rows.T.tolist(), strict=True):
            ours, way = name.startswith(PREFIX), combination(name.removeprefix(PREFIX))
            value, seen = {"max": max, "min": min, "sum": sum}.get(way, _average)(column), lists[name]
            if last and seen:
                seen[-1] = value
            elif ours and seen and name.endswith(("max", "min")):
                seen[:] = [(max if way == "max" else min)(value, *seen)]  # TRL averages the list: it holds one number
            else:
                seen.append(value)


def _average(column: list[float]) -> float:
    return sum(column) / len(column)


def _mask(inputs: dict[str, Any]) -> Tensor:
    mask = inputs["completion_mask"]
    return (mask * inputs["tool_mask"] if "tool_mask" in inputs else mask).bool()


def _columns(given: Tensor) -> Tensor:
    return given[:, None] if given.ndim == 1 else given


def _decisions(inputs: dict[str, Any], correction: Correction | None) -> Correction | Corrected | None:
    """What was decided over the whole step, cut as TRL cut the batch; else the rule itself."""
    if "trimtab_weight" not in inputs:
        return correction
    parts = {name: inputs[f"trimtab_{name}"] for name in DECIDED}
    return Corrected(**parts, metrics={}, rule=correction)
