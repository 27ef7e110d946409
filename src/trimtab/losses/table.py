"""Which function works out which loss, and losses by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trimtab.config import losses as config
from trimtab.losses.aspo import aspo
from trimtab.losses.bapo import bapo
from trimtab.losses.cispo import cispo, topr
from trimtab.losses.clip import clip, gspo, luspo
from trimtab.losses.covariance import clip_cov, kl_cov
from trimtab.losses.dppo import dppo_kl, dppo_tv
from trimtab.losses.dro import dro
from trimtab.losses.fipo import fipo
from trimtab.losses.gmpo import gmpo
from trimtab.losses.reinforce import importance_pg, reinforce
from trimtab.losses.sapo import sapo
from trimtab.losses.terms import Surrogate, Terms
from trimtab.losses.vespo import vespo

OBJECTIVES: dict[type[config.Objective], Callable[[Any, Terms], Surrogate]] = {
    config.Clip: clip,
    config.Gspo: gspo,
    config.Luspo: luspo,
    config.Cispo: cispo,
    config.Sapo: sapo,
    config.Gmpo: gmpo,
    config.ClipCov: clip_cov,
    config.KlCov: kl_cov,
    config.Reinforce: reinforce,
    config.ImportancePg: importance_pg,
    config.DppoTv: dppo_tv,
    config.DppoKl: dppo_kl,
    config.Topr: topr,
    config.Vespo: vespo,
    config.Dro: dro,
    config.Bapo: bapo,
    config.Aspo: aspo,
    config.Fipo: fipo,
}
NAMED = {kind: each() for kind, each in config.LOSSES.items()}
"""Made beforehand: nothing is validated while a step is compiled."""


def loss_named(name: str) -> config.Objective:
    """The loss of that name with its defaults."""
    return NAMED[name] if name in NAMED else config.loss_from(name)
