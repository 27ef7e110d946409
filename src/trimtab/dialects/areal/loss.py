"""AReaL: the actor's clip, GSPO, SAPO or CISPO; always a token mean."""

from __future__ import annotations

from typing import Any

from trimtab.config import losses as ours
from trimtab.config.losses import Objective, Reduction
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import LossPart
from trimtab.errors import ConfigError


def loss_of(given: Given) -> LossPart:
    """PPO, GSPO with pooled advantages, or SAPO; always a token mean."""
    return LossPart(loss=_loss(given), reduction=Reduction(mode="token-mean"))


def _loss(given: Given) -> Objective:
    by_sequence = given["importance_sampling_level"] == "sequence"
    _check(given, by_sequence)
    if given["use_cispo_loss"]:
        return ours.Cispo(lower=1 - given["eps_clip"], upper=1 + given["eps_clip_higher"])
    if given["use_sapo_loss"]:
        pooled: dict[str, Any] = {"level": "sequence", "advantage": "sequence"} if by_sequence else {}
        return ours.Sapo(tau_positive=given["sapo_tau_pos"], tau_negative=given["sapo_tau_neg"], **pooled)
    high = given["eps_clip"] if given["eps_clip_higher"] is None else given["eps_clip_higher"]
    clip: dict[str, Any] = {"low": given["eps_clip"], "high": high, "dual": given["c_clip"]}
    return ours.Gspo(**clip, advantage="sequence") if by_sequence else ours.Clip(**clip)


def _check(given: Given, by_sequence: bool) -> None:
    """What AReaL refuses itself."""
    if given["use_sapo_loss"] and given["use_decoupled_loss"]:
        raise ConfigError("AReaL actor.use_sapo_loss and use_decoupled_loss exclude each other. Drop one.")
    if not given["use_cispo_loss"]:
        return
    if given["use_sapo_loss"] or by_sequence:
        raise ConfigError("AReaL actor.use_cispo_loss needs the token level and no use_sapo_loss. Drop one.")
    if not given["eps_clip_higher"]:
        raise ConfigError("AReaL actor.use_cispo_loss needs eps_clip_higher above 0, got nothing.")
