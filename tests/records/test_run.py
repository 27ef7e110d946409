import errno
import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.rows import row
from trimtab.config.training import Train
from trimtab.errors import InUseError, RecordError
from trimtab.records import RunDirectory, free_name
from trimtab.records.files import append_line, json_line, lines_of
from trimtab.records.lock import is_held


def started(path: Path, **record: Any) -> RunDirectory:
    return RunDirectory.create(path / "run", {"steps": 3, "record": record})


def strict(line: str) -> Any:
    def refused(word: str) -> None:
        raise AssertionError(word)

    return json.loads(line, parse_constant=refused)


# metrics and events


@given(st.dictionaries(st.text(max_size=4).filter(lambda name: name != "step"), st.floats(), max_size=4))
def test_metrics_come_back_exactly_and_the_file_is_strict_json(
    tmp_path_factory: Any, metrics: dict[str, float]
) -> None:
    with started(tmp_path_factory.mktemp("runs")) as run:
        run.log(7, metrics)
        (line,) = run.metrics()
    strict((run.path / "metrics.jsonl").read_text())
    assert line.pop("step") == 7
    assert list(line) == list(metrics)
    assert np.array(list(line.values())).tobytes() == np.array(list(metrics.values())).tobytes() or any(
        math.isnan(value) for value in metrics.values()
    )
    assert [math.isnan(value) for value in line.values()] == [math.isnan(value) for value in metrics.values()]


def test_a_metric_called_step_is_refused(tmp_path: Path) -> None:
    with started(tmp_path) as run, pytest.raises(RecordError, match="names other than step"):
        run.log(0, {"step": 1.0})


def test_a_line_is_there_for_a_reader_at_once(tmp_path: Path) -> None:
    run = started(tmp_path)
    run.log(0, {"loss": 1.0})
    assert RunDirectory.read(run.path).metrics() == [{"step": 0, "loss": 1.0}]
    run.close()


def test_events_keep_their_facts_as_strict_json(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.event("warning", "a\ud800b\n", value=math.inf, count=np.int64(3), where=Path("a/b"), inner=[{"x": (1, 2)}])
        (event,) = run.events()
    strict((run.path / "events.jsonl").read_text(encoding="utf-8"))
    assert event.pop("time").endswith("Z")
    assert event == {
        "kind": "warning",
        "message": "a\ufffdb\n",
        "value": "Infinity",
        "count": 3,
        "where": str(Path("a/b")),
        "inner": [{"x": [1, 2]}],
    }


def test_a_torn_last_line_is_left_out_and_cut_off_on_resuming(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.log(0, {"loss": 1.0})
        run.log(1, {"loss": 2.0})
    path = run.path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-4])
    assert [line["step"] for line in RunDirectory.read(run.path).metrics()] == [0]
    with RunDirectory.open(run.path) as again:
        again.log(1, {"loss": 3.0})
        assert again.metrics() == [{"step": 0, "loss": 1.0}, {"step": 1, "loss": 3.0}]
        assert again.events()[0]["kind"] == "torn"


