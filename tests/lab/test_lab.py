"""Running a lab: parallel equals serial, what is done stays, what fails is said, nothing is left behind."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab.mini import OVERRIDES, SilentDisplay, plan
from tests.train.small_runs import lines, weights
from tests.waiting import LIMIT, until
from trimtab.errors import ConfigError, InUseError, RunError
from trimtab.lab import work
from trimtab.lab.cell import cell_state
from trimtab.lab.lab import run_lab
from trimtab.lab.results import CellResult, LabResults, read_results
from trimtab.lab.scenario import Scenario
from trimtab.records.lock import is_held
from trimtab.records.run import RunDirectory
from trimtab.train.loop import train


class Told(SilentDisplay):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.done = self.changed = 0
        self.ends = list[str]()

    def begin(self, done: int, changed: int, cells: int) -> None:
        self.done, self.changed = done, changed

    def end(self, name: str, entry: CellResult | None) -> None:
        self.ends += [] if entry is None else [name]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, LabResults]:
    """A lab with two cells at a time."""
    path = tmp_path_factory.mktemp("lab") / "parallel"
    return path, run_lab(plan(), path, jobs=2)


def timeless(book: LabResults) -> list[CellResult]:
    return sorted((each.but(seconds=0.0, ran=None) for each in book.entries), key=lambda each: each.name)


def test_every_cell_has_a_run_directory_a_verdict_and_curves(whole: tuple[Path, LabResults]):
    path, book = whole
    assert [each.name for each in timeless(book)] == [
        *(f"control--off--seed-{seed}" for seed in (0, 1)),
        *(f"quantized--{name}--seed-{seed}" for name in ("geo-rs", "off") for seed in (0, 1)),
    ]
    for each in book.entries:
        assert each.status == "done"
        assert each.verdict is not None
        assert [step for step, _ in each.accuracy] == [0, 2, 4]
        assert {"mismatch", "grad_norm", "kept", "kept_right", "kept_wrong", "ess", "entropy"} <= each.curves.keys()
        assert RunDirectory.read(path / "cells" / each.name).status == "done"
        assert each.ran is not None
        assert each.ran[0] < each.ran[1]
    assert "torch" in book.machine
    assert read_results(path) == book


def test_scenarios_differ_only_where_they_say(whole: tuple[Path, LabResults]):
    path, book = whole
    settings = {each.name: RunDirectory.read(path / "cells" / each.name).settings for each in book.entries}
    one, other = settings["control--off--seed-0"], settings["quantized--off--seed-0"]
    assert (one["rollout"].pop("precision"), other["rollout"].pop("precision")) == ("fp32", "int4")
    assert one == other


def test_int4_samples_differ_from_the_learner_and_the_controls_do_not(whole: tuple[Path, LabResults]):
    _, book = whole
    assert all(each.most["mismatch"] < 1e-9 for each in book.of("control"))
    assert all(each.most["mismatch"] > 1e-4 for each in book.of("quantized"))


def test_parallel_equals_serial_and_a_plain_run_bit_for_bit(whole: tuple[Path, LabResults], tmp_path: Path):
    path, book = whole
    serial = run_lab(plan(), tmp_path / "serial", jobs=1)
    assert timeless(serial) == timeless(book)
    for each in book.entries:
        one, other = path / "cells" / each.name, tmp_path / "serial" / "cells" / each.name
        assert repr(lines(one)) == repr(lines(other))
        assert weights(one).equal(weights(other))
    cell = plan().cells()[-1]
    train(cell.config, tmp_path / "plain")
    assert weights(tmp_path / "plain").equal(weights(path / "cells" / cell.name))


def test_what_is_done_stays_and_what_is_half_or_changed_is_run_again(whole: tuple[Path, LabResults], tmp_path: Path):
    path, book = whole
    shutil.copytree(path, tmp_path / "lab")
    cells = tmp_path / "lab" / "cells"
    half, changed, gone = "quantized--off--seed-0", "quantized--geo-rs--seed-1", "control--off--seed-1"
    (cells / half / "metrics.jsonl").write_text((cells / half / "metrics.jsonl").read_text()[:-400])
    config = cells / changed / "config.yaml"
    config.write_text(config.read_text().replace("lr: 0.001", "lr: 0.002"))
    shutil.rmtree(cells / gone)
    by_name = {cell.name: cell for cell in plan().cells()}
    assert [cell_state(by_name[name], cells / name) for name in (half, changed, gone)] == ["half", "changed", "absent"]
    told = Told()
    again = run_lab(plan(), tmp_path / "lab", jobs=2, display=told)
    assert (told.done, told.changed) == (3, 1)
    assert sorted(told.ends) == sorted([half, changed, gone])
    assert timeless(again) == timeless(book)
    untouched = Told()
    assert timeless(run_lab(plan(), tmp_path / "lab", jobs=2, display=untouched)) == timeless(book)
    assert untouched.ends == []


def test_another_version_of_the_package_makes_every_cell_stale(
    whole: tuple[Path, LabResults], monkeypatch: pytest.MonkeyPatch
):
    path, _ = whole
    cell = plan().cells()[0]
    assert cell_state(cell, path / "cells" / cell.name) == "done"
    monkeypatch.setattr("trimtab.lab.cell.trimtab_version", lambda: "another")
    assert cell_state(cell, path / "cells" / cell.name) == "changed"


def test_a_later_plan_adds_to_the_tables_and_another_length_begins_anew(whole: tuple[Path, LabResults], tmp_path: Path):
    path, book = whole
    shutil.copytree(path, tmp_path / "lab")
    more = run_lab(plan("token-tis", seeds=1), tmp_path / "lab", jobs=2)
    assert len(more.entries) == len(book.entries) + 1
    assert {"off", "geo-rs", "token-tis"} == set(more.corrections)
    longer = run_lab(plan("off", seeds=1, steps=5), tmp_path / "lab", jobs=2)
    assert {each.steps for each in longer.entries} == {5}


def test_a_cell_that_fails_is_recorded_with_its_message_and_stops_nothing(tmp_path: Path):
    broken = Scenario(
        name="broken",
        train={"learner": {"patience": 1}, "task": {"rewards": [{"verifier": "regex", "pattern": "(z)"}]}},
    )
    given = plan("off", seeds=1)
    made = run_lab(
        type(given)([broken, *given.scenarios], given.candidates, [0], 4, given.base), tmp_path / "lab", jobs=2
    )
    by_name = {each.name: each for each in made.entries}
    failed = by_name["broken--off--seed-0"]
    assert failed.status == "failed"
    assert failed.word == "failed"
    assert "brought no update" in str(failed.message)
    assert by_name["quantized--off--seed-0"].status == "done"
    assert read_results(tmp_path / "lab") == made


def test_a_lab_is_lockstep_and_evaluated():
    given = plan("off")
    for setting, message in (({"backend": "local"}, "lockstep"), ({"evaluate": None}, "evaluate")):
        wrong = type(given)(given.scenarios, given.candidates, [0], 4, {**given.base, **setting})
        with pytest.raises(ConfigError, match=message):
            wrong.cells()


def test_two_labs_do_not_share_a_folder(tmp_path: Path):
    class Second(SilentDisplay):
        def begin(self, done: int, changed: int, cells: int) -> None:
            with pytest.raises(InUseError):
                run_lab(plan("off", seeds=1), tmp_path / "lab", jobs=1)

    run_lab(plan("off", seeds=1, scenarios=()), tmp_path / "lab", jobs=1, display=Second())


Started = Callable[[Path, int], "subprocess.Popen[bytes]"]


@pytest.fixture
def started() -> Iterator[Started]:
    """Starts a lab in a process group of its own; what is left of it at the end of the test is killed."""
    labs: list[subprocess.Popen[bytes]] = []

    def start(path: Path, steps: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "trimtab.cli", "lab", "--out", str(path), "--steps", str(steps)]
        command += ["--seeds", "2", "--scenario", "quantized", "--correction", "off", "--jobs", "2", *OVERRIDES]
        labs.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)
        )
        return labs[-1]

    yield start
    for lab in labs:
        if members(lab.pid):
            os.killpg(lab.pid, signal.SIGKILL)
        lab.communicate()


def under_way(path: Path) -> list[Path]:
    return [each.parent for each in path.glob("cells/*/metrics.jsonl") if is_held(each.parent / "lock")]


def members(group: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "-g", str(group)], capture_output=True, text=True, check=False).stdout
    return [int(each) for each in found.split()]


def test_a_lab_killed_without_warning_leaves_no_process_and_goes_on_to_the_same_end(tmp_path: Path, started: Started):
    by_name = {cell.name: cell for cell in plan("off", steps=30).cells()}
    lab = started(tmp_path / "lab", 30)
    until(lambda: under_way(tmp_path / "lab"))
    going = under_way(tmp_path / "lab")
    os.kill(lab.pid, signal.SIGKILL)
    lab.wait()
    until(lambda: not members(lab.pid))
    assert [cell_state(by_name[path.name], path) for path in going] == ["half"] * len(going)  # they did not run on
    whole = run_lab(plan("off", steps=30), tmp_path / "whole", jobs=2)
    resumed = run_lab(plan("off", steps=30), tmp_path / "lab", jobs=2)
    assert timeless(resumed) == timeless(whole)


def test_ctrl_c_stops_every_process_and_says_how_to_go_on(tmp_path: Path, started: Started):
    lab = started(tmp_path / "lab", 4000)
    until(lambda: under_way(tmp_path / "lab"))
    os.killpg(lab.pid, signal.SIGINT)  # as a terminal does
    _, said = lab.communicate(timeout=LIMIT)
    assert lab.returncode == 130
    assert b"run the same command again to continue" in said
    assert b"Traceback" not in said
    until(lambda: not members(lab.pid))


class Forks:
    """A fork server that dies a number of times while it is asked."""

    def __init__(self, deaths: int) -> None:
        self.deaths, self.started = deaths, 0

    def Pipe(self, duplex: bool = True) -> object:  # noqa: N802
        return multiprocessing.Pipe(duplex)

    def Process(self, **given: object) -> Forks:  # noqa: N802
        return self

    def start(self) -> None:
        if self.deaths:
            self.deaths -= 1
            raise EOFError("unexpected EOF")
        self.started += 1


def test_a_fork_server_that_dies_is_begun_again_and_one_that_always_does_is_said(tmp_path: Path):
    job = work.LabJob("name", "cell", {}, tmp_path / "run", tmp_path / "log")
    once = Forks(1)
    work._start(once, job).line.close()
    assert once.started == 1
    with pytest.raises(RunError, match=r"The lab needs to start processes, got EOFError .* The same command goes on"):
        work._start(Forks(9), job)


def test_a_worker_whose_lab_gave_it_up_ends():
    ours, theirs = multiprocessing.Pipe(duplex=False)
    child = os.fork()
    if not child:
        ours.close()
        work._Line(theirs).begin(Path(), 0)
        time.sleep(0.05)
        while True:
            work._Line(theirs).step(1, {})
    theirs.close()
    ours.close()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
