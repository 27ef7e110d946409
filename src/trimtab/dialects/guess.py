"""Which framework a file of settings belongs to."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trimtab.dialects.files.opening import contents_of
from trimtab.dialects.files.shape import Evidence, kind_of_file, sign
from trimtab.dialects.frameworks import DIALECTS
from trimtab.dialects.lookup import count
from trimtab.dialects.settings import Source
from trimtab.errors import ConfigError, ConfigFileError


def framework_of(settings: Source) -> str:
    """The framework that settings belong to; refused where none or several could be meant."""
    return recognise(settings).framework


def recognise(settings: Source) -> Evidence:
    """The framework that settings belong to and by what it shows: a program or key only it has, else most keys."""
    found = contents_of(settings, lambda keys: max(count(each, keys) for each in DIALECTS.values()))
    shown = sign(found)
    if shown is not None:
        return shown
    kind = kind_of_file(found)
    if kind is not None:
        name = os.fspath(settings) if isinstance(settings, str | os.PathLike) else "This"
        raise ConfigFileError(f"{name} is {kind}, which holds no training settings. Pass the file that does.")
    return _by_count(found.keys)


def _by_count(keys: Mapping[str, object]) -> Evidence:
    counted = {name: count(each, keys) for name, each in DIALECTS.items()}
    best = max(counted.values(), default=0)
    names = [name for name, many in counted.items() if many == best and best > 0]
    if len(names) == 1:
        return Evidence(names[0], f"it reads {best} of its keys, more than any other")
    which = f"{' and '.join(names)} read as many" if names else "no framework reads its keys"
    raise ConfigError(
        f"The framework needs to be said, got a file that could be several: {which}. Say --from NAME, or write NAME:FILE."
    )
