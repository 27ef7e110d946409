"""Runs cut off at a chosen file operation: by a kill, which loses nothing that was written, or by the power, which does.

File operations are what Python can see of them: opening to write, renaming, removing, making and removing folders, syncing,
and the writes of appended lines. What a library writes by itself (weights) lies between two of them.
"""

from __future__ import annotations

import hashlib
import os
import signal
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from tests.train.small_runs import lines, small, weights
from trimtab.config.training import Train
from trimtab.records.run import RunDirectory
from trimtab.train import checkpoint
from trimtab.train.loop import train

Each = TypeVar("Each")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
NAMES = {"os.rename", "os.remove", "os.rmdir", "os.mkdir"}
Tree = dict[str, bytes | None]
"""Files by their path, with what they hold; folders with None."""


def config() -> Train:
    """A run that saves, evaluates, records and prunes within a fraction of a second."""
    return small(
        steps=6,
        evaluate={"every": 3, "problems": 4},
        checkpoint={"every": 2, "keep": 1},
        record={"every": 3},
        model={"tiny": {"layers": 1, "width": 8, "heads": 1, "mlp": 8}, "warm_start": None},
    )


def trials() -> int:
    """How many trials of each sort to make at most: TRIMTAB_TRIALS; left out, all there are."""
    return int(os.environ.get("TRIMTAB_TRIALS", "100000"))


def spread(given: Sequence[Each], most: int) -> list[Each]:
    """Up to so many of them, evenly spread, the first and the last among them."""
    if len(given) <= most:
        return list(given)
    return [given[round(place * (len(given) - 1) / max(most - 1, 1))] for place in range(most)]


def check_equal(path: Path, whole: Path) -> None:
    """What a run that was cut off and resumed has to be: the undisturbed one, and nothing beside it."""
    run, other = RunDirectory.read(path), RunDirectory.read(whole)
    assert run.status == "done"
    assert repr(lines(path)) == repr(lines(whole)), "metrics differ"
    assert repr(run.rollout_table().to_pydict()) == repr(other.rollout_table().to_pydict()), "rollouts differ"
    assert weights(path).equal(weights(whole)), "weights differ"
    assert leftovers(path) == []
    assert [event for event in run.events() if event["kind"] in ("missing", "changed")] == []


def leftovers(path: Path) -> list[str]:
    """What killed saves leave."""
    return sorted(each.name for each in path.rglob(".*"))


def resumed(path: Path) -> int:
    """Go on with what a cut left, or begin where it left no run; the step it went on from."""
    again = (path / "run.json").exists()
    train(config(), path, resume=again)
    return max((e["step"] for e in RunDirectory.read(path).events() if e["kind"] == "rewind"), default=0)


_hook: Callable[[str, Any], None] | None = None


def _heard(kind: str, arguments: Any) -> None:
    if _hook is not None and (kind in NAMES or (kind == "open" and arguments[2] & WRITING)):
        _hook(kind, arguments)


@contextmanager
def watched(hook: Callable[[str, Any], None], fsync: Callable[[int], None]) -> Generator[None]:
    """Have `hook` called before each file operation, and `fsync` in the place of the system's."""
    global _hook
    if not getattr(sys, "trimtab_hooked", False):
        sys.addaudithook(_heard)  # there for the life of the process
        sys.trimtab_hooked = True  # type: ignore[attr-defined]
    real = os.fsync, os.write

    def write(descriptor: int, data: bytes) -> int:
        hook("write", (descriptor, data))
        return real[1](descriptor, data)

    _hook, os.fsync, os.write = hook, fsync, write  # type: ignore[assignment]
    try:
        yield
    finally:
        _hook, os.fsync, os.write = None, *real


# killed


def in_child(work: Callable[[], None], at: int, fate: Callable[[str, Any], None]) -> bool:
    """Whether a child that does the work met its fate, before operation number `at`, before it was done."""
    child = os.fork()
    if child:
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])
    code = 1
    try:
        calls = iter(range(1, 100_000))

        def count(kind: str, arguments: Any) -> None:
            if next(calls) == at:
                fate(kind, arguments)
                os.kill(os.getpid(), signal.SIGKILL)

        real = os.fsync

        def fsync(descriptor: int) -> None:
            count("fsync", descriptor)
            if fate is not torn:
                real(descriptor)

        with watched(count, fsync):
            work()
        code = 0
    finally:
        os._exit(code)


