"""Where processes beside this one keep sockets and shared memory: a temporary folder that outlives a kill until the next start.

multiprocessing makes a folder of its own and removes it at a proper end only. Ours stands around it and holds a lock, so that
a later start can tell the ones of the dead.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from multiprocessing import process, util
from pathlib import Path

from trimtab.errors import RecordError
from trimtab.records.lock import Lock, is_held

PREFIX = "trimtab-scratch-"
_LAST = -200
"""multiprocessing removes its folder at -100: ours goes after it."""


def claim_scratch() -> None:
    """Have multiprocessing keep its temporary files where a later start finds them; clear those of the dead. Once per process."""
    if process.current_process()._config.get("tempdir") is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return
    folder: Path | None = None
    before = tempfile.tempdir
    try:
        folder, lock = locked_folder(Path(tempfile.gettempdir()))
        util.Finalize(None, _leave, args=(folder, lock, os.getpid()), exitpriority=_LAST)
        tempfile.tempdir = str(folder)
        util.get_temp_dir()
    except (OSError, RecordError):  # then as it would be without us
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        tempfile.tempdir = before


def locked_folder(root: Path) -> tuple[Path, Lock]:
    """A folder of this process, and the lock that says that it lives; folders of the dead beside it are cleared."""
    clear_scratch(root)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root))
    try:
        lock = Lock(folder / "making")
        os.rename(folder / "making", folder / "lock")  # only now: who finds it unheld may clear the folder
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder, lock


def clear_scratch(root: Path) -> None:
    """Remove what killed processes of this user left there."""
    for folder in root.glob(f"{PREFIX}*"):
        with suppress(OSError):
            dead = (folder / "lock").exists() and not is_held(folder / "lock")
            if dead and not folder.is_symlink() and folder.stat().st_uid == os.getuid():
                shutil.rmtree(folder, ignore_errors=True)


def _leave(folder: Path, lock: Lock, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(folder, ignore_errors=True)
        lock.release()
