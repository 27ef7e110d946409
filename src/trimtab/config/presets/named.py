"""Corrections by name, each made beforehand: nothing is validated while a step is compiled.

Importing this makes all of them, which what only reads settings has no use for.
"""

from __future__ import annotations

from trimtab.config.base import of_kind
from trimtab.config.correction import Correction
from trimtab.config.presets import preset, preset_names

NAMED = {name: preset(name) for name in preset_names()}


def as_correction(value: object) -> Correction:
    """A correction as it is, or the one of that name."""
    if isinstance(value, str):
        return NAMED[value] if value in NAMED else preset(value)
    return of_kind(Correction, value, "A correction needs to be a Correction or a preset's name", '"seq-tis"')
