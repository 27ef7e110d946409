"""Every framework that can be read: one row each, its folder."""

from __future__ import annotations

from trimtab.dialects import (
    areal,
    miles,
    nemo_rl,
    open_instruct,
    openrlhf,
    prime_rl,
    roll,
    skyrl,
    slime,
    swift,
    tinker,
    trl,
    tunix,
    verl,
)
from trimtab.dialects.dialect import Dialect
from trimtab.errors import UnknownNameError, nearest

DIALECTS: dict[str, Dialect] = {
    each.DIALECT.name: each.DIALECT
    for each in (
        verl,
        areal,
        skyrl,
        trl,
        openrlhf,
        swift,
        slime,
        nemo_rl,
        roll,
        prime_rl,
        open_instruct,
        miles,
        tinker,
        tunix,
    )
}
"""Every framework that can be read, by name."""


def dialect_of(framework: str) -> Dialect:
    """The framework of that name, however it is capitalised or joined."""
    plain = framework.lower().replace("_", "-")
    name = next((each.name for each in DIALECTS.values() if each.short == plain), plain)
    if name not in DIALECTS:
        raise UnknownNameError(f"There is no framework {framework!r}. {nearest(name, DIALECTS)}")
    return DIALECTS[name]
