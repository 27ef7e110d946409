"""Other frameworks' configurations read as ours, and ours written as theirs; no torch. Names load when used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what type checkers and editors see
    from trimtab.dialects.reader import read
    from trimtab.dialects.reading import Finding, Reading, Writing
    from trimtab.dialects.registry import DIALECTS
    from trimtab.dialects.writing.write import write

__all__ = ["DIALECTS", "Finding", "Reading", "Writing", "read", "write"]

_HOMES = {
    "DIALECTS": "registry",
    "Finding": "reading",
    "Reading": "reading",
    "Writing": "reading",
    "read": "reader",
    "write": "writing.write",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab.dialects' has no attribute {name!r}")
    return getattr(import_module(f"trimtab.dialects.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
