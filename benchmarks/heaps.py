"""The two ways a heap behaves: pages go back to the system after every step, or stay with the process.

A fresh page costs more than the arithmetic done in it, and which of the two a training has depends on what else it allocates.
"""

from __future__ import annotations

import os
import subprocess
import sys

HEAPS = {
    "default heap": {},
    "pages kept": {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"},
}
_INSIDE = "TRIMTAB_BENCH_HEAP"


def heap() -> str | None:
    """The heap of this process; None: it has to be started again in each."""
    return os.environ.get(_INSIDE)


def in_both_heaps() -> None:
    """Run this script once in each heap, with the same arguments."""
    for name, settings in HEAPS.items():
        subprocess.run([sys.executable, *sys.argv], env={**os.environ, **settings, _INSIDE: name}, check=True)
