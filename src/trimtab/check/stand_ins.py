"""Frameworks without the modules their arithmetic never touches: engines, cluster runtimes, loggers.

A module that is installed is never replaced, and nobody but the framework sees a stand-in. Both definitions are also written into
counterexamples, so they need nothing but the standard library.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import logging
import sys
import typing
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any
from unittest import mock


class Anything(type):
    """A class of this type passes for a module, a base, a decorator, a constant or a type."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """As a decorator it leaves what it decorates alone."""
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else cls

    def __getitem__(cls, key: Any) -> Any:
        return cls

    def __or__(cls, other: Any) -> Any:
        return cls

    def __ror__(cls, other: Any) -> Any:
        return cls

    def __bool__(cls) -> bool:
        return False

    def __fspath__(cls) -> str:
        return "absent"


def importing_without(missing: Sequence[str], asked_by: Sequence[str]) -> Callable[..., Any]:
    """An `__import__` that answers `missing` with a stand-in, if a package of `asked_by` asks."""
    real, absent = builtins.__import__, Anything("Absent", (), {})

    def lenient(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:
        asking = (globals or {}).get("__name__", "").partition(".")[0]
        stands_in = level == 0 and asking in asked_by and f"{name}.".startswith(tuple(f"{each}." for each in missing))
        return absent if stands_in else real(name, globals, locals, fromlist, level)

    return lenient


def not_installed(modules: Sequence[str]) -> list[str]:
    """Those of `modules` that cannot be imported here."""
    found: list[str] = []
    for name in modules:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                missing = importlib.util.find_spec(name) is None
        except (ModuleNotFoundError, ValueError):
            missing = True
        if missing:
            found.append(name)
    return found


@contextmanager
def newer_typed_dicts(wanted: bool) -> Generator[None]:
    """`typing.TypedDict` as pydantic wants it before Python 3.12."""
    if not wanted or sys.version_info >= (3, 12):
        yield
        return
    import typing_extensions  # pydantic brings it

    with mock.patch.object(typing, "TypedDict", typing_extensions.TypedDict):
        yield


@contextmanager
def without(missing: Sequence[str], asked_by: Sequence[str]) -> Generator[None]:
    """Stand-ins while a framework is imported and called, and no word of its own on our streams."""
    root, disabled = logging.getLogger(), logging.root.manager.disable
    handlers, level = list(root.handlers), root.level
    sink = io.StringIO()
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stdout(sink), redirect_stderr(sink):
            warnings.simplefilter("ignore")
            with mock.patch.object(builtins, "__import__", importing_without(missing, asked_by)):
                yield
    finally:
        logging.disable(disabled)
        root.handlers[:], root.level = handlers, level
