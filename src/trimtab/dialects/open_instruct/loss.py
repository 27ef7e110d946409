"""open-instruct: `loss_fn`, the KL term, `loss_denominator` and the group baseline."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.advantages import Estimator, Grpo, MaxRl
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.keys import Given, Key, Remark, choice, flag, number, raw, text
from trimtab.dialects.objectives import Descent, Estimation, refuse
from trimtab.errors import ConfigError

KEYS = (
    Key("loss_fn", text, "dapo", part="loss"),
    Key("clip_lower", number, 0.2, part="loss"),
    Key("clip_higher", number, 0.272, part="loss"),
    Key("beta", number, 0.05, part="loss"),
    Key("kl_estimator", choice("0", "1", "2", "3"), "2", part="loss"),
    Key("load_ref_policy", flag, True, part="other"),
    Key("loss_denominator", raw, "token", part="loss"),
    Key("advantage_normalization_type", choice("centered", "standard", "max_rl"), "centered", part="advantage"),
)
ESTIMATORS: dict[str, dict[str, Any]] = {
    "0": {"estimator": "k1"},
    "1": {"estimator": "k2"},
    "2": {"estimator": "k3"},
    "3": {"estimator": "k1", "importance": "full"},
}
"""`kl_estimator` → ours; the last is the ratio times the log-ratio."""


def descent(given: Given) -> Descent:
    """DAPO's clip or CISPO without a lower bound; the KL term is not weighted."""
    return Descent(loss=_loss(given), reduction=_reduction(given), kl=_kl(given))


def _loss(given: Given) -> Objective:
    name = given["loss_fn"]
    if name == "dapo":
        return ours.Clip(low=given["clip_lower"], high=given["clip_higher"])
    if name == "cispo":
        return ours.Cispo(upper=1 + given["clip_higher"])
    refuse(name in ("dppo", "tvpo"), f"open-instruct loss_fn {name}", "it is younger than e6c3044a. Use dapo or cispo")
    raise ConfigError(f"open-instruct loss_fn needs dapo or cispo, got {name!r}.")


def _reduction(given: Given) -> Reduction:
    if given["loss_denominator"] == "token":
        return Reduction(mode="token-mean")
    constant = number("open-instruct loss_denominator", given["loss_denominator"])
    if constant <= 0:
        raise ConfigError(f"open-instruct loss_denominator needs token or a number above 0, got {constant:g}.")
    return Reduction(mode="token-sum", constant=constant)


def _kl(given: Given) -> KlPenalty | None:
    if not given["beta"] or not given["load_ref_policy"] or not given.said("beta", "kl_estimator"):
        return None
    return KlPenalty(coefficient=given["beta"], input_limit=40.0, **ESTIMATORS[given["kl_estimator"]])


def estimation(given: Given) -> Estimation:
    """The group's mean subtracted and, for `standard`, divided by its biased deviation."""
    kinds: dict[str, Estimator] = {
        "centered": Grpo(std=False, baseline="all"),
        "standard": Grpo(unbiased=False, eps=1e-8, baseline="all"),
        "max_rl": MaxRl(eps=1e-8, baseline="all"),
    }
    return Estimation(advantage=kinds[given["advantage_normalization_type"]])


REMARKS = (
    Remark(
        "clip_higher",
        "surprise",
        "With cispo the ratio is bounded above by 1 + clip_higher and clip_lower is not read; verl, slime, NeMo-RL and ROLL also bound "
        "it below, TRL and ms-swift bound it by epsilon_high itself.",
        lambda given: given["loss_fn"] == "cispo",
    ),
    Remark(
        "advantage_normalization_type",
        "note",
        "standard divides by the biased deviation plus 1e-8; most frameworks divide by the unbiased one plus 1e-6 or 1e-4.",
        lambda given: given["advantage_normalization_type"] == "standard",
    ),
    Remark(
        "advantage_normalization_type",
        "surprise",
        "max_rl divides by the group's mean reward, so it flips signs where that is negative; ours gives 0 there.",
        lambda given: given["advantage_normalization_type"] == "max_rl",
    ),
    Remark(
        "beta",
        "note",
        "Left out, beta is {beta} and kl_estimator {kl_estimator} (k3): a KL term is paid where a reference policy is loaded; write "
        "beta down to read it.",
        lambda given: given.speaks_of("loss") and not given.said("beta", "kl_estimator") and given["load_ref_policy"],
    ),
)
