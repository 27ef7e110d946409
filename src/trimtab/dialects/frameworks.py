"""Every framework that can be read: one row each, its folder. A file is recognised by signatures; a dialect is imported when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, cast

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
from trimtab.errors import UnknownNameError, nearest

if TYPE_CHECKING:
    from trimtab.dialects.framework import Dialect, Key
    from trimtab.dialects.signature import Signature

_FOLDERS = {
    each.SIGNATURE.name: each
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
SIGNATURES: dict[str, Signature] = {name: each.SIGNATURE for name, each in _FOLDERS.items()}
"""How the files of every framework are known, by name."""


class _Dialects(Mapping[str, "Dialect"]):
    """The dialects by name, each imported when it is first asked for."""

    def __getitem__(self, name: str) -> Dialect:
        return cast("Dialect", import_module(f"{_FOLDERS[name].__name__}.dialect").DIALECT)

    def __contains__(self, name: object) -> bool:
        return name in _FOLDERS

    def __iter__(self) -> Iterator[str]:
        return iter(_FOLDERS)

    def __len__(self) -> int:
        return len(_FOLDERS)


DIALECTS: Mapping[str, Dialect] = _Dialects()
"""Every framework that can be read, by name."""


def keys_of_framework(name: str) -> tuple[Key, ...]:
    """The keys of a framework, without the rules that read them."""
    return cast("tuple[Key, ...]", import_module(f"{_FOLDERS[name].__name__}.keys").KEYS)


def dialect_of(framework: str) -> Dialect:
    """The framework of that name, however it is capitalised or joined."""
    plain = framework.lower().replace("_", "-")
    name = next((each.name for each in SIGNATURES.values() if each.short == plain), plain)
    if name not in SIGNATURES:
        raise UnknownNameError(f"There is no framework {framework!r}. {nearest(name, SIGNATURES)}")
    return DIALECTS[name]
