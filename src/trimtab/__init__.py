"""Off-policy correction for reinforcement learning of language models. Names load when used: importing this loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    "Correction": "trimtab.config.algebra",
    "Gate": "trimtab.config.algebra",
    "Limit": "trimtab.config.algebra",
    "Weight": "trimtab.config.algebra",
    "preset": "trimtab.config.presets",
    "Corrected": "trimtab.core.correct",
    "correct": "trimtab.core.correct",
    "TrimtabError": "trimtab.errors",
}

__all__ = ["Corrected", "Correction", "Gate", "Limit", "TrimtabError", "Weight", "__version__", "correct", "preset"]


def __getattr__(name: str) -> Any:
    if name == "dialects":
        return import_module("trimtab.dialects")
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
