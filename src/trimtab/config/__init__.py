"""What a user can ask for: frozen values, presets, YAML with dotted overrides, JSON schema. Never imports torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see; at run time names load when used
    from trimtab.config.correction import Correction, Gate, Limit, Weight
    from trimtab.config.presets import PRESETS, Preset, preset, preset_names

__all__ = ["PRESETS", "Correction", "Gate", "Limit", "Preset", "Weight", "preset", "preset_names"]

_IN_PRESETS = frozenset(["PRESETS", "Preset", "preset", "preset_names"])


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'trimtab.config' has no attribute {name!r}")
    return getattr(import_module(f"trimtab.config.{'presets' if name in _IN_PRESETS else 'algebra'}"), name)


def __dir__() -> list[str]:
    return __all__
