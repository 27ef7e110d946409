"""Off-policy correction for reinforcement learning of language models. Names load when used: importing this loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.advantage.estimate import Advantages as Advantages
    from trimtab.advantage.estimate import advantages as advantages
    from trimtab.advantage.normalise import normalised as normalised
    from trimtab.advantage.shaping import Shaped as Shaped
    from trimtab.advantage.shaping import ended as ended
    from trimtab.advantage.shaping import shaped as shaped
    from trimtab.config.advantages import Gae as Gae
    from trimtab.config.advantages import Gdpo as Gdpo
    from trimtab.config.advantages import Gpg as Gpg
    from trimtab.config.advantages import Grpo as Grpo
    from trimtab.config.advantages import LeaveOneOut as LeaveOneOut
    from trimtab.config.advantages import MaxRl as MaxRl
    from trimtab.config.advantages import Normalise as Normalise
    from trimtab.config.advantages import Opo as Opo
    from trimtab.config.advantages import Overlong as Overlong
    from trimtab.config.advantages import PassK as PassK
    from trimtab.config.advantages import ReinforcePlusPlus as ReinforcePlusPlus
    from trimtab.config.advantages import ReMax as ReMax
    from trimtab.config.advantages import Rloo as Rloo
    from trimtab.config.advantages import Shaping as Shaping
    from trimtab.config.algebra import Correction as Correction
    from trimtab.config.algebra import Gate as Gate
    from trimtab.config.algebra import Limit as Limit
    from trimtab.config.algebra import Weight as Weight
    from trimtab.config.presets import preset as preset
    from trimtab.core.correct import Corrected as Corrected
    from trimtab.core.correct import correct as correct
    from trimtab.errors import TrimtabError as TrimtabError

__version__ = "0.1.0"

_HOMES = {
    "Gae": "trimtab.config.advantages",
    "Gdpo": "trimtab.config.advantages",
    "Gpg": "trimtab.config.advantages",
    "Grpo": "trimtab.config.advantages",
    "LeaveOneOut": "trimtab.config.advantages",
    "MaxRl": "trimtab.config.advantages",
    "Normalise": "trimtab.config.advantages",
    "Opo": "trimtab.config.advantages",
    "Overlong": "trimtab.config.advantages",
    "PassK": "trimtab.config.advantages",
    "ReMax": "trimtab.config.advantages",
    "ReinforcePlusPlus": "trimtab.config.advantages",
    "Rloo": "trimtab.config.advantages",
    "Shaping": "trimtab.config.advantages",
    "Advantages": "trimtab.advantage.estimate",
    "advantages": "trimtab.advantage.estimate",
    "normalised": "trimtab.advantage.normalise",
    "Shaped": "trimtab.advantage.shaping",
    "ended": "trimtab.advantage.shaping",
    "shaped": "trimtab.advantage.shaping",
    "Correction": "trimtab.config.algebra",
    "Gate": "trimtab.config.algebra",
    "Limit": "trimtab.config.algebra",
    "Weight": "trimtab.config.algebra",
    "preset": "trimtab.config.presets",
    "Corrected": "trimtab.core.correct",
    "correct": "trimtab.core.correct",
    "TrimtabError": "trimtab.errors",
}

__all__ = [
    "Advantages",
    "Corrected",
    "Correction",
    "Gae",
    "Gate",
    "Gdpo",
    "Gpg",
    "Grpo",
    "LeaveOneOut",
    "Limit",
    "MaxRl",
    "Normalise",
    "Opo",
    "Overlong",
    "PassK",
    "ReMax",
    "ReinforcePlusPlus",
    "Rloo",
    "Shaped",
    "Shaping",
    "TrimtabError",
    "Weight",
    "__version__",
    "advantages",
    "correct",
    "ended",
    "normalised",
    "preset",
    "shaped",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
