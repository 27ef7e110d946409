"""What `trimtab explain` was given: a correction of ours, or a file of a framework's."""

from __future__ import annotations

from pathlib import Path

from trimtab.config.algebra import Correction
from trimtab.config.files import correction_from, is_file_name
from trimtab.errors import ConfigError

OURS = {".yaml", ".yml", ".json"}


def own_or_theirs(name: str, changes: list[str]) -> Correction | None:
    """A correction of ours by name or file; None for a file that is a framework's."""
    path = Path(name)
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
