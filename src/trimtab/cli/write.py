"""Files written whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
from pathlib import Path

from trimtab.errors import TrimtabError


def write_file(path: Path, text: str) -> None:
    """Write a file by way of a neighbour, so that a reader never sees half of it."""
    target = Path(os.path.realpath(path))
    neighbour = target.with_name(
        f".{target.name}.{secrets.token_hex(8)}.part"
    )  # a name that nobody can put a link at before
    try:
        if target.exists() and not target.is_file():  # a pipe or a device has nothing to replace
            path.write_text(text, encoding="utf-8")
            return
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
            with open(os.open(neighbour, flags, 0o666), "w", encoding="utf-8", newline="") as file:
                file.write(text)
            if target.exists():
                shutil.copymode(target, neighbour)
            neighbour.replace(target)
        finally:
            neighbour.unlink(missing_ok=True)
    except OSError as error:
        raise TrimtabError(
            f"{path} cannot be written: {error.strerror}. Check the folder and its permissions."
        ) from None
