"""Flags that switch a setting off by another name: `--no-X` of argparse and tyro, `--no_X` of Hugging Face, `--disable-X` of slime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab.dialects.framework import Dialect
from trimtab.dialects.values import flag

PREFIXES = ("no_", "disable_")


def without_negations(dialect: Dialect, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with each such flag as the setting it switches off; one whose setting is said too, or that is a key itself, stays."""
    own = {path.rpartition(".")[2] for key in dialect.keys for path in key.paths}
    flags = {path.rpartition(".")[2] for key in dialect.keys if key.kind is flag for path in key.paths}
    found: dict[str, Any] = {}
    for written, value in settings.items():
        section, dot, name = written.rpartition(".")
        prefix = next((each for each in PREFIXES if name.startswith(each) and name[len(each) :] in flags), "")
        meant = f"{section}{dot}{name[len(prefix) :]}"
        if prefix and name not in own and isinstance(value, bool) and meant not in settings:
            found[meant] = not value
        else:
            found[written] = value
    return found
