# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false
# (omegaconf comes with the framework, which is not among the development packages)
"""A plan inside verl's configuration: which place acts on which key, and by which way a rejection reaches the worker."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, Literal

from omegaconf import DictConfig, OmegaConf

from trimtab.config.advantages import ReinforcePlusPlus, ReMax
from trimtab.config.correction import Correction
from trimtab.config.plan import Plan
from trimtab.dialects.frameworks.verl_correction import FORCED
from trimtab.errors import ConfigError
from trimtab.plugins.hook import Hook

ON_THE_DRIVER = "Set it at algorithm.rollout_correction.trimtab, on the driver."
IN_THE_LOSS = "Set it at actor_rollout_ref.actor.policy_loss.trimtab, beside loss_mode=trimtab."
VERLS_OWN = "verl adds it outside the loss: set actor.use_kl_loss or actor.entropy_coeff."
LOSS = Hook(
    place="verl's policy_loss.trimtab",
    keys=frozenset({"correction", "loss", "reduction"}),
    policies=frozenset({"current", "behavior"}),
    elsewhere={
        "proximal": f"Rollout and old log-probs meet on the driver only. {ON_THE_DRIVER}",
        "advantage": ON_THE_DRIVER,
        "shaping": ON_THE_DRIVER,
        "record": ON_THE_DRIVER,
        "kl": VERLS_OWN,
        "entropy_bonus": VERLS_OWN,
    },
    counts_kept="verl counts the tokens of a step before the loss is called.",
    whole_step=False,
)
"""Bypass rules: under `bypass_mode=true` the old log-probs that arrive are the rollout's."""
DRIVER = Hook(
    place="verl's algorithm.rollout_correction.trimtab",
    keys=frozenset({"correction", "advantage", "shaping", "record"}),
    policies=frozenset({"proximal", "behavior"}),
    elsewhere={
        "current": f"Current log-probs exist in the worker only. {IN_THE_LOSS} Add algorithm.rollout_correction.bypass_mode=true.",
        "loss": IN_THE_LOSS,
        "reduction": IN_THE_LOSS,
        "kl": VERLS_OWN,
        "entropy_bonus": VERLS_OWN,
    },
    sees_advantages=False,
)
POOLED = ("gspo", "geo_mean")
"""verl's losses that take one ratio per sequence."""


def plan_in(settings: Any) -> Plan:
    """The plan that a section of the configuration holds."""
    plain: Any = OmegaConf.to_container(settings, resolve=True) if OmegaConf.is_config(settings) else settings
    return plain if isinstance(plain, Plan) else _parse(json.dumps(plain))


@lru_cache
def _parse(text: str) -> Plan:
    return Plan.of(json.loads(text))


Way = Literal["mask", "weight"]
"""How a rejection reaches the worker: the token leaves the mask, or stays in it with weight 0."""


def rejection_way(rule: Correction, root: Any) -> Way:
    """The way by which verl divides by what the rule names; where both do, the mask, which advantages see too."""
    rejecting = [gate for gate in rule.gates if gate.action == "reject"]
    if not rejecting:
        return "mask"
    counts = _counts_of_a_shrunk_mask(root)
    if counts in (rule.denominator, "either"):
        return "mask"
    if rule.denominator == "kept":
        raise ConfigError(
            f"{DRIVER.place} needs denominator trained, got kept. Under this reduction and trainer verl counts tokens before "
            "rejection; seq-mean-token-mean counts what is left of each sequence."
        )
    inside_sequences = any(gate.level in ("token", "segment") for gate in rejecting)
    mode = _loss_mode(root)
    if mode == "geo_mean" or (inside_sequences and _pools(root)):
        raise ConfigError(
            f"{DRIVER.place} needs denominator kept, got trained, beside policy_loss.loss_mode {mode}. Rejected tokens then stay in the "
            "mask with weight 0, and its sequence statistics would count them."
        )
    return "weight"


