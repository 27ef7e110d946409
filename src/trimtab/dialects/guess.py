"""Which framework a file of settings belongs to."""

from __future__ import annotations

import os

from trimtab.dialects.files.opening import Contents, contents_of
from trimtab.dialects.files.shape import Evidence, by_roots, refuse_others, sign, without_keys
from trimtab.dialects.lookup import count
from trimtab.dialects.registry import DIALECTS, SIGNATURES
from trimtab.dialects.settings import Source
from trimtab.errors import ConfigError

MANY_KEYS = 12
"""Keys beside one of a framework's own that make it a chance."""


def framework_of(settings: Source, root: str | os.PathLike[str] | None = None) -> str:
    """The framework that settings belong to; refused where none or several could be meant."""
    return recognise(settings, root).framework


def recognise(settings: Source, root: str | os.PathLike[str] | None = None) -> Evidence:
    """The framework that settings belong to and by what it shows: a program or key only it has, else most keys."""
    found = contents_of(settings, lambda keys: max(count(DIALECTS[each].keys, keys) for each in SIGNATURES), root)
    name = os.fspath(settings) if isinstance(settings, str | os.PathLike) else "This"
    refuse_others(found, name)
    return sign(found) or _by_count(found, name)


def _by_count(found: Contents, name: str) -> Evidence:
    counted = {each: count(DIALECTS[each].keys, found.keys, own=True) for each in SIGNATURES}
    best = max(counted.values(), default=0)
    names = [each for each, many in counted.items() if many == best and best > 0]
    names = [each for each in names if SIGNATURES[each].ancestor not in names]
    if len(names) == 1 and best > 1:
        return Evidence(names[0], f"it reads {best} of its keys, more than any other")
    shown = by_roots(found)
    if shown is not None:
        return shown
    if not names or len(found.keys) > MANY_KEYS * best:
        raise without_keys(found, name)
    if len(names) == 1:
        return Evidence(names[0], "it reads one of its keys, and no other does")
    raise ConfigError(
        f"The framework needs to be said, got a file that could be several: {' and '.join(names)} read as many. Say --from NAME, "
        "or write NAME:FILE."
    )
