"""How a framework's files are known: all that recognition needs of it, without what reads them."""

from __future__ import annotations

from typing import NamedTuple

NEVER = "(?!)"
"""A pattern that nothing matches."""


class Signature(NamedTuple):
    """A framework by its names, and by what only its files have."""

    name: str
    title: str
    short: str | None = None
    """What it is also called."""
    ancestor: str = ""
    """The framework whose keys it took over: a file that could be either's is that one's, a key that only this one has decides."""
    roots: tuple[str, ...] = ()
    """Top-level names of a whole file of theirs."""
    packages: tuple[str, ...] = ()
    """What a Python script imports of it."""
    programs: str = NEVER
    """What its programs and modules are called: a pattern of whole names."""
    own_keys: str = NEVER
    """Keys that only it has: a pattern of full names."""
