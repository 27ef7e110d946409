"""The command line: argv to one call each. Loads no torch."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Sequence
from contextlib import contextmanager

PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


@contextmanager
def briefly() -> Generator[None]:
    """Without the collector of cycles, and without pydantic's search of every installed package for plug-ins; both as before afterwards."""
    collects, plugins = gc.isenabled(), os.environ.get(PLUGINS)
    gc.disable()
    os.environ.setdefault(PLUGINS, "__all__")
    try:
        yield
    finally:
        if plugins is None:
            del os.environ[PLUGINS]
        if collects:
            gc.enable()


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `trimtab` with these arguments (the process's own where left out) and exit."""
    with briefly():
        from trimtab.cli.app import app  # here, so that importing trimtab.cli costs nothing

    try:
        app(args=None if arguments is None else list(arguments), prog_name="trimtab")
    except KeyboardInterrupt:  # one more, while the first was being answered
        raise SystemExit(130) from None
    except SystemExit as ended:
        if (
            isinstance(ended.code, int) and ended.code > 128
        ):  # it ends because it was asked to: asking again adds nothing
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        raise
