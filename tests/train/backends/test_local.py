"""Real processes, really killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.train.backends.samplers import begun, gathered, job_of, numbers
from tests.train.backends.scripted import Scripted, Weight, named
from tests.train.children.processes import alive
from tests.train.started import ROOT
from tests.waiting import LIMIT, until
from trimtab.errors import RunError
from trimtab.records.scratch import clear_scratch
from trimtab.train.backends import local
from trimtab.train.backends.engine_pool import Heartbeat
from trimtab.train.backends.local import LocalBackend
from trimtab.train.messages import Job
from trimtab.train.weights.files import SHARED_MEMORY


def test_one_order_reaches_one_sampler_whole_and_the_numbers_are_those_of_one_process(tmp_path: Path) -> None:
    model = Weight()
    alone = Scripted(tmp_path)
    with begun(LocalBackend, tmp_path, model=model) as backend:
        for version in range(3):
            jobs = [job_of(number) for number in range(version * 4, version * 4 + 4)]
            backend.give(jobs)
            theirs = gathered(backend, lambda news: len(news.groups) == 4).groups
            alone.load({"value": model.value.detach()}, version)
            alone.submit(jobs)
            ours = [group for _ in range(3) for group in alone.step()]
            assert [group.job.group for group in theirs] == [group.job.group for group in ours]
            for one, other in zip(theirs, ours, strict=True):
                for left, right in zip(one.samples, other.samples, strict=True):
                    assert left.tokens.tolist() == right.tokens.tolist() == [version] * 3
                    assert left.versions.tolist() == right.versions.tolist()
                    assert left.behavior.tobytes() == right.behavior.tobytes()
            assert (tmp_path / f"order {'-'.join(str(job.group) for job in jobs)} of {backend.pids[0]}").exists()
            model.becomes(version + 1)
            backend.publish(named(model), version + 1)


def test_an_exception_is_told_with_its_traceback_and_a_hopeless_group_stops_the_run(tmp_path: Path) -> None:
    """Group 1 or 2 finishes each time, so the sampler is not exhausted; group 0 is."""
    with begun(LocalBackend, tmp_path, {0: "raise"}, restarts=1) as backend:
        (tmp_path / "spare 0").touch()
        backend.give([job_of(1), job_of(0)])
        until(lambda: numbers(backend.arrived(0.05).groups) == [1], "group 1 done")
        (tmp_path / "spare 0").unlink()
        news = gathered(backend, lambda news: bool(news.lost))
        assert news.lost == (0,)
        assert "Sampler 0 raised ValueError: cannot sample group 0" in news.notes[0]
        assert "scripted.py" in news.notes[0]
        (tmp_path / "spare 0").touch()
        backend.give([job_of(0), job_of(2)])
        until(lambda: numbers(backend.arrived(0.05).groups) == [2], "group 2 done")
        (tmp_path / "spare 0").unlink()
        with pytest.raises(RunError, match=r"(?s)2 deaths with the same groups in hand \(0\).*cannot sample group 0"):
            gathered(backend, lambda news: False)


def test_an_engine_that_cannot_be_built_stops_the_run_and_says_why(tmp_path: Path) -> None:
    with (
        begun(LocalBackend, tmp_path, {-1: "build"}, restarts=0) as backend,
        pytest.raises(
            RunError, match=r"(?s)sampler 0 dead 1 times in a row.*ValueError: no such model.*sampler-0\.log"
        ),
    ):
        gathered(backend, lambda news: False)


def test_a_death_is_seen_though_a_child_of_the_dead_keeps_its_pipe_open(tmp_path: Path) -> None:
    (tmp_path / "orphan").touch()
    with begun(LocalBackend, tmp_path, {0: "orphan"}, restarts=0) as backend:
        backend.give([job_of(0)])
        with pytest.raises(RunError, match="Sampler 0 ended with exit code 3"):
            gathered(backend, lambda news: False)
    (tmp_path / "orphan").unlink()


def test_a_hung_sampler_is_killed_and_a_stopped_one_does_not_keep_the_run_from_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "LEAVE", 0.2)
    monkeypatch.setattr(local, "TERMINATE", 0.2)
    with begun(LocalBackend, tmp_path, {0: "hang"}, patience=3.0) as backend:
        backend.give([job_of(0)])
        hung = backend.pids
        gathered(backend, lambda news: bool(news.lost))
        assert not alive(hung[0])
        backend.give([job_of(0)])
        assert numbers(gathered(backend, lambda news: bool(news.groups)).groups) == [0]

        # An order too long for the pipe, to a sampler that does not read: nobody waits for it for ever.
        os.kill(backend.pids[0], signal.SIGSTOP)
        backend.give([Job(1, np.zeros(10**6, np.int32), 2, seed=1, max_tokens=1)])
        news = gathered(backend, lambda news: bool(news.lost))
        assert news.lost == (1,)
        backend.give([job_of(1)])
        assert numbers(gathered(backend, lambda news: bool(news.groups)).groups) == [1]
        os.kill(backend.pids[0], signal.SIGSTOP)


LEARNER = """
import sys, time
from pathlib import Path
from tests.train.backends.scripted import Factory, Weight, named
from tests.train.backends.samplers import job_of, gathered
from trimtab.train.backends.local import LocalBackend

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    backend = LocalBackend(Factory(folder, {2: "hang"}), hold=8, samplers=2, directory=folder)
    backend.begin(named(Weight()), 0)
    try:
        print(*backend.pids, flush=True)
        while True:
            backend.arrived(1.0)
    except KeyboardInterrupt:
        backend.give([job_of(0), job_of(1)])
        news = gathered(backend, lambda news: len(news.groups) == 2)
        print(len(news.groups), news.notes, *backend.pids, flush=True)
        backend.give([job_of(2)])
        time.sleep(600)