def torn(kind: str, arguments: Any) -> None:
    """A kill in the middle of a line leaves the first half of it."""
    if kind == "write":
        with open(f"/proc/self/fd/{arguments[0]}", "ab") as file:
            file.write(arguments[1][: len(arguments[1]) // 2])


# without power


@dataclass(eq=False)
class Disk:
    """What of a folder is on the platter: of each file what it held when it was last synced, of each folder its names.

    A file that was never synced is empty, a folder that never was has no names. Nothing of this asks a real disk.
    """

    root: Path
    files: dict[int, bytes] = field(default_factory=dict)
    folders: dict[int, dict[str, tuple[int, bool]]] = field(default_factory=dict)
    held: list[int] = field(default_factory=list)
    """Open descriptors: the number of a file that is gone must not become another's."""

    def settle(self) -> None:
        """Everything that is there now is on the platter."""
        for folder, _, names in os.walk(self.root):
            self._sync(Path(folder))
            for name in names:
                self._sync(Path(folder) / name)

    def fsync(self, descriptor: int) -> None:
        self._sync(Path(f"/proc/self/fd/{descriptor}"))

    def close(self) -> None:
        for descriptor in self.held:
            os.close(descriptor)
        self.held.clear()

    def after_cut(self, *, names: bool) -> Tree:
        """The folder as a cut would leave it now; `names`: where the names were lucky and only the bytes are lost."""
        return self._walked(self.root, self.root.stat().st_ino, "", names)

    def _sync(self, path: Path) -> None:
        found = path.stat()
        if stat.S_ISDIR(found.st_mode):
            self.folders[found.st_ino] = dict(self._names(path))
        else:
            self.files[found.st_ino] = path.read_bytes()
        self.held.append(os.open(path, os.O_RDONLY))

    def _names(self, folder: Path) -> Generator[tuple[str, tuple[int, bool]]]:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.inode() not in self.files and entry.inode() not in self.folders:
                    self.held.append(os.open(entry.path, os.O_RDONLY))
                yield entry.name, (entry.inode(), entry.is_dir())

    def _walked(self, folder: Path, number: int, before: str, names: bool) -> Tree:
        found = dict(self._names(folder)) if names else self.folders.get(number, {})
        tree: Tree = {}
        for name, (inner, is_folder) in sorted(found.items()):
            if is_folder:
                tree[f"{before}{name}"] = None
                tree |= self._walked(folder / name, inner, f"{before}{name}/", names)
            else:
                tree[f"{before}{name}"] = self.files.get(inner, b"")
        return tree


@dataclass(frozen=True, eq=False)
class Cut:
    """One moment of a run at which the power may go."""

    tree: Tree
    saved: int
    """The newest checkpoint that had been saved by then."""

    def place(self, root: Path) -> None:
        """Put there what the cut left."""
        for name, content in self.tree.items():
            if content is None:
                (root / name).mkdir(parents=True, exist_ok=True)
            else:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(content)


def cuts_of(
    root: Path, work: Callable[[], object], monkeypatch: Any, *, settled: bool = False
) -> tuple[list[Cut], int]:
    """What cuts before each file operation of the work leave in the folder, each that differs once; and how many moments there were."""
    disk, moments = Disk(root), 0
    found: dict[str, Cut] = {}
    saved = [0]
    if settled:
        disk.settle()
        saved[0] = max((int(path.name[5:]) for path in root.glob("*/checkpoints/step-*")), default=0)
    save = checkpoint.save

    def noted(folder: Path, step: int, **rest: Any) -> Path:
        path = save(folder, step, **rest)
        saved[0] = max(saved[0], step)
        return path

    def look(kind: str, arguments: Any) -> None:
        nonlocal moments
        global _hook  # noqa: PLW0603
        before, _hook = _hook, None  # what is opened here is no operation of the run
        moments += 1
        for names in (False, True):
            tree = disk.after_cut(names=names)
            mark = hashlib.sha256(repr(sorted(tree.items())).encode() + bytes([saved[0] % 256])).hexdigest()
            found.setdefault(mark, Cut(tree, saved[0]))
        _hook = before

    def fsync(descriptor: int) -> None:
        look("fsync", descriptor)
        disk.fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save", noted)
        with watched(look, fsync):
            work()
        look("end", ())
    disk.close()
    return list(found.values()), moments
