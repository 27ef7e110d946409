"""Named corrections: each a value, with where it comes from, what it means and what others call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from trimtab.config.base import excerpt
from trimtab.config.correction import Correction
from trimtab.config.presets.preset import Preset as Preset
from trimtab.config.presets.sequences import SEQUENCES
from trimtab.config.presets.tokens import CENTERING, PREFIXES, TOKENS
from trimtab.config.presets.trust_regions import TRUST_REGIONS
from trimtab.errors import ConfigError, UnknownNameError, nearest

BYPASS = "bypass-"
PRESETS: dict[str, Preset] = {each.name: each for each in (*TOKENS, *SEQUENCES, *TRUST_REGIONS, *PREFIXES, *CENTERING)}
MEANT = {
    "tis": "Truncated importance sampling is 'token-tis', by the product over the sequence 'seq-tis'.",
    "mis": "Masked importance sampling is 'token-mis', by the product over the sequence 'seq-mis'.",
    "is": "Importance weights are 'token-tis' with upper=null, or with a bound.",
    "rs": "Sequences are rejected by 'geo-rs', 'k2-rs' or 'k3-rs'.",
    "geo": "Sequences are rejected by their geometric mean ratio in 'geo-rs'.",
    "geo-mask": "Sequences are rejected by their geometric mean ratio in 'geo-rs'.",
    "none": "No correction is 'off'.",
    "ppo": "The clip of PPO is a loss, 'clip'; two policies without a correction are 'bypass-off'.",
    "decoupled": "Three policies without weights are 'off'; the clip of PPO is the loss 'clip'.",
    "bypass": "Two policies without a correction are 'bypass-off'.",
    "dppo": "The mask of DPPO is 'dppo-tv' or 'dppo-kl'.",
}
"""What words of the field stand for that are no preset here."""


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
    raise UnknownNameError(f"There is no preset {excerpt(name)}. {nearest(name, known, MEANT)}")


def correction_of_name(given: object) -> object:
    """A preset by name, or `preset: NAME` with its parameters; YAML 1.1 reads a bare `off` as false."""
    if given is False:
        return preset("off")
    if isinstance(given, Mapping) and "preset" in given:
        parameters = {str(key): value for key, value in cast("Mapping[object, Any]", given).items()}
        return preset_with(parameters.pop("preset"), parameters)
    return preset(given) if isinstance(given, str) else given


def preset_names() -> list[str]:
    """Every name `preset` accepts, the bypass forms last."""
    return [*PRESETS, *(BYPASS + name for name, each in PRESETS.items() if each.two_policies)]
