# pyright: basic, reportAttributeAccessIssue=false
# (the trainer is the framework's, which is not among the development packages)
"""What a trainer of TRL's can honour of a plan, held against its arguments before anything is trained."""

from __future__ import annotations

from typing import Any

from trimtab.config.correction import Correction
from trimtab.config.plan import Plan
from trimtab.dialects.reader import read
from trimtab.dialects.reading import Reading
from trimtab.errors import ConfigError
from trimtab.plugins.hook import BY_ROWS_AND_TOKENS, Hook
from trimtab.plugins.record import recorder_of

COUNTS = "TRL counts the tokens of a generation batch before the loss is called."
SAMPLED = "Set use_vllm, or pass a rollout_func that returns logprobs."
SCORED = (
    "TRL scores samples before the step where use_vllm and vllm_importance_sampling_correction are on, and the second is by default: set "
    "use_vllm. Without vLLM it does where gradient_accumulation_steps is no multiple of steps_per_generation times num_iterations."
)
WEIGHT = Hook(
    place="TRL's trimtab",
    keys=frozenset({"correction", "advantage", "shaping", "record"}),
    policies=frozenset({"proximal", "behavior"}),
    elsewhere={
        "current": "Beside TRL's own loss only the weights at the start of the step are known: name a loss too."
    },
    counts_kept=COUNTS,
)
LOSS = Hook(
    place="TRL's trimtab",
    keys=frozenset({"correction", "loss", "reduction", "kl", "entropy_bonus", "advantage", "shaping", "record"}),
    reductions=BY_ROWS_AND_TOKENS,
    counts_kept=COUNTS,
)


def check_trainer(trainer: Any) -> Reading | None:
    """Refuse a plan that the trainer cannot honour; where its loss is replaced, what TRL's own arguments say of it."""
    plan = (LOSS if trainer.replaces_loss else WEIGHT).check(trainer.trimtab)
    if not plan.asked:
        return None
    recorder_of(plan, LOSS.place)
    _check_rule(trainer, plan.correction)
    if plan.advantage is not None and not plan.advantage.from_rewards:
        refuse_plan(
            "an estimator of one reward per row", plan.advantage.kind, "TRL has no critic, greedy answers or teacher."
        )
    _check_order(trainer, plan)
    if plan.shaping is not None and plan.advantage is None:
        refuse_plan("an advantage beside shaping", "none", "TRL's own advantages see its rewards only.")
    if not trainer.replaces_loss:
        if trainer.loss_type == "vespo" and plan.correction is not None:
            refuse_plan("a loss", "none beside loss_type vespo", "TRL multiplies weights inside it: add `loss: vespo`.")
        return None
    return _check_loss(trainer, plan)


def _check_order(trainer: Any, plan: Plan) -> None:
    """Advantages are worked out before the step: what they ask of the correction has to be known there, and the other way round."""
    rule, kept = plan.correction, plan.advantage is not None and plan.advantage.baseline == "kept"
    if rule is None or plan.advantage is None:
        return
    if kept and "current" in rule.needs:
        refuse_plan(
            "advantage.baseline all beside a bypass correction", "kept", "Who is kept is known in the step only."
        )
    if rule.needs_advantages and (kept or not trainer.replaces_loss):
        refuse_plan(
            "a gate without `when` beside an advantage", "one with", "Each would have to come before the other."
        )


def _check_rule(trainer: Any, rule: Correction | None) -> None:
    if rule is None:
        return
    if "behavior" in rule.needs and not trainer.use_vllm and trainer.rollout_func is None:
        refuse_plan("log-probs of the sampler", "none", SAMPLED)
    if rule.needs_whole_step and "current" in rule.needs:
        refuse_plan("a decoupled correction", "normalize or a batch gate under bypass", "A step is not seen whole.")
    if rule.needs_whole_step and trainer.args.steps_per_generation != trainer.args.gradient_accumulation_steps:
        refuse_plan(
            "steps_per_generation equal to gradient_accumulation_steps",
            f"{trainer.args.steps_per_generation} and {trainer.args.gradient_accumulation_steps}",
            "The correction has statistics over the optimiser step, and a generation batch is another set of rows.",
        )


def _check_loss(trainer: Any, plan: Plan) -> Reading:
    for name, off in (("use_liger_kernel", False), ("top_entropy_quantile", 1.0)):
        if getattr(trainer.args, name, off) not in (None, off):
            refuse_plan(f"{name} {off}", str(getattr(trainer.args, name)), "It acts inside TRL's own loss.")
    if trainer._entropy_bonus_enabled:
        refuse_plan("TRL's entropy bonus off", "on", "Set entropy_bonus in the plan.")
    if plan.correction is not None and trainer.off_policy_mask_threshold is not None:
        refuse_plan(
            "off_policy_mask_threshold null", str(trainer.off_policy_mask_threshold), "Two corrections would multiply."
        )
    if plan.kl is not None and not trainer.beta:
        refuse_plan("beta above 0 beside kl", "0", "TRL scores the reference only then; the plan's coefficient counts.")
    if trainer.loss_type == "bnpo" and plan.reduction is None:
        refuse_plan("a reduction", "none beside loss_type bnpo", "bnpo divides by each micro-batch: name token-mean.")
    fields = {name: value for name, value in vars(trainer.args).items() if _is_plain(value)}
    if plan.correction is not None:
        fields |= {"use_vllm": False, "off_policy_mask_threshold": None}
    own = read("trl", fields, width=trainer.max_completion_length)
    for refused in own.refused:
        if getattr(plan, refused.part, None) is None and refused.part != "advantage":
            refuse_plan(f"a {refused.part}", "none", refused.text)
    LOSS.check_parts(plan.correction, plan.loss or own.loss, plan.reduction or own.reduction)
    return own


def refuse_plan(rule: str, got: str, remedy: str) -> None:
    """Refuse by name."""
    raise ConfigError(f"{LOSS.place} needs {rule}, got {got}. {remedy}")


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
