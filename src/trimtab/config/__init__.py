"""What a user can ask for: frozen values, presets, YAML with dotted overrides, JSON schema. Never imports torch."""

from trimtab.config.algebra import Correction, Gate, Limit, Weight
from trimtab.config.presets import PRESETS, Preset, preset, preset_names

__all__ = ["PRESETS", "Correction", "Gate", "Limit", "Preset", "Weight", "preset", "preset_names"]
