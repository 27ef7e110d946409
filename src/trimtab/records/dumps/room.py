"""How much of the memory that is free one batch may take, and a running count of what it takes.

A few kilobytes of a compressed file can say any number of tokens. What a file says of its sizes is held against the limit before it is
unpacked; what says nothing beforehand is counted while it is read.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from trimtab.errors import RecordError

SHARE = 4
"""A batch may take one part in so many of what is free: judging it takes as much again, several times over."""
UNKNOWN = 16 << 30
"""Bytes taken as free where the system does not say."""
PACKED = 100
"""How many times its size a file may unpack to. JSON of log-probs comes to 5, of one number again and again to 30."""
SMALL_FILE = 32 << 20
"""Bytes up to which it is of no concern what a file unpacks to."""
TOKEN, ROW = 100, 1_000
"""Bytes that a token takes, and a sequence beside its tokens: times SHARE, what judging four columns of 4 million took (350 a token)."""


class RoomError(RecordError):
    """A file that holds more than the machine has room for."""


def free_memory() -> int:
    """Bytes that this process can still have: of the machine, of its control group, of its own limit."""
    return min([*_of_machine(), *_of_group(), *_of_process()], default=UNKNOWN)


def free_room() -> int:
    """Bytes that one batch may take."""
    return free_memory() // SHARE


def check_room(path: Path, wanted: int, most: int | None = None) -> None:
    """Refuse a file that says it needs more bytes than there is room for."""
    most = free_room() if most is None else most
    if wanted > most:
        raise RoomError(
            f"{path} needs to fit into {_size(most)}, a quarter of the memory that is free here, got {_size(wanted)} or more. {REMEDY}"
        )


def check_unpacked(path: Path, packed: int, unpacked: int) -> None:
    """Refuse a file that unpacks to far more than its own size."""
    if unpacked > max(SMALL_FILE, PACKED * packed):
        raise RoomError(
            f"{path} needs to unpack to at most {PACKED} times its size, got {_size(unpacked)} and more out of {_size(packed)}. "
            "Unpack it where you trust it, and audit what comes out."
        )


REMEDY = "Audit fewer files or sequences at a time, or where more memory is free."


class Meter:
    """A running count of the bytes of a batch."""

    def __init__(self, most: int | None = None) -> None:
        self.most, self.used = free_room() if most is None else most, 0

    def take(self, path: Path, tokens: int, letters: int) -> None:
        """Count a sequence of so many tokens and letters; refused where there is no room for it."""
        self.used += ROW + TOKEN * tokens + letters
        check_room(path, self.used, self.most)


def _size(count: int) -> str:
    return (
        f"{count / 1e9:.1f} GB"
        if count >= 1e9
        else f"{count / 1e6:.1f} MB"
        if count >= 1e6
        else f"{count / 1e3:.1f} kB"
    )


def _of_machine() -> list[int]:
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return [int(line.split()[1]) << 10]
    with suppress(OSError, ValueError, AttributeError):
        return [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2]
    return []


def _of_group() -> list[int]:
    """What is left of the limit of a container."""
    names = (("memory.max", "memory.current"), ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"))
    for most, used in names:
        with suppress(OSError, ValueError):
            folder = Path("/sys/fs/cgroup")
            return [max(0, int((folder / most).read_text()) - int((folder / used).read_text()))]
    return []


def _of_process() -> list[int]:
    """What is left of a limit on the address space."""
    try:
        import resource  # not on Windows

        most = resource.getrlimit(resource.RLIMIT_AS)[0]
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except (ImportError, OSError, ValueError):
        return []
    return [] if most == resource.RLIM_INFINITY else [max(0, most - used)]
