"""Runs cut off at file operations, by a kill or by the power, and resumed: equal to one that was not, with nothing left over."""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.train.faults.cuts import (
    Cut,
    check_equal,
    config,
    cuts_of,
    in_child,
    resumed,
    spread,
    torn,
    trials,
    watched,
)
from trimtab.train.loop import train

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]
FEW = 10
"""Trials of a kind in the tests of every day; `make test-slow` makes all."""
Say = Callable[[str], None]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run that nothing disturbs."""
    path = tmp_path_factory.mktemp("whole") / "run"
    train(config(), path)
    return path


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    def said(text: str) -> None:
        with capsys.disabled():
            sys.stdout.write(f"\n{text}\n")

    return said


def power_cuts(whole: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, most: int) -> str:
    """Cut the power of a run, and of a run that is resumed after such a cut; the account of it."""
    root = folder / "disk"
    root.mkdir()
    first, moments = cuts_of(root, lambda: train(config(), root / "run"), monkeypatch)
    tried = [_survives(cut, whole, folder / f"first-{number}") for number, cut in enumerate(spread(first, most))]
    # resumed from a checkpoint with steps after it, and from none: a cut while what is too much is removed
    late = [cut for cut in first if cut.saved == 4][-1]
    early = [cut for cut in first if cut.saved == 0][-1]
    second: list[Cut] = []
    for number, cut in enumerate((late, early)):
        again = folder / f"again-{number}"
        cut.place(again)
        found, more = cuts_of(again, lambda again=again: resumed(again / "run"), monkeypatch, settled=True)
        second, moments = second + found, moments + more
    tried += [_survives(cut, whole, folder / f"second-{number}") for number, cut in enumerate(spread(second, most))]
    return f"power cuts: {moments} moments, {len(first) + len(second)} states, survived {sum(tried)} of {len(tried)}, lost 0, left-overs 0"


def _survives(cut: Cut, whole: Path, folder: Path) -> bool:
    cut.place(folder)
    step = resumed(folder / "run")
    assert step >= cut.saved, f"the checkpoint of step {cut.saved} is lost: it went on from {step}"
    check_equal(folder / "run", whole)
    shutil.rmtree(folder)
    return True


def kills(whole: Path, folder: Path, most: int) -> str:
    """Kill a run before its n-th file operation, then the run that resumes it before its n-th."""
    total = _operations(lambda: train(config(), folder / "counted"))
    points = spread(range(1, total + 1), most)
    for number in points:
        path = folder / f"killed-{number}"
        assert in_child(lambda path=path: train(config(), path) and None, number, torn), (
            f"operation {number} of {total}"
        )
        resumed(path)
        check_equal(path, whole)
        shutil.rmtree(path)
    half = folder / "half"
    assert in_child(lambda: train(config(), half) and None, total * 3 // 4, torn)
    shutil.copytree(half, folder / "counted-again")
    more = _operations(lambda: resumed(folder / "counted-again") and None)
    again = spread(range(1, more + 1), most)
    for number in again:
        path = folder / f"again-{number}"
        shutil.copytree(half, path)
        assert in_child(lambda path=path: resumed(path) and None, number, torn), f"operation {number} of {more}"
        resumed(path)
        check_equal(path, whole)
        shutil.rmtree(path)
    tried = len(points) + len(again)
    return f"kills at file operations: {total} + {more} operations, survived {tried} of {tried}, left-overs 0"


def _operations(work: Callable[[], Any]) -> int:
    """How many file operations the work has."""
    count = [0]

    def one(kind: str, arguments: Any) -> None:
        count[0] += 1

    with watched(one, lambda descriptor: one("fsync", descriptor)):
        work()
    return count[0]


def test_a_run_survives_power_cuts_with_all_it_had_saved(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    power_cuts(whole, tmp_path, monkeypatch, FEW)


def test_a_run_survives_kills_at_file_operations(whole: Path, tmp_path: Path) -> None:
    kills(whole, tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_survives_a_power_cut_at_every_file_operation(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Say
) -> None:
    say(power_cuts(whole, tmp_path, monkeypatch, trials()))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_survives_a_kill_at_every_file_operation(whole: Path, tmp_path: Path, say: Say) -> None:
    say(kills(whole, tmp_path, trials()))


SHUTDOWN = 0x8004587D
"""FS_IOC_SHUTDOWN."""
WITHOUT_LOG = 2
"""Its flag for: write nothing more, not even the journal."""


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, to be shut down in the middle."""
    image, folder = tmp_path / "image", tmp_path / "mounted"
    folder.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    for command in (["mkfs.ext4", "-q", "-F", str(image)], ["mount", "-o", "loop", str(image), str(folder)]):
        if shutil.which(command[0]) is None or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip(f"{command[0]} is not permitted or not there")
    yield folder
    subprocess.run(["umount", "-l", folder], check=False)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_run_survives_power_cuts_of_a_real_file_system(whole: Path, ext4: Path, say: Say) -> None:
    total = _operations(lambda: train(config(), ext4 / "counted"))
    points = spread(range(1, total + 1), min(30, trials()))
    for number in points:

        def off(kind: str, arguments: Any) -> None:
            descriptor = os.open(ext4, os.O_RDONLY)
            fcntl.ioctl(descriptor, SHUTDOWN, ctypes.c_uint32(WITHOUT_LOG))

        path = ext4 / f"cut-{number}"
        assert in_child(lambda path=path: train(config(), path) and None, number, off), f"operation {number} of {total}"
        subprocess.run(["umount", ext4], check=True)
        subprocess.run(["mount", "-o", "loop", ext4.parent / "image", ext4], check=True)
        resumed(path)
        check_equal(path, whole)
        shutil.rmtree(path)
    say(f"power cuts of ext4: survived {len(points)} of {len(points)}, lost 0, left-overs 0")
