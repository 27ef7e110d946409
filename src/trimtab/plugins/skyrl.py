# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportIncompatibleMethodOverride=false
# (the framework is not among the development packages, and what it has no types for is unknown here)
"""SkyRL: `trainer.override_entrypoint=trimtab.plugins.skyrl`, `trainer.algorithm.policy_loss_type=trimtab`, `trainer.algorithm.trimtab=…`.

Advantages arrive divided by the counts of the step, so that the loss is a plain sum over tokens.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from functools import lru_cache
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
from trimtab.plugins.metrics import as_floats, logged_metrics
from trimtab.plugins.versions import require

TRIED = ("0.3.0", "0.4.0")
require("SkyRL", "skyrl", *TRIED)

from omegaconf import OmegaConf  # noqa: E402
from skyrl.backends.skyrl_train.utils.ppo_utils import register_policy_loss  # noqa: E402
from skyrl.train.config.config import AlgorithmConfig, make_config  # noqa: E402

SKYRLS_OWN = "SkyRL adds it outside the loss: set trainer.algorithm.use_kl_loss or use_entropy_loss."
LOSS = Hook(
    place="SkyRL's trainer.algorithm.trimtab",
    keys=frozenset({"correction", "loss"}),
    elsewhere={
        "reduction": "SkyRL divides the advantages beforehand: set trainer.algorithm.loss_reduction.",
        "advantage": "SkyRL's estimators see no log-probs: set trainer.algorithm.advantage_estimator.",
        "shaping": "SkyRL's estimators see no log-probs: shape in the environment.",
        "kl": SKYRLS_OWN,
        "entropy_bonus": SKYRLS_OWN,
    },
    counts_kept="SkyRL divides the advantages by the tokens of the step before the loss is called.",
    whole_step=False,
    scaled_advantages=True,
)
SUM = Denominator(1.0, 1.0)
ENTRY = "trainer.override_entrypoint="


@dataclass
class TrimtabAlgorithmConfig(AlgorithmConfig):
    """SkyRL's `trainer.algorithm` with one key more."""

    trimtab: Any = None


TrimtabConfig = make_config(algorithm_cls=TrimtabAlgorithmConfig)


@register_policy_loss("trimtab")
def skyrl_loss(
    log_probs: Tensor,
    old_log_probs: Tensor,
    advantages: Tensor,
    config: Any,
    loss_mask: Tensor | None = None,
    rollout_logprobs: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of one micro-batch; what the plan leaves out is as SkyRL's own keys say."""
    plan, own = _plan(config)
    loss, correction = plan.loss or own.loss, plan.correction or own.correction
    found = policy_loss(
        cast("Any", loss),
        current=log_probs,
        proximal=old_log_probs,
        behavior=None if correction is None else rollout_logprobs,
        mask=log_probs.new_ones(log_probs.shape).bool() if loss_mask is None else loss_mask > 0,
        advantages=advantages,
        correction=correction,
        reduction="token-sum",
        denominator=SUM,
    )
    theirs = logged(Reading("skyrl", correction=correction, loss=loss), found.metrics)
    ours = {
        _name(name): value
        for name, value in logged_metrics(plan, found.metrics, frozenset({"mean", "max", "min"})).items()
    }
    return found.loss, as_floats(theirs | ours)


def _name(name: str) -> str:
    """SkyRL takes the greatest of what ends in `_max` and the least of what ends in `_min`, and averages the rest."""
    for end in ("max", "min"):
        name = f"{name.removesuffix(f'/{end}')}_{end}" if name.endswith(f"/{end}") else name
    return name.replace("/all_rejected", "/all_rejected_min")


def _plan(config: Any) -> tuple[Plan, Reading]:
    """The plan, and SkyRL's own settings for what it leaves out; both checked."""
    return _parse(OmegaConf.to_yaml(OmegaConf.create(asdict(config))))


@lru_cache
def _parse(text: str) -> tuple[Plan, Reading]:
    settings = cast("dict[str, Any]", OmegaConf.to_container(OmegaConf.create(text)))
    plan = LOSS.check(Plan.of(settings.pop("trimtab", None)))
    if plan.correction is not None:
        settings.pop("off_policy_correction", None)
    known = {
        name: settings[name] for name in ("eps_clip_low", "eps_clip_high", "off_policy_correction") if name in settings
    }
    own = read("skyrl", {f"trainer.algorithm.{name}": value for name, value in known.items()})
    LOSS.check_parts(plan.correction or own.correction, plan.loss or own.loss)
    return plan, own


def check_config(cfg: Any) -> None:
    """Refuse what cannot be honoured, before anything is started."""
    plan, own = _plan(cfg.trainer.algorithm)
    rule = plan.correction or own.correction
    if rule is not None and "behavior" in rule.needs and cfg.generator.sampling_params.logprobs is None:
        raise ConfigError(
            f"{LOSS.place} needs the sampler's log-probs for this correction, got generator.sampling_params.logprobs null. Set it to 1."
        )


def configuration(words: list[str]) -> Any:
    """SkyRL's command line as its configuration; the word that named this module is none of it."""
    return TrimtabConfig.from_cli_overrides([each for each in words if not each.startswith(ENTRY)])


def main() -> None:
    """SkyRL's own entry point with our configuration class."""
    import ray
    from skyrl.train.entrypoints.main_base import skyrl_entrypoint
    from skyrl.train.utils import validate_cfg
    from skyrl.train.utils.utils import initialize_ray

    cfg = configuration(sys.argv[1:])
    validate_cfg(cfg)
    check_config(cfg)
    initialize_ray(cfg)
    ray.get(skyrl_entrypoint.remote(cfg))