"""


def test_samplers_leave_an_interrupt_to_the_learner_and_die_with_it(tmp_path: Path) -> None:
    script = tmp_path / "learner.py"
    script.write_text(LEARNER)
    root = str(ROOT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, *sys.path])}
    learner = subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True,
    )  # fmt: skip
    try:
        assert learner.stdout is not None
        pids = learner.stdout.readline().split()
        os.killpg(learner.pid, signal.SIGINT)  # as a terminal does, while samplers are still starting
        assert learner.stdout.readline().split() == ["2", "()", *pids]
        assert all(alive(int(pid)) for pid in pids)
        # One of them will not look at its pipe for an hour, the other waits for work.
        until((tmp_path / "hung 2").exists, "a sampler deep in a decode step")
    finally:
        learner.kill()
        learner.wait(LIMIT)
        if learner.stdout:
            learner.stdout.close()
    until(lambda: not any(alive(int(pid)) for pid in pids), "samplers ended")
    clear_scratch(SHARED_MEMORY)  # as the next start does
    assert not [each for each in SHARED_MEMORY.iterdir() if f"-{learner.pid}-" in each.name]


@given(st.lists(st.tuples(st.booleans(), st.floats(0.01, 100.0)), max_size=30))
def test_silence_is_the_time_somebody_looked_at_a_counter_that_stood_still(looks: list[tuple[bool, float]]) -> None:
    silence = Heartbeat(most=10.0)
    pulse, now, expected = 0, 0.0, 0.0
    silence.look(pulse, now)
    for beat, gap in looks:
        pulse, now = pulse + beat, now + gap
        expected = 0.0 if beat else expected + min(gap, 10.0)
        assert silence.look(pulse, now) == pytest.approx(expected)


def test_a_learner_that_was_away_does_not_take_its_samplers_for_hung() -> None:
    """Ctrl-Z stops them all for an hour: the first look afterwards finds the counter where it was."""
    silence = Heartbeat(most=30.0)
    silence.look(5, 0.0)
    assert silence.look(5, 3600.0) == 30.0
    assert silence.look(6, 3601.0) == 0.0
