# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""ROLL: `actor_train.worker_cls: plan.Worker`, where plan.py says `Worker = trimtab.plugins.roll.actor_worker("geo-rs+token-tis")`.

The worker's loss gets logits and a padded batch; log-probs of all tokens but the first are one narrower than the tokens.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cached_property
from typing import Any, cast

from torch import Tensor

from trimtab.config.losses import Clip, Objective, Reduction
from trimtab.config.plan import Plan
from trimtab.core.metrics import combination
from trimtab.core.reduce import Denominator
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Reading
from trimtab.errors import ConfigError
from trimtab.losses.policy import policy_loss
from trimtab.plugins.hook import BY_ROWS_AND_TOKENS, Hook
from trimtab.plugins.metrics import PREFIX, as_floats, logged_metrics
from trimtab.plugins.versions import require_module

TRIED = "8eb27cc2"
require_module("ROLL", "roll.pipeline.base_worker", TRIED)

from roll.pipeline.base_worker import ActorWorker  # noqa: E402

ROLLS_OWN = "ROLL works out advantages on its driver: set adv_estimator and its norms."
LOSS = Hook(
    place="ROLL's actor_worker",
    keys=frozenset({"correction", "loss", "reduction", "kl", "entropy_bonus"}),
    elsewhere={"advantage": ROLLS_OWN, "shaping": ROLLS_OWN},
    reductions=BY_ROWS_AND_TOKENS,
    counts_kept="ROLL counts tokens and rows before the loss is called.",
    whole_step=False,
)
BY_SEQUENCE = Reduction(mode="seq-mean-token-mean")
LOSS_KEYS = (
    *("loss_agg_mode", "pg_clip", "use_pg_clip_range", "pg_clip_low", "pg_clip_high", "dual_clip_loss", "rl_loss_coef"),
    *("importance_sampling", "ratio_type", "use_kl_loss", "kl_loss_coef", "entropy_loss_coef", "sequence_length"),
    *("postive_loss_coef", "use_topr_neg_loss_coef", "difficulty_loss_weight", "length_loss_weight"),
)
"""What of the pipeline's configuration says its loss."""


class TrimtabActorWorker(ActorWorker):
    """ROLL's actor with the plan's loss; what the plan leaves out is as ROLL's own keys say. Made by `actor_worker`."""

    plan = Plan()

    @cached_property
    def own(self) -> Reading:
        """ROLL's own settings; refused where they cannot be honoured beside the plan."""
        config = self.pipeline_config
        correction = _plain(getattr(config, "train_infer_correction", None))
        if self.plan.correction is not None and _acts(correction):
            raise ConfigError(
                f"{LOSS.place} needs train_infer_correction off beside a correction, got it on. Two corrections would multiply."
            )
        settings = {key: value for key in LOSS_KEYS if (value := getattr(config, key, None)) is not None}
        variant = getattr(getattr(config, "actor_train", None), "pg_variant", None)
        if variant is not None and self.plan.loss is None:
            settings["actor_train"] = {"pg_variant": variant}
        own = read("roll", settings | ({"train_infer_correction": correction} if correction else {}))
        for refused in own.refused:
            if getattr(self.plan, refused.part, None) is None and refused.part != "advantage":
                raise ConfigError(f"{LOSS.place} needs a {refused.part}, got none. {refused.text}")
        if (self.plan.reduction or own.reduction) is None and "loss_agg_mode" in settings:
            raise ConfigError(
                f"{LOSS.place} needs a reduction, got none beside loss_agg_mode {settings['loss_agg_mode']}. "
                "Name one of ours: under filters ROLL's own token mean looks at no mask."
            )
        LOSS.check_parts(
            self.plan.correction or own.correction,
            self.plan.loss or own.loss or Clip(),
            self.plan.reduction or own.reduction or BY_SEQUENCE,
        )
        return own

    def loss_func(self, data: Any, output_tensor: Tensor) -> tuple[Tensor, dict[str, float]]:
        """This micro-batch's share of the step's loss."""
        plan, own, batch = self.plan, self.own, data.batch
        logits = {"logits": output_tensor, "attention_mask": batch["response_mask"]}
        current = self.strategy.op_compute_log_probs(input_ids=batch["input_ids"], **logits)
        correction, kl = plan.correction or own.correction, plan.kl or own.kl
        bonus = plan.entropy_bonus or own.entropy
        name, mask = _mask(batch)
        tokens, rows = (data.meta_info[count][name] for count in ("batch_num_tokens", "global_valid_samples"))
        found = policy_loss(
            cast("Objective", plan.loss or own.loss or Clip()),
            current=current,
            proximal=self.get_old_log_probs_with_cache(data, current),
            behavior=_behavior(batch, correction is not None and "behavior" in correction.needs),
            reference=batch["ref_log_probs"] if kl is not None else None,
            entropy=None if bonus is None else self.strategy.op_compute_entropy(**logits),
            mask=mask,
            advantages=batch["advantages"] * own.advantage_scale,
            correction=correction,
            reduction=plan.reduction or own.reduction or BY_SEQUENCE,
            kl=kl,
            entropy_bonus=bonus,
            denominator=Denominator(tokens, rows),
        )
        ours = logged_metrics(plan, found.metrics)
        # ROLL combines what micro-batches return as the end of the name says
        named = {f"{name}@{combination(name.removeprefix(PREFIX))}": value for name, value in ours.items()}
        return found.loss, as_floats({"actor/total_loss@sum": found.loss.detach()} | named)


def actor_worker(plan: Any) -> type[TrimtabActorWorker]:
    """The worker class of a plan: a preset's name, a mapping, or the path of a YAML file."""
    return type("Worker", (TrimtabActorWorker,), {"plan": LOSS.check(Plan.of(plan))})


def _mask(batch: Any) -> tuple[str, Tensor]:
    """The mask that ROLL trains under, and its name among the counts.

    RLVR takes rows out by length and difficulty in `final_response_mask`, which begins at the second token; elsewhere there is none.
    """
    final = batch.get("final_response_mask", None)
    if final is not None:
        return "final_response_mask", final > 0
    return "response_mask", batch["response_mask"][:, 1:] > 0


def _behavior(batch: Any, needed: bool) -> Tensor | None:
    given = batch.get("infer_logprobs", None)
    if given is not None and len(given):
        return given
    if needed:
        raise ConfigError(
            f"{LOSS.place} needs the engine's log-probs for this correction, got none in the batch. "
            "Set actor_infer.generating_args.logprobs: 1."
        )
    return None


def _acts(correction: Any) -> bool:
    """Whether ROLL's own correction does anything."""
    if not correction:
        return False
    filters = correction.get("filters") or ()
    return bool((correction.get("is_weight") or {}).get("enabled")) or any(each.get("enabled") for each in filters)


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: _plain(getattr(value, each.name)) for each in fields(value)}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value
