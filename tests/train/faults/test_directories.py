"""Run directories that are in use, finished, of another schema, damaged, or on a full disk."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.train.small_runs import lines, weights
from tests.train.started import Launcher, check_records, surroundings
from trimtab.records.run import RunDirectory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


def refused(launcher: Launcher, *words: str) -> str:
    """What a command that is refused says."""
    run = launcher.train(*words)
    assert run.code() == 2, run.errors
    assert "Traceback" not in run.errors
    return run.errors


def test_a_run_in_use_or_finished_says_so(launcher: Launcher) -> None:
    settings, path = launcher.settings({"evaluate": None}), launcher.folder / "run"
    run = launcher.train(settings, "steps=100000", "--out", "run")
    run.after(1)
    assert "needs to be new, got a folder that holds a run. Resume it, or choose another." in refused(
        launcher, settings, "--out", "run"
    )
    assert f"process {run.pid} writes it. Wait for that process, end it, or choose" in refused(
        launcher, "--resume", "run"
    )
    run.send(signal.SIGTERM)
    assert run.code() == 143
    steps = RunDirectory.read(path).metrics()[-1]["step"] + 1
    check_records(path, steps)

    longer = launcher.train("--resume", "run", f"steps={steps + 2}")
    assert longer.code() == 0, longer.errors
    assert check_records(path, steps + 2).settings["steps"] == steps + 2  # so that a later --resume knows
    again = launcher.train("--resume", "run")
    assert again.code() == 0
    assert f"The run is finished: all {steps + 2} steps are done. Go further with steps=N" in again.errors
    assert check_records(path, steps + 2).status == "done"
    assert "Only steps, learner.device, learner.ranks, learner.shard can be changed." in refused(
        launcher, "--resume", "run", "learner.lr=1"
    )
    assert f"--resume needs steps of {steps + 2} or more, got 2." in refused(launcher, "--resume", "run", "steps=2")
    check_records(path, steps + 2)


def test_what_is_not_a_run_of_this_schema_is_refused(launcher: Launcher) -> None:
    run = launcher.folder / "run"
    RunDirectory.create(run, {"steps": 3}).close()
    facts = json.loads((run / "run.json").read_text())
    for schema, remedy in ((0, "Use the trimtab that wrote it."), (99, "Update trimtab.")):
        (run / "run.json").write_text(json.dumps(facts | {"schema": schema, "trimtab": "7.7"}))
        assert f"run needs schema 1, got {schema}, by trimtab 7.7. {remedy}" in refused(launcher, "--resume", "run")
    (run / "run.json").unlink()
    assert "got a half-made run. Start it again there." in refused(launcher, "--resume", "run")
    (launcher.folder / "other").mkdir()
    assert "needs to be a run directory, got a folder without run.json." in refused(launcher, "--resume", "other")
    assert "needs to be a run directory, got nothing there." in refused(launcher, "--resume", "nothing")
    (launcher.folder / "other/notes.txt").touch()
    said = refused(launcher, "--out", "other")
    assert "got one that holds notes.txt. Choose another." in said
    assert "--resume" not in said  # there is no run to go on with


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "model/model.safetensors": lambda data: data[: len(data) // 2],
    "state.json": lambda data: data.replace(b"1", b"2"),
    "manifest.json": lambda data: b"",
    "optimizer.safetensors": lambda data: data[:-1] + bytes([data[-1] ^ 1]),
}


def test_damaged_checkpoints_are_passed_over_loudly(launcher: Launcher) -> None:
    whole = launcher.folder / "whole"
    assert launcher.train(launcher.settings(), "--out", "whole").code() == 0
    for place, (name, harm) in enumerate(DAMAGE.items()):
        path = launcher.folder / f"run-{place}"
        shutil.copytree(whole, path)
        newest = path / "checkpoints/step-000006" / name
        newest.write_bytes(harm(newest.read_bytes()))
        run = launcher.train("--resume", path.name)
        assert run.code() == 0, run.errors
        assert f"step-000006 is damaged and skipped for the checkpoint before it: {name}" in run.errors
        assert "continuing at step 3" in run.errors
        check_records(path, 6)
        assert repr(lines(path)) == repr(lines(whole))
        assert weights(path).equal(weights(whole))
        assert sum(line["train/updates"] for line in lines(path)[3:]) > 0


def test_without_a_whole_checkpoint_a_run_begins_anew_loudly(launcher: Launcher) -> None:
    path = launcher.folder / "run"
    assert launcher.train(launcher.settings(), "--out", "run").code() == 0
    expected = repr(lines(path))
    for folder in path.glob("checkpoints/step-*"):
        (folder / "arrays.safetensors").write_bytes(b"")
    run = launcher.train("--resume", "run")
    assert run.code() == 0, run.errors
    assert run.errors.count("is damaged and skipped") == 2
    assert "There is no whole checkpoint: the run begins at step 0." in run.errors
    check_records(path, 6)
    assert repr(lines(path)) == expected


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of half a megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", folder]
    mounted = subprocess.run(command, capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting a small disk needs root: {mounted.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.mark.parametrize("kept", [1, 1000])
def test_a_full_disk_is_said_and_room_lets_the_run_go_on(launcher: Launcher, small_disk: Path, kept: int) -> None:
    """With few checkpoints kept, rollouts fill the disk; with many, the checkpoints do."""
    keeping = {"checkpoint": {"every": 1 if kept > 1 else 1000, "keep": kept}, "evaluate": None, "record": {"every": 5}}
    run = launcher.train(launcher.settings(keeping), "steps=100000", "--out", "disk/run")
    assert run.code() == 2
    said = run.errors.split("error: ")[1]
    assert "needs room on its disk: No space left on device. Make room, then resume the run." in said
    assert ("checkpoints" in said) == (kept > 1)
    assert "Traceback" not in run.errors
    subprocess.run(["mount", "-o", "remount,size=16m", small_disk], check=True)
    steps = len(lines(small_disk / "run")) + 2
    again = launcher.train("--resume", "disk/run", f"steps={steps}")
    assert again.code() == 0, again.errors
    assert check_records(small_disk / "run", steps).status == "done"


@pytest.mark.parametrize("files", [5, 6, 8])
def test_too_few_open_files_are_said_in_one_sentence(launcher: Launcher, files: int) -> None:
    """Which file is the first that the system refuses is not ours to say; a traceback is never the answer."""
    script = launcher.folder / "few.py"
    script.write_text(
        "import resource, sys\nfrom trimtab.cli import main\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\nmain(sys.argv[1:])\n"
    )
    words = ["train", launcher.settings({"evaluate": None, "steps": 1}), "--out", "run"]
    done = subprocess.run(
        [sys.executable, str(script), *words],
        check=False,
        capture_output=True,
        text=True,
        cwd=launcher.folder,
        env=surroundings(launcher.folder),
    )
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2)
    if done.returncode:
        assert "open files" in done.stderr.split("error: ")[1]
