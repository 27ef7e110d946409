"""The file of settings that a command names, where it stands beside the script or below a folder the script is in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path, PurePosixPath

SUFFIXES = (".yaml", ".yml", ".toml", ".json")
HIGHEST = 5
"""Folders above the script's own in which a relative name is looked for: the root of a repository, mostly."""
MOST_PARTS = 12


def file_beneath(script: Path, name: str, folder: str = "") -> Path | None:
    """The file that a name in a script means; None where it is elsewhere, or its folder is not known."""
    for written in _names(name, folder):
        for place in _places(script, written):
            if _is_file(place):
                return place
    return None


def _names(name: str, folder: str) -> Iterator[PurePosixPath]:
    """The name as written, in the folder named for it where there is one, with the ending it may lack."""
    joined = [f"{folder}/{name}", name] if folder else [name]
    for each in joined:
        path = PurePosixPath(each)
        yield from (path,) if path.suffix in SUFFIXES else (path.with_name(f"{path.name}{end}") for end in SUFFIXES[:1])


def _places(script: Path, written: PurePosixPath) -> Iterator[Path]:
    """Where it may stand: what is known of it, beside the script first, then below the folders above."""
    known: list[str] = []
    for part in reversed(written.parts):
        if any(mark in part for mark in "$`*~/") or part == ".." or len(known) == MOST_PARTS:
            break
        known.insert(0, part)
    known = [part for part in known if part != "."]
    if not known:
        return
    above = [script.parent, *script.parent.parents][: HIGHEST + 1]
    for start in range(len(known)):
        yield script.parent.joinpath(*known[start:])
    for folder in above[1:] if len(known) > 1 else ():
        yield folder.joinpath(*known)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
