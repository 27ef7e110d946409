"""Files that settings build on: how far away they may lie, and which one a script means by a name.

Only files beside the settings or below the root of their repository are read: a file of settings that somebody else wrote may name any
other, whose values would then be printed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from trimtab.errors import ConfigError

SUFFIXES = (".yaml", ".yml", ".toml", ".json")
HIGHEST = 5
"""Folders above the script's own in which a relative name is looked for: the root of a repository, mostly."""
MOST_PARTS = 12
MISSING = "which is not beside it"


@dataclass(frozen=True)
class Elsewhere:
    """A file that settings build on and that is not read; a framework's own whole defaults are none."""

    name: str
    package: str = ""
    """The section that it fills; the whole where left out."""
    why: str = MISSING


@dataclass(frozen=True)
class Reach:
    """Where files may lie that a file of settings builds on: its own folder, and below a root."""

    own: Path
    root: Path

    def holds(self, file: Path) -> bool:
        """Whether a file, links followed, lies there."""
        real = real_path(file)
        return real.is_relative_to(self.own) or real.is_relative_to(self.root)

    def outside(self, name: str, package: str = "") -> Elsewhere:
        """A file that is there and out of reach."""
        return Elsewhere(name, package, f"which lies outside of {self.root} and is not read (--root DIR allows it)")


def reach_of(file: Path, root: str | os.PathLike[str] | None = None) -> Reach:
    """The folder of a file, and a root said for it; else the repository that it is in, as `.git` shows."""
    own = real_path(file.parent)
    if root is not None:
        if not os.path.isdir(root):
            raise ConfigError(f"--root needs a folder, got {os.fspath(root)!r}. Name one above the file.")
        return Reach(own, real_path(Path(root)))
    return Reach(own, next((each for each in (own, *own.parents) if os.path.lexists(each / ".git")), own))


def real_path(path: Path) -> Path:
    """A path with its links followed as far as they go."""
    return Path(os.path.realpath(path))


def file_beneath(script: Path, name: str, folder: str, reach: Reach) -> Path | Elsewhere:
    """The file that a name in a script means; what is known of it where it is elsewhere, or its folder is not known."""
    found = Elsewhere(name)
    for written in _names(name, folder):
        for place in _places(script, written):
            if is_file(place) and reach.holds(place):
                return place
            found = reach.outside(name) if is_file(place) else found
    return found


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


def is_file(path: Path) -> bool:
    """Whether an ordinary file is there; a name that no file can have is none."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