def test_a_damaged_line_before_the_last_is_named(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.log(0, {})
    (run.path / "metrics.jsonl").write_bytes(b'{"step": 0}\n\0\0\0\n{"step": 1}\n')
    with pytest.raises(RecordError, match=r"metrics.jsonl .* line 2"):
        run.metrics()


def test_lines_of_many_threads_do_not_cross(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        threads = [
            threading.Thread(target=lambda: [run.event("note", "x" * 5000) for _ in range(20)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(run.events()) == 80


# settings and status


def test_settings_come_back_as_the_run_had_them(tmp_path: Path) -> None:
    settings = Train().model_dump(mode="json") | {"odd": {"text": "a\0b: #\u2028é", "small": 1e-7, "off": "off"}}
    RunDirectory.create(tmp_path / "run", settings).close()
    run = RunDirectory.read(tmp_path / "run")
    assert run.settings == settings
    odd = run.settings.pop("odd")
    assert Train.from_settings(run.settings) == Train()
    assert odd["small"] == 1e-7


def test_status_says_how_a_run_ended(tmp_path: Path) -> None:
    run = started(tmp_path)
    reader = RunDirectory.read(run.path)
    assert (run.status, reader.status) == ("running", "running")
    run.close("stopped")
    assert reader.status == "stopped"
    with suppress(ValueError), RunDirectory.open(run.path):
        assert reader.status == "running"
        raise ValueError
    assert reader.status == "failed"


def test_nothing_in_run_json_names_the_machine(tmp_path: Path) -> None:
    with started(tmp_path) as run:
        assert set(run.facts) == {"schema", "trimtab", "created", "status"}


# what is refused


def test_an_existing_run_is_not_made_again(tmp_path: Path) -> None:
    started(tmp_path).close()
    with pytest.raises(RecordError, match="holds a run"):
        started(tmp_path)


def test_a_folder_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.tex").touch()
    with pytest.raises(RecordError, match=r"one that holds thesis\.tex"):
        started(tmp_path)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["thesis.tex"]


def test_a_half_made_run_is_named_and_can_be_made_again(tmp_path: Path) -> None:
    started(tmp_path).close()
    (tmp_path / "run" / "run.json").unlink()
    (tmp_path / "run" / ".writing-run.json").write_text("{")
    for door in (RunDirectory.open, RunDirectory.read):
        with pytest.raises(RecordError, match="half-made"):
            door(tmp_path / "run")
    started(tmp_path).close()
    assert RunDirectory.read(tmp_path / "run").status == "done"


@pytest.mark.parametrize(
    ("schema", "remedy"), [(0, "Use the trimtab that wrote it"), (2, "Update trimtab"), ("x", "Use the trimtab")]
)
def test_a_run_of_another_schema_is_refused(tmp_path: Path, schema: object, remedy: str) -> None:
    started(tmp_path).close()
    path = tmp_path / "run" / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": schema}))
    with pytest.raises(RecordError, match=f"needs schema 1, got {schema!r}, by trimtab .*{remedy}"):
        RunDirectory.read(tmp_path / "run")


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"schema": 1}'])
def test_a_damaged_run_json_is_named(tmp_path: Path, text: str) -> None:
    started(tmp_path).close()
    (tmp_path / "run" / "run.json").write_text(text)
    with pytest.raises(RecordError, match=r"run\.json needs .* damaged"):
        RunDirectory.open(tmp_path / "run")


@pytest.mark.parametrize("text", ["a: [", "- 1", "\x00"])
def test_damaged_settings_are_named(tmp_path: Path, text: str) -> None:
    started(tmp_path).close()
    (tmp_path / "run" / "config.yaml").write_text(text)
    with pytest.raises(RecordError, match=r"config\.yaml needs"):
        RunDirectory.open(tmp_path / "run")
    (tmp_path / "run" / "config.yaml").unlink()
    with pytest.raises(RecordError, match=r"config\.yaml cannot be read"):
        RunDirectory.open(tmp_path / "run")


def test_a_path_that_cannot_be_a_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").touch()
    with pytest.raises(RecordError, match="run cannot be written: File exists"):
        started(tmp_path)
    with pytest.raises(RecordError, match="cannot be written: Not a directory"):
        free_name(tmp_path / "run" / "inner", "chain")


def test_what_is_no_run_directory_is_said_to_be_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, said in (("absent", "got nothing there"), ("file", "got a file there"), (".", "without run.json")):
        with pytest.raises(RecordError, match=said):
            RunDirectory.read(tmp_path / name)


def test_a_run_without_its_other_files_is_empty(tmp_path: Path) -> None:
    started(tmp_path).close()
    for name in ("rollouts", "checkpoints"):
        (tmp_path / "run" / name).rmdir()
    with RunDirectory.open(tmp_path / "run") as run:
        assert (run.metrics(), run.events(), run.rollout_table().num_rows) == ([], [], 0)
        run.rewind(0)
        run.rollouts([row()])
        assert run.rollout_table().num_rows == 1


def test_a_reader_and_a_closed_run_write_nothing(tmp_path: Path) -> None:
    run = started(tmp_path)
    reader = RunDirectory.read(run.path)
    run.close()
    run.close("failed")  # the first one counts
    assert reader.status == "done"
    for refused, said in ((reader, "opened to be read"), (run, "closed")):
        for call in (lambda r: r.log(0, {}), lambda r: r.event("a", "b"), lambda r: r.rewind(0), lambda r: r.flush()):
            with pytest.raises(RecordError, match=said):
                call(refused)
    reader.close()
    assert reader.status == "done"


# the lock


def test_a_second_writer_is_refused_with_the_first_ones_number(tmp_path: Path) -> None:
    run = started(tmp_path)
    with pytest.raises(InUseError, match=f"process {os.getpid()} writes it"):
        RunDirectory.open(run.path)
    run.close()
    RunDirectory.open(run.path).close()


OWNER = """
    import os, signal, sys
    from trimtab.records import RunDirectory
    run = RunDirectory.{door}
    if {fork} and os.fork() == 0:
        signal.pause()
    print("ready", flush=True)
    sys.stdin.read()
"""


def owner(door: str, fork: bool = False) -> subprocess.Popen[str]:
    code = textwrap.dedent(OWNER.format(door=door, fork=fork))
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def test_a_live_owner_keeps_others_out_and_a_killed_one_does_not(tmp_path: Path) -> None:
    process = owner(f"create({str(tmp_path / 'run')!r}, {{}})")
    try:
        assert RunDirectory.read(tmp_path / "run").status == "running"
        with pytest.raises(InUseError, match=f"process {process.pid} writes it"):
            RunDirectory.open(tmp_path / "run")
    finally:
        ended(process)
    assert RunDirectory.read(tmp_path / "run").status == "interrupted"
    RunDirectory.open(tmp_path / "run").close()


def test_a_forked_child_does_not_hold_the_lock_of_its_dead_parent(tmp_path: Path) -> None:
    process = owner(f"create({str(tmp_path / 'run')!r}, {{}})", fork=True)
    try:
        with pytest.raises(InUseError):
            RunDirectory.open(tmp_path / "run")
    finally:
        group = os.getpgid(process.pid)
        process.kill()
        process.wait()
    try:
        RunDirectory.open(tmp_path / "run").close()
    finally:
        os.killpg(group, 9)
        ended(process)


def test_a_run_that_could_not_be_made_leaves_the_lock_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(RecordError, match="Make room"):
            started(tmp_path)
    started(tmp_path).close()


# rewinding


def test_rewinding_forgets_the_steps_to_be_made_anew(tmp_path: Path) -> None:
    run = started(tmp_path, every=3)
    for step in range(8):
        run.log(step, {"loss": step / 3})
        run.rollouts([row(step, step)])
    run.flush()
    before = run.metrics()
    for name in ("step-000002", "step-000004", "step-000006", "aside-step-000006", ".replaced-step-000006", "notes"):
        (run.checkpoints / name).mkdir()
    run.rewind(4)
    assert run.metrics() == before[:4]
    assert run.rollout_table().column("step").to_pylist() == [0, 1, 2, 3]
    assert not (run.path / "rollouts" / "step-000006.parquet").exists()
    assert sorted(path.name for path in run.checkpoints.iterdir()) == [
        *(
            "aside-replaced-step-000006",
            "aside-step-000006",
            "aside-step-000006-1",
            "notes",
            "step-000002",
            "step-000004",
        )
    ]
    event = run.events()[-1]
    assert (event["kind"], event["step"], event["metrics"], event["rollouts"]) == ("rewind", 4, 4, 4)
    run.log(4, {"loss": 0.0})
    run.rollouts([row(step, step) for step in (4, 5, 6)])
    run.close()
    assert RunDirectory.read(run.path).rollout_table().column("step").to_pylist() == list(range(7))


def test_rewinding_to_the_end_changes_no_file(tmp_path: Path) -> None:
    with started(tmp_path, every=1) as run:
        run.log(0, {"loss": 1.0})
        run.rollouts([row(0)])
        files = [run.path / "metrics.jsonl", run.path / "rollouts" / "step-000000.parquet"]
        before = [path.stat().st_ino for path in files]
        run.rewind(1)
        assert [path.stat().st_ino for path in files] == before


@pytest.mark.parametrize("fault", range(1, 9))
def test_rewinding_that_breaks_off_can_be_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: int
) -> None:
    run = started(tmp_path, every=2)
    for step in range(6):
        run.log(step, {})
        run.rollouts([row(step)])
    calls = iter(range(1, 1000))

    def broken(real: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if next(calls) == fault:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*arguments)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", broken(os.replace))
        patch.setattr(os, "fsync", broken(os.fsync))
        try:
            run.rewind(3)
        except RecordError as error:
            assert "Input/output error" in str(error)  # noqa: PT017
    run.close()
    with RunDirectory.open(run.path) as again:
        again.rewind(3)
        assert [line["step"] for line in again.metrics()] == [0, 1, 2]
        assert again.rollout_table().column("step").to_pylist() == [0, 1, 2]
        assert not list(run.path.rglob(".writing-*"))


# a full disk


def test_a_full_disk_is_said_once_and_leaves_no_half_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    run = started(tmp_path, every=1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(RecordError, match=r"step-000000.parquet needs room .* Make room, then resume"):
            run.rollouts([row(0)])
    assert list((run.path / "rollouts").iterdir()) == []
    run.close()  # the rows had stayed in memory
    assert RunDirectory.read(run.path).rollout_table().num_rows == 1


def test_a_line_the_disk_took_a_part_of_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = started(tmp_path)
    run.log(0, {"loss": 1.0})
    write = os.write

    def filling(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[:5])

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", filling)
        with pytest.raises(RecordError, match=r"metrics\.jsonl needs room"):
            run.log(1, {"loss": 2.0})
    run.log(2, {"loss": 3.0})
    assert [line["step"] for line in run.metrics()] == [0, 2]
    run.close()


def test_a_real_full_disk_keeps_whole_lines_only(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mounting, check=False, capture_output=True).returncode:
        pytest.skip("mounting is not permitted")
    try:
        line = json_line({"text": "x" * 3000})
        refusals: list[str] = []
        for _ in range(30):
            try:
                append_line(disk / "events.jsonl", line)
            except RecordError as error:
                refusals.append(str(error))
        assert "events.jsonl needs room on its disk: No space left on device" in refusals[0]
        written = lines_of(disk / "events.jsonl")
        assert 10 < len(written) < 30
        assert (disk / "events.jsonl").stat().st_size == len(written) * len(line)
    finally:
        subprocess.run(["umount", disk], check=True)


# names


def test_a_free_name_counts_up_and_is_taken_at_once(tmp_path: Path) -> None:
    names = [free_name(tmp_path / "runs", "chain").name for _ in range(3)]
    assert names == ["chain-0001", "chain-0002", "chain-0003"]
    (tmp_path / "runs" / "chain-0041").mkdir()
    assert free_name(tmp_path / "runs", "chain").name == "chain-0042"
    assert free_name(tmp_path / "runs", "gym:a/../b").name == "gym-a-..-b-0001"
    assert free_name(tmp_path / "runs", "../..").name == "run-0001"
    RunDirectory.create(tmp_path / "runs" / "chain-0001", {}).close()


# power, and folders that go away


def test_metrics_events_and_their_names_are_on_disk_when_a_flush_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: set[int] = set()
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    with started(tmp_path / "above" / "it") as run:
        named = {(tmp_path / "above" / "it").stat().st_ino, (tmp_path / "above").stat().st_ino, tmp_path.stat().st_ino}
        assert named <= synced  # the names of the run and of what was made above it
        run.log(0, {"a": 1.0})
        run.event("kind", "message")
        synced.clear()
        run.flush()
        files = {(run.path / name).stat().st_ino for name in ("metrics.jsonl", "events.jsonl", ".")}
        assert files <= synced


def test_a_run_that_was_removed_is_not_made_again_and_the_first_cause_is_told(tmp_path: Path) -> None:
    gone = pytest.raises(RecordError, match=r"metrics\.jsonl needs its folder, got it removed or moved meanwhile")
    with gone, started(tmp_path) as run:
        run.rollouts([row(0)])
        shutil.rmtree(run.path)
        run.log(0, {"a": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_rows_are_counted_by_step_also_after_a_rewind(tmp_path: Path) -> None:
    with started(tmp_path, every=2) as run:
        run.rollouts([row(step, group=number) for step in range(5) for number in range(3)])
        assert dict(run.rows) == dict.fromkeys(range(5), 3)
    with RunDirectory.open(run.path) as again:
        again.rewind(3)
        assert dict(again.rows) == dict.fromkeys(range(3), 3)
        again.rollouts([row(3)])
        assert again.rows[3] == 1


def test_a_file_that_is_removed_while_it_is_read_has_no_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(tmp_path, every=1) as run:
        run.rollouts([row(0)])
        run.rollouts([row(1)])
    reader = RunDirectory.read(run.path)
    files = reader._rollouts.files()
    monkeypatch.setattr(reader._rollouts, "files", lambda: files)
    files[1].unlink()
    assert reader.rollout_table().column("step").to_pylist() == [0]


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o022, 0o644), (0o077, 0o600)])
def test_every_file_has_the_mode_of_the_umask(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        with started(tmp_path) as run:
            run.log(0, {"a": 1.0})
            run.event("kind", "message")
            run.rollouts([row(0)])
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in run.path.rglob("*") if path.is_file()} == {mode}


# a run directory from somebody else

PLANTED = (
    "lock", "metrics.jsonl", "events.jsonl", "run.json", "config.yaml", "report.html", "rollouts", "checkpoints",
    "samplers", "samplers/sampler-0.log", "samplers/weights", "ranks/rank-1.log",
)  # fmt: skip


def plant(run: Path, name: str, victim: Path) -> None:
    """A link in place of what the run has there, to what it has there, so that nothing is missing."""
    place = run / name
    place.parent.mkdir(exist_ok=True)
    if place.exists():
        place.rename(victim)
    elif place.suffix:
        victim.write_text("precious\n")
    else:
        victim.mkdir()
    place.symlink_to(victim)


@pytest.mark.parametrize("name", PLANTED)
def test_a_run_whose_files_are_links_is_refused_and_what_they_lead_to_is_as_it_was(tmp_path: Path, name: str) -> None:
    with started(tmp_path) as run:
        run.log(0, {"loss": 1.0})
        run.event("note", "a")
    (run.path / "report.html").write_text("page")
    victim = tmp_path / "victim"
    plant(run.path, name, victim)
    before = victim.read_bytes() if victim.is_file() else None
    with pytest.raises(RecordError, match=rf"got {name} as a link to {victim}. Put a copy") as refused:
        RunDirectory.open(run.path)
    assert "\n" not in str(refused.value)
    assert (victim.read_bytes() if victim.is_file() else None) == before


@pytest.mark.parametrize("name", ["lock", "rollouts", "checkpoints"])
def test_a_new_run_is_not_made_where_a_half_made_one_has_links(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "victim").mkdir()
    (tmp_path / "run" / name).symlink_to(tmp_path / "victim")
    with pytest.raises(RecordError, match=f"got {name} as a link"):
        RunDirectory.create(tmp_path / "run", {"steps": 3})


def test_what_is_written_beside_its_place_goes_through_no_link(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    with started(tmp_path) as run:
        (run.path / ".writing-run.json").symlink_to(victim)
        run.remember(world="b")
        assert run.facts["world"] == "b"
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl"])
def test_a_link_put_there_while_the_run_goes_on_takes_no_line(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    run = started(tmp_path)
    (run.path / name).symlink_to(victim)
    with pytest.raises(RecordError, match="needs to be a file, got a link"):
        run.log(0, {"loss": 1.0}) if name == "metrics.jsonl" else run.event("note", "a")
    (run.path / name).unlink()
    run.close()
    assert victim.read_text() == "precious"


def test_a_run_directory_may_itself_be_a_link_and_lie_below_one(tmp_path: Path) -> None:
    (tmp_path / "large").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "large")
    with started(tmp_path / "runs") as run:
        run.log(0, {"loss": 1.0})
    (tmp_path / "mine").symlink_to(tmp_path / "large/run")
    (tmp_path / "large/run/checkpoints/best").symlink_to("step-000002")  # a name of the user's own
    with RunDirectory.open(tmp_path / "mine") as again:
        again.log(1, {"loss": 1.0})
    assert [line["step"] for line in RunDirectory.read(tmp_path / "runs/run").metrics()] == [0, 1]


@pytest.mark.parametrize(
    "line", ['{"loss": 1.0}', '{"step": "7"}', '{"step": 1.5}', '{"step": true}', '{"step": null}']
)
def test_a_line_of_metrics_without_a_step_is_refused_in_one_sentence(tmp_path: Path, line: str) -> None:
    with started(tmp_path) as run:
        run.log(0, {"loss": 1.0})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write(line + "\n")
    with RunDirectory.open(run.path) as again:
        with pytest.raises(
            RecordError, match=r"needs a whole number as step in each line, got .* in line 2"
        ) as refused:
            again.rewind(5)
        assert "\n" not in str(refused.value)
        (again.path / "metrics.jsonl").unlink()


# pipes


NAMES = ("run.json", "config.yaml", "metrics.jsonl", "events.jsonl", "lock", "rollouts/step-000000.parquet")
USES: dict[str, Callable[[Path], Any]] = {
    "read": lambda path: RunDirectory.read(path).metrics(),
    "look": lambda path: (RunDirectory.read(path).status, RunDirectory.read(path).events()),
    "table": lambda path: RunDirectory.read(path).rollout_table(),
    "open": lambda path: RunDirectory.open(path).close(),
    "create": lambda path: RunDirectory.create(path, {"steps": 3}).close(),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_in_a_run_directory_keeps_nobody_waiting(name: str, use: str, tmp_path: Path) -> None:
    with started(tmp_path) as run:
        run.log(0, {"loss": 1.0})
        run.event("start", "begun")
        run.rollouts([row(step=0)])
    (run.path / name).unlink()
    os.mkfifo(run.path / name)
    ends: list[Exception | None] = []

    def work() -> None:
        try:
            USES[use](run.path)
        except RecordError as error:
            ends.append(error)
        else:
            ends.append(None)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(20)
    assert ends


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_line_is_not_written_to_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "metrics.jsonl")
    with pytest.raises(RecordError, match="no ordinary file"):
        append_line(tmp_path / "metrics.jsonl", b"{}\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes here")
def test_a_pipe_is_no_lock_that_is_held(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    held: list[bool] = []
    worker = threading.Thread(target=lambda: held.append(is_held(tmp_path / "lock")), daemon=True)
    worker.start()
    worker.join(20)
    assert held == [False]
