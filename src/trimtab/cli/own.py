"""What `trimtab explain` was given: a correction of ours, or a file of a framework's."""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import islice
from pathlib import Path

from trimtab.config.algebra import Correction
from trimtab.config.files import correction_from, is_file_name
from trimtab.config.presets import preset_names
from trimtab.errors import ConfigError, ConfigFileError

OURS = {".yaml", ".yml", ".json"}


MOST_TRIED, SHOWN = 60, 4
"""Files of a folder that are looked into, and those that are named."""


def refuse_folder(path: Path, command: str) -> None:
    """Refuse a folder where one file is wanted, with the files in it that look like settings."""
    if not os.path.isdir(path):
        return
    from trimtab.dialects.files.opening import READ, SHELL  # with the frameworks
    from trimtab.dialects.guess import recognise

    found: list[str] = []
    files = (
        each for each in sorted(path.iterdir()) if each.suffix.lower() in {*READ, *SHELL, ".py"} and _is_file(each)
    )
    for file in islice(files, MOST_TRIED):
        with suppress(ConfigError):
            found.append(f"{file.name} ({recognise(file).framework})")
    named = f"{', '.join(found[:SHOWN])}{f' and {len(found) - SHOWN} more' if len(found) > SHOWN else ''}"
    said = (
        f"In it these look like settings: {named}."
        if found
        else "No file directly in it looks like a framework's settings."
    )
    raise ConfigFileError(f"{command} needs a file, got the folder {path}. {said}")


def own_or_theirs(name: str, changes: list[str]) -> Correction | None:
    """A correction of ours by name or file; None for a file that is a framework's."""
    path = Path(name)
    if name not in preset_names():
        refuse_folder(path, "explain")
    if not (is_file_name(name) or _is_file(path)):
        return correction_from(name, changes)
    if path.suffix.lower() not in OURS and _is_file(path):
        return None
    try:
        return correction_from(name, changes)
    except ConfigError:
        if changes or not _is_file(path):
            raise
        if _is_ours(path):
            raise
        return None


def _is_ours(path: Path) -> bool:
    """Whether a file that cannot be read as a correction was meant as one: by the names at its top."""
    from trimtab.dialects.settings import flat_settings  # with the frameworks

    try:
        return any(name.partition(".")[0] in Correction.model_fields for name in flat_settings(path))
    except ConfigError:
        return True


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have
        return False
