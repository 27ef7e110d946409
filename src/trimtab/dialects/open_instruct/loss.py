"""open-instruct: `loss_fn`, the KL term and `loss_denominator`."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import KlPenalty, Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.open_instruct.correction import is_early
from trimtab.dialects.parts import LossPart, refuse
from trimtab.dialects.values import number
from trimtab.errors import ConfigError

KL_ESTIMATORS: dict[str, dict[str, Any]] = {
    "0": {"estimator": "k1"},
    "1": {"estimator": "k2"},
    "2": {"estimator": "k3"},
    "3": {"estimator": "k1", "importance": "full"},
}
"""`kl_estimator` → ours; the last is the ratio times the log-ratio."""
FIRST_NAMES = {f"kl{int(name) + 1}": name for name in KL_ESTIMATORS}
FIRST_CLIP = 0.2
"""`clip_higher` of the versions that had kl1 to kl4, where it is left out."""


def loss_of(given: Given) -> LossPart:
    """DAPO's clip or CISPO without a lower bound; the KL term is not weighted."""
    return LossPart(loss=_loss(given), reduction=_reduction(given), kl=_kl(given))


def _loss(given: Given) -> Objective:
    name = given["loss_fn"]
    higher = FIRST_CLIP if is_early(given) and not given.has("clip_higher") else given["clip_higher"]
    if name == "dapo":
        return ours.Clip(low=given["clip_lower"], high=higher)
    if name == "cispo":
        return ours.Cispo(upper=1 + higher)
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
    if not given["beta"] or not given["load_ref_policy"] or not given.has("beta", "kl_estimator"):
        return None
    name: str = given["kl_estimator"]
    return KlPenalty(coefficient=given["beta"], input_limit=40.0, **KL_ESTIMATORS[FIRST_NAMES.get(name, name)])
