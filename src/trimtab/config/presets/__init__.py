"""Named corrections: each a value, with where it comes from, what it means and what others call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.config.algebra import Correction
from trimtab.config.base import excerpt
from trimtab.config.presets.centering import CENTERING
from trimtab.config.presets.of_sequences import OF_SEQUENCES
from trimtab.config.presets.of_tokens import OF_TOKENS
from trimtab.config.presets.prefixes import PREFIXES
from trimtab.config.presets.preset import Preset as Preset
from trimtab.config.presets.trust_regions import TRUST_REGIONS
from trimtab.errors import ConfigError, UnknownNameError, nearest

BYPASS = "bypass-"
PRESETS: dict[str, Preset] = {
    each.name: each for each in (*OF_TOKENS, *OF_SEQUENCES, *TRUST_REGIONS, *PREFIXES, *CENTERING)
}


def preset(name: str, **parameters: Any) -> Correction:
    """The correction of that name, its numbers changed by `parameters`; `bypass-NAME` compares current with behavior."""
    return preset_with(name, parameters)


def preset_with(name: object, parameters: Mapping[str, Any]) -> Correction:
    """The same with what a file or a command line says, where a name and a key may be anything."""
    if not isinstance(name, str):
        raise ConfigError(f"A preset needs a name, got {excerpt(name)}. `trimtab presets` lists them.")
    if name in PRESETS:
        return PRESETS[name](**parameters)
    plain = name.removeprefix(BYPASS)
    if name.startswith(BYPASS) and plain in PRESETS:
        if not PRESETS[plain].two_policies:
            raise ConfigError(f"Preset {plain!r} needs its own pair of policies, got {name!r}. It has no bypass form.")
        return PRESETS[plain](**parameters).but(policies="bypass")
    known = preset_names() if name.startswith(BYPASS) else PRESETS
    raise UnknownNameError(f"There is no preset {excerpt(name)}. {nearest(name, known)}")


def preset_names() -> list[str]:
    """Every name `preset` accepts, the bypass forms last."""
    return [*PRESETS, *(BYPASS + name for name, each in PRESETS.items() if each.two_policies)]
