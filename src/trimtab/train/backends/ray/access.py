"""What a cluster of the run's own asks of whoever connects: a token that this run alone knows, and what it starts."""

from __future__ import annotations

import importlib
import os
import secrets
import sys
from typing import Any

NAMES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")


class AccessToken:
    """A token in the environment, where Ray looks for it: elsewhere it would keep one in the user's home.

    Where the user has chosen how clusters are accessed, that holds.
    """

    def __init__(self) -> None:
        self._before: dict[str, str | None] | None = None
        if NAMES[0] not in os.environ:
            self._before = {name: os.environ.get(name) for name in NAMES}
            os.environ |= dict(zip(NAMES, ("token", secrets.token_hex(32)), strict=True))
            _read_again()

    def withdraw(self) -> None:
        """Leave the environment as it was found: the program may go on to another cluster. Can be called again."""
        if self._before is None:
            return
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        self._before = None
        _read_again()


def _read_again() -> None:
    """Ray reads its environment when it is imported, which a program may have done long before: have it read that again."""
    if "ray" in sys.modules:
        inner: Any = importlib.import_module("ray._raylet")
        if hasattr(inner, "AuthenticationTokenLoader"):  # Ray of before there were tokens has nothing to read
            inner.Config.initialize("")  # first: with the old mode and no token in its cache Ray ends the process
            inner.AuthenticationTokenLoader.instance().reset_cache()
