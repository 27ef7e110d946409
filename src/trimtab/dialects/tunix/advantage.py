"""Tunix: rewards within their group, or a critic's."""

from __future__ import annotations

from typing import Any, cast

from trimtab.config.advantages import WHITEN, Estimator, Gae, Grpo, Rloo
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import ALL, AdvantagePart, refuse
from trimtab.dialects.tunix.keys import is_ppo
from trimtab.dialects.tunix.loss import reference_kl
from trimtab.errors import UnknownNameError, nearest

GROUPED: dict[str, Estimator] = {
    "grpo": Grpo(std=True, eps=1e-6, **ALL),
    "drgrpo": Grpo(std=False, **ALL),
    "rloo": Rloo(**ALL),
}


def advantage_of(given: Given) -> AdvantagePart:
    """The group's mean subtracted and, for grpo, divided by its deviation; for PPO, GAE whitened over the tokens."""
    refuse(
        _is_enabled(given["overlong_buffer"]),
        "Tunix overlong_buffer",
        "it counts the characters of an answer where its documentation and ours count tokens. Set enable to false, or shape rewards "
        "yourself",
    )
    if is_ppo(given) or given["advantage_estimator"] == "gae":
        gae = Gae(gamma=given["gamma"], lam=given["gae_lambda"], gaps="skip", normalise=WHITEN, **ALL)
        return AdvantagePart(advantage=gae, reward_kl=reference_kl(given, "kl_method"))
    name = given["advantage_estimator"]
    if name not in GROUPED:
        raise UnknownNameError(f"Tunix advantage_estimator {name!r} cannot be said. {nearest(name, GROUPED)}")
    return AdvantagePart(advantage=GROUPED[name])


def _is_enabled(buffer: Any) -> bool:
    """Whether answers are penalised by their length; a buffer that is written without `enable` is no buffer of Tunix."""
    return isinstance(buffer, dict) and bool(cast("dict[str, Any]", buffer).get("enable", True))
