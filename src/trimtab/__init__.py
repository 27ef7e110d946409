"""Off-policy correction for reinforcement learning of language models. Names load when used: importing this loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see
    from trimtab.advantage.estimate import Advantages as Advantages
    from trimtab.advantage.estimate import advantages as advantages
    from trimtab.advantage.normalise import normalised as normalised
    from trimtab.advantage.shaping import Shaped as Shaped
    from trimtab.advantage.shaping import ended as ended
    from trimtab.advantage.shaping import shaped as shaped
    from trimtab.config.advantages import Distillation as Distillation
    from trimtab.config.advantages import Gae as Gae
    from trimtab.config.advantages import Gdpo as Gdpo
    from trimtab.config.advantages import Gpg as Gpg
    from trimtab.config.advantages import Grpo as Grpo
    from trimtab.config.advantages import LeaveOneOut as LeaveOneOut
    from trimtab.config.advantages import MaxRl as MaxRl
    from trimtab.config.advantages import Normalise as Normalise
    from trimtab.config.advantages import Opo as Opo
    from trimtab.config.advantages import OptimalToken as OptimalToken
    from trimtab.config.advantages import Overlong as Overlong
    from trimtab.config.advantages import PassK as PassK
    from trimtab.config.advantages import ReinforcePlusPlus as ReinforcePlusPlus
    from trimtab.config.advantages import ReMax as ReMax
    from trimtab.config.advantages import Rloo as Rloo
    from trimtab.config.advantages import Shaping as Shaping
    from trimtab.config.correction import Correction as Correction
    from trimtab.config.correction import Gate as Gate
    from trimtab.config.correction import Limit as Limit
    from trimtab.config.correction import Weight as Weight
    from trimtab.config.losses import Aspo as Aspo
    from trimtab.config.losses import Bapo as Bapo
    from trimtab.config.losses import Cispo as Cispo
    from trimtab.config.losses import Clip as Clip
    from trimtab.config.losses import ClipCov as ClipCov
    from trimtab.config.losses import DppoKl as DppoKl
    from trimtab.config.losses import DppoTv as DppoTv
    from trimtab.config.losses import Dro as Dro
    from trimtab.config.losses import EntropyBonus as EntropyBonus
    from trimtab.config.losses import Fipo as Fipo
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
    from trimtab.core.head import Head as Head
    from trimtab.core.head import HeadLogProbs as HeadLogProbs
    from trimtab.core.inputs import checking as checking
    from trimtab.core.reduce import Denominator as Denominator
    from trimtab.core.staleness import Staleness as Staleness
    from trimtab.core.staleness import staleness as staleness
    from trimtab.errors import TrimtabError as TrimtabError
    from trimtab.log_probs.public import SelectedLogProbs as SelectedLogProbs
    from trimtab.log_probs.public import log_probs_of as log_probs_of
    from trimtab.log_probs.public import selected_log_probs as selected_log_probs
    from trimtab.losses.kl import kl_penalty as kl_penalty
    from trimtab.losses.policy import PolicyLoss as PolicyLoss
    from trimtab.losses.policy import policy_loss as policy_loss
    from trimtab.records.recorder import Recorder as Recorder

__version__ = "0.2.0"

# The same names at run time, by the module that a name loads when it is first used.
_NAMES = {
    "trimtab.advantage.estimate": "Advantages advantages",
    "trimtab.advantage.normalise": "normalised",
    "trimtab.advantage.shaping": "Shaped ended shaped",
    "trimtab.config.advantages": (
        "Distillation Gae Gdpo Gpg Grpo LeaveOneOut MaxRl Normalise Opo OptimalToken Overlong PassK ReMax ReinforcePlusPlus Rloo Shaping"
    ),
    "trimtab.config.correction": "Correction Gate Limit Weight",
    "trimtab.config.losses": (
        "Aspo Bapo Cispo Clip ClipCov DppoKl DppoTv Dro EntropyBonus Fipo Gmpo Gspo ImportancePg KlCov KlPenalty Luspo Reduction Reinforce "
        "Sapo Topr Vespo"
    ),
    "trimtab.config.presets": "preset",
    "trimtab.core.inputs": "checking",
    "trimtab.core.correct": "Corrected correct",
    "trimtab.core.head": "Head HeadLogProbs",
    "trimtab.log_probs.public": "SelectedLogProbs log_probs_of selected_log_probs",
    "trimtab.core.reduce": "Denominator",
    "trimtab.core.staleness": "Staleness staleness",
    "trimtab.errors": "TrimtabError",
    "trimtab.losses.kl": "kl_penalty",
    "trimtab.losses.policy": "PolicyLoss policy_loss",
    "trimtab.records.recorder": "Recorder",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = sorted([*_HOMES, "__version__"])  # noqa: PLE0605  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name == "dialects":
        return import_module("trimtab.dialects")
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
