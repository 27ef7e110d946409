"""One writer per run directory: a lock the system frees when its owner dies, however it dies."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from trimtab.config.safe_yaml import opened
from trimtab.errors import InUseError
from trimtab.records.files import disk_error, open_ordinary

try:
    import fcntl
except ImportError:  # Windows: two writers are not told apart there
    fcntl = None

_held: set[int] = set()
_TRIES = 10
_PAUSE = 0.02


class Lock:
    """The right to write a run directory."""

    def __init__(self, path: Path) -> None:
        try:
            self._descriptor = open_ordinary(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise disk_error(path, error) from error
        try:
            if not _take(self._descriptor):
                raise InUseError(
                    f"{path.parent} needs to be written by one process, got a second one: process {_owner(path)} writes it. "
                    "Wait for that process, end it, or choose another directory."
                )
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(self._descriptor)
            raise disk_error(path, error) from error
        except BaseException:
            os.close(self._descriptor)
            raise
        _held.add(self._descriptor)

    def release(self) -> None:
        """Let others write; the file stays, as its name may already be open elsewhere."""
        if self._descriptor in _held:
            _held.discard(self._descriptor)
            os.close(self._descriptor)


def is_held(path: Path) -> bool:
    """Whether a process writes the run whose lock this is."""
    if fcntl is None:
        return False
    try:
        file = opened(path)
    except OSError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


def _take(descriptor: int) -> bool:
    """Whether the lock could be had. A reader that asks `is_held` has it for a moment, hence the second tries."""
    if fcntl is None:
        return True
    for _ in range(_TRIES):
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        time.sleep(_PAUSE)
    return False


def _owner(path: Path) -> str:
    with suppress(OSError, ValueError):
        return str(int(path.read_text()))
    return "(number unknown)"


def _release_in_child() -> None:
    """A forked child would hold its parent's locks beyond the parent's death. Closing here leaves the parent's in force."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
