"""Off-policy correction for reinforcement learning of language models. Names load when used: importing this loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.config.algebra import Correction as Correction
    from trimtab.config.algebra import Gate as Gate
    from trimtab.config.algebra import Limit as Limit
    from trimtab.config.algebra import Weight as Weight
    from trimtab.config.losses import Cispo as Cispo
    from trimtab.config.losses import Clip as Clip
    from trimtab.config.losses import ClipCov as ClipCov
    from trimtab.config.losses import DppoKl as DppoKl
    from trimtab.config.losses import DppoTv as DppoTv
    from trimtab.config.losses import Dro as Dro
    from trimtab.config.losses import EntropyBonus as EntropyBonus
    from trimtab.config.losses import Gmpo as Gmpo
    from trimtab.config.losses import Gspo as Gspo
    from trimtab.config.losses import ImportancePg as ImportancePg
    from trimtab.config.losses import KlCov as KlCov
    from trimtab.config.losses import KlPenalty as KlPenalty
    from trimtab.config.losses import Luspo as Luspo
    from trimtab.config.losses import Reduction as Reduction
    from trimtab.config.losses import Reinforce as Reinforce
    from trimtab.config.losses import Sapo as Sapo
    from trimtab.config.losses import Topr as Topr
    from trimtab.config.losses import Vespo as Vespo
    from trimtab.config.presets import preset as preset
    from trimtab.core.correct import Corrected as Corrected
    from trimtab.core.correct import correct as correct
    from trimtab.core.reduce import Denominator as Denominator
    from trimtab.errors import TrimtabError as TrimtabError
    from trimtab.losses.kl import kl_penalty as kl_penalty
    from trimtab.losses.policy import PolicyLoss as PolicyLoss
    from trimtab.losses.policy import policy_loss as policy_loss

__version__ = "0.1.0"

_HOMES = {
    "Correction": "trimtab.config.algebra",
    "Gate": "trimtab.config.algebra",
    "Limit": "trimtab.config.algebra",
    "Weight": "trimtab.config.algebra",
    "Cispo": "trimtab.config.losses",
    "Clip": "trimtab.config.losses",
    "ClipCov": "trimtab.config.losses",
    "DppoKl": "trimtab.config.losses",
    "DppoTv": "trimtab.config.losses",
    "Dro": "trimtab.config.losses",
    "EntropyBonus": "trimtab.config.losses",
    "Gmpo": "trimtab.config.losses",
    "Gspo": "trimtab.config.losses",
    "ImportancePg": "trimtab.config.losses",
    "KlCov": "trimtab.config.losses",
    "KlPenalty": "trimtab.config.losses",
    "Luspo": "trimtab.config.losses",
    "Reduction": "trimtab.config.losses",
    "Reinforce": "trimtab.config.losses",
    "Sapo": "trimtab.config.losses",
    "Topr": "trimtab.config.losses",
    "Vespo": "trimtab.config.losses",
    "preset": "trimtab.config.presets",
    "Corrected": "trimtab.core.correct",
    "correct": "trimtab.core.correct",
    "Denominator": "trimtab.core.reduce",
    "TrimtabError": "trimtab.errors",
    "kl_penalty": "trimtab.losses.kl",
    "PolicyLoss": "trimtab.losses.policy",
    "policy_loss": "trimtab.losses.policy",
}

__all__ = [
    "Cispo",
    "Clip",
    "ClipCov",
    "Corrected",
    "Correction",
    "Denominator",
    "DppoKl",
    "DppoTv",
    "Dro",
    "EntropyBonus",
    "Gate",
    "Gmpo",
    "Gspo",
    "ImportancePg",
    "KlCov",
    "KlPenalty",
    "Limit",
    "Luspo",
    "PolicyLoss",
    "Reduction",
    "Reinforce",
    "Sapo",
    "Topr",
    "TrimtabError",
    "Vespo",
    "Weight",
    "__version__",
    "correct",
    "kl_penalty",
    "policy_loss",
    "preset",
]


def __getattr__(name: str) -> Any:
    if name == "dialects":
        return import_module("trimtab.dialects")
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