def _counts_of_a_shrunk_mask(root: Any) -> str:
    """What verl divides by where tokens leave response_mask."""
    mode = _reduction_mode(root)
    if mode == "token-sum":
        return "either"
    if mode == "seq-mean-token-mean":
        return "kept"
    if mode == "token-mean":  # v1 counts the mask of the rollout, the legacy trainer that of the update
        return "trained" if OmegaConf.select(root, "trainer.use_v1", default=True) else "kept"
    return "trained"


def _reduction_mode(root: Any) -> str:
    plan = plan_in(OmegaConf.select(root, "actor_rollout_ref.actor.policy_loss.trimtab"))
    if plan.reduction is not None and _loss_mode(root) == "trimtab":
        return plan.reduction.mode
    own = str(OmegaConf.select(root, "actor_rollout_ref.actor.loss_agg_mode", default="token-mean"))
    return FORCED.get(_loss_mode(root), own)


def _loss_mode(root: Any) -> str:
    return str(OmegaConf.select(root, "actor_rollout_ref.actor.policy_loss.loss_mode", default="vanilla"))


def _pools(root: Any) -> bool:
    """Whether the loss takes statistics over a sequence."""
    if _loss_mode(root) != "trimtab":
        return _loss_mode(root) in POOLED
    plan = plan_in(OmegaConf.select(root, "actor_rollout_ref.actor.policy_loss.trimtab"))
    return plan.loss is not None and hasattr(plan.loss, "scope")


def whole_configuration(settings: Any) -> Any:
    """The whole configuration, of which these settings are a section."""
    return settings._get_root() if isinstance(settings, DictConfig) else OmegaConf.create({})


def refuse_two_corrections(settings: Any) -> None:
    """Refuse verl's own correction beside ours."""
    for key in ("rollout_is", "rollout_rs"):
        if settings.get(key, None) is not None:
            raise ConfigError(
                f"{DRIVER.place} needs {key} null beside it, got {settings.get(key)}. Two corrections would multiply: drop one."
            )


def check_votes(plan: Plan, way: Way) -> None:
    """Refuse baselines of the kept rows where the estimator cannot see who is kept."""
    if way == "weight" and plan.advantage is not None and plan.advantage.baseline == "kept":
        raise ConfigError(
            f"{DRIVER.place} needs advantage.baseline all, got kept, where denominator trained leaves rejected tokens in the mask. "
            "The estimator sees the mask only: take denominator kept, or loss_agg_mode token-mean with trainer.use_v1."
        )


def advantage_plan(config: Any) -> Plan:
    """The plan under `algorithm.rollout_correction.trimtab`, if an estimator that sees rewards only can honour it."""
    plan = DRIVER.check(plan_in((config.get("rollout_correction", None) or {}).get("trimtab", None)))
    estimator, shaping = plan.advantage, plan.shaping
    if estimator is None:
        raise ConfigError(
            "verl's adv_estimator trimtab needs an advantage, got none. Add algorithm.rollout_correction.trimtab.advantage=grpo."
        )
    if not (estimator.from_rewards or isinstance(estimator, ReMax)):
        raise ConfigError(
            f"verl's adv_estimator trimtab needs an estimator of one reward per row, got {estimator.kind}. Values, single rewards "
            "and a teacher do not arrive there: use verl's own."
        )
    if isinstance(estimator, ReinforcePlusPlus | ReMax) and config.get("use_kl_in_reward", False):
        raise ConfigError(
            f"verl's adv_estimator trimtab needs use_kl_in_reward false beside {estimator.kind}, got true. Rewards are summed over a row."
        )
    if shaping is not None and (shaping.no_eos != "keep" or shaping.overlong is not None):
        raise ConfigError(
            "verl's adv_estimator trimtab needs shaping without no_eos and overlong, got one of them. How rows end does not arrive there."
        )
    return plan
