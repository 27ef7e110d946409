"""What a command that reads a few settings and ends does without."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from contextlib import contextmanager

PLUGINS = "PYDANTIC_DISABLE_PLUGINS"


@contextmanager
def briefly() -> Generator[None]:
    """Without the collector of cycles, and without pydantic's search of every installed package for plug-ins; both as before afterwards."""
    collects, said = gc.isenabled(), os.environ.get(PLUGINS)
    gc.disable()
    os.environ.setdefault(PLUGINS, "__all__")
    try:
        yield
    finally:
        if said is None:
            del os.environ[PLUGINS]
        if collects:
            gc.enable()
