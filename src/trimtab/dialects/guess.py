"""Which framework a file of settings belongs to."""

from __future__ import annotations

from trimtab.dialects.frameworks import DIALECTS, read
from trimtab.dialects.settings import Source, flat
from trimtab.errors import ConfigError


def framework_of(settings: Source) -> str:
    """The framework that understands most of these keys; refused where none or several do."""
    keys = flat(settings)
    found: dict[str, int] = {}
    for name in DIALECTS:
        try:
            found[name] = len(read(name, keys).said)
        except ConfigError:
            continue
    best = max(found.values(), default=0)
    names = [name for name, count in found.items() if count == best and best > 0]
    if len(names) == 1:
        return names[0]
    which = f"{' and '.join(names)} both read it" if names else "no framework reads its keys"
    raise ConfigError(f"The framework needs to be said, got a file that could be several: {which}. Write NAME:FILE.")
