"""What becomes of memory that is let go: it stays with the process, and cycles of Python's are looked for once per step.

A step frees and asks for the same megabytes again and again. And groups under way are a great many small objects without cycles: left
alone, the collector looks through them so often that it takes two fifths of the driver's time, at 16,000 groups a step.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Generator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt(3)
KEPT = 512 * 2**20
"""Most bytes at the end of the heap that stay."""
BLOCK = 32 * 2**20
"""Blocks up to this size come from the heap."""
YOUNG = 50_000
"""New objects after which the collector starts by itself, in place of Python's 700."""


def keep_freed_memory() -> bool:
    """Ask the C library to, else many passes over a batch fault their pages in anew; whether it does. Only glibc knows how."""
    setting = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return setting is not None and bool(setting(TRIM_THRESHOLD, KEPT)) and bool(setting(MMAP_THRESHOLD, BLOCK))


@contextmanager
def rare_collections() -> Generator[None]:
    """Meanwhile Python's collector leaves a step to its end, unless that makes very many objects: `collect_step` is to be called then."""
    before = gc.get_threshold()
    gc.set_threshold(YOUNG, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


def collect_step() -> None:
    """Free the cycles that a step left; what has been there for longer is not looked through."""
    gc.collect(1)
