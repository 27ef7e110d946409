"""The scalars frameworks log, under their names: computed by `logged`, explained by the rows of `names`. Explaining loads no torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.logged.table import logged as logged

__all__ = ["logged"]


def __getattr__(name: str) -> Any:
    if name == "logged":
        from trimtab.logged.table import logged

        return logged
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
