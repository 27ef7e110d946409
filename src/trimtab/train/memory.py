"""Freed memory stays with the process: a step frees and asks for the same megabytes again and again."""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # of mallopt(3)
KEPT = 512 * 2**20
"""Most bytes at the end of the heap that stay."""
BLOCK = 32 * 2**20
"""Blocks up to this size come from the heap."""


def keep_freed_memory() -> bool:
    """Ask the C library to, else many passes over a batch fault their pages in anew; whether it does. Only glibc knows how."""
    setting = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return setting is not None and bool(setting(TRIM_THRESHOLD, KEPT)) and bool(setting(MMAP_THRESHOLD, BLOCK))
