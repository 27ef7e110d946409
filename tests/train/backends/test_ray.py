"""Samplers on a real cluster of three nodes on this machine, really killed."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.train.backends.ray_nodes import Nodes, cluster_of_nodes
from tests.train.backends.samplers import HfFactory, bits, gathered, job_of, numbers, order, tiny
from tests.train.backends.scripted import Factory, Weight, named
from tests.train.children.processes import alive
from tests.train.faults.cuts import trials
from tests.waiting import LIMIT, until
from trimtab.config.rollout import Ray
from trimtab.errors import RunError
from trimtab.train.backends.ray import backend as module
from trimtab.train.backends.ray.actor import ActorReport
from trimtab.train.backends.ray.backend import RayBackend, RaySeat
from trimtab.train.buffer import Buffer
from trimtab.train.messages import Group, Job, Problem, Score
from trimtab.train.staleness import room
from trimtab.train.weights.objects import ObjectWeights, StoredTensor

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster_of_nodes() as found:
        yield found


@contextmanager
def running(
    folder: Path, faults: dict[int, str] | None = None, settings: Ray | None = None, **options: Any
) -> Iterator[RayBackend]:
    """A back-end that has begun, and of which nothing is left afterwards."""
    model = options.pop("model", None) or Weight()
    factory = options.pop("factory", None) or Factory(folder, faults or {})
    backend = RayBackend(factory, settings or Ray(), hold=8, directory=folder, **options)
    backend.begin(named(model), 0)
    pids: list[int] = []
    try:
        yield backend
        pids += backend.pids
    finally:
        backend.close()
    until(lambda: not any(alive(pid) for pid in pids), "actors ended")


def ready(backend: RayBackend, count: int) -> None:
    """Wait until so many samplers are."""
    until(lambda: not backend.arrived(0.05) and sum(seat.ready for seat in backend.seats) >= count, "ready")


def test_an_actor_killed_costs_no_group_and_the_other_goes_on(nodes: Nodes, tmp_path: Path) -> None:
    nodes.grow(1)
    (tmp_path / "hold").touch()
    model = Weight()
    with running(tmp_path, model=model, samplers=2) as backend:
        assert backend.room() == 0  # none is ready yet
        ready(backend, 2)
        assert backend.room() == 16
        backend.give([job_of(number) for number in range(5)])
        assert backend.room() == 11
        first, second = backend.pids
        until(
            lambda: not backend.arrived(0.05) and order(tmp_path, first) | order(tmp_path, second) == set(range(5)),
            "both at work",
        )
        assert order(tmp_path, first) == {0, 2, 4}
        os.kill(second, signal.SIGKILL)
        news = gathered(backend, lambda news: bool(news.lost))
        assert sorted(news.lost) == [1, 3]
        assert f"(process {second}) is gone: its worker process has died" in news.notes[0]
        assert "Restarted; 2 groups are sampled again" in news.notes[0]

        model.becomes(1)
        backend.publish(named(model), 1)
        backend.give([job_of(1), job_of(3)])
        (tmp_path / "hold").unlink()
        news = gathered(backend, lambda news: len(news.groups) == 5)
        assert numbers(news.groups) == [0, 1, 2, 3, 4]
        for group in news.groups:
            for sample in group.samples:
                assert sample.tokens.tolist() == sample.versions.tolist()
                assert sample.tokens.flags.writeable
        assert {group.oldest for group in news.groups if group.job.group in (1, 3)} == {1}
        ready(backend, 2)
        assert second not in backend.pids
        assert not alive(second)


def test_one_actor_and_one_process_agree_to_the_bit(nodes: Nodes, tmp_path: Path) -> None:
    nodes.grow(1)
    model, alone = tiny(0), HfFactory()()
    with running(tmp_path, model=model, factory=HfFactory()) as backend:
        for version in range(3):
            jobs = [
                Job(version * 4 + number, torch.arange(2, 5 + number).int().numpy(), 4, seed=number, max_tokens=12)
                for number in range(4)
            ]
            backend.give(jobs)
            theirs = gathered(backend, lambda news: len(news.groups) == 4)
            alone.load(model.state_dict(), version)
            alone.submit(jobs)
            ours: list[Group] = []
            while alone.pending:
                ours += alone.step()
            assert bits(theirs.groups) == bits(tuple(ours))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
            backend.publish(model.state_dict().items(), version + 1)
            assert bits(theirs.groups) != bits(tuple(_sampled(alone, model, jobs, version)))


def _sampled(engine: Any, model: torch.nn.Module, jobs: list[Job], version: int) -> list[Group]:
    """The same jobs by the weights of now: the control, which has to differ."""
    engine.load(model.state_dict(), version)
    engine.submit(jobs)
    found: list[Group] = []
    while engine.pending:
        found += engine.step()
    return found


def test_a_run_that_loses_a_node_trains_every_group_once_and_counts_what_is_missing(
    nodes: Nodes, tmp_path: Path
) -> None:
    """The whole circle: admission, samplers, buffer, learner."""
    nodes.grow(2, num_cpus=1)
    played(tmp_path, steps=12, strike={4: lambda backend: nodes.lose()})


@pytest.mark.slow
@pytest.mark.timeout(1700)
def test_actors_and_nodes_killed_at_random_moments_lose_nothing(
    nodes: Nodes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dice, count, struck = random.Random(3), min(20, trials()), Counter[str]()

    def blow(backend: RayBackend) -> None:
        pids = [pid for pid in backend.pids if alive(pid)]
        if pids and dice.random() < 0.6:
            struck["actor"] += 1
            os.kill(dice.choice(pids), signal.SIGKILL)
        else:
            struck["node"] += 1
            nodes.lose()
            nodes.grow(2, num_cpus=1)

    while nodes.others:
        nodes.lose()
    nodes.grow(2, num_cpus=1)
    again, dropped = played(tmp_path, steps=3 * count + 3, strike={3 * turn + 2: blow for turn in range(count)})
    told = ", ".join(f"{name} {number}" for name, number in sorted(struck.items()))
    with capsys.disabled():
        sys.stdout.write(
            f"\nkills on a cluster ({told}): survived {count} of {count}, {again} notes, {dropped} groups dropped and counted, "
            "none trained twice, none lost, left-overs 0\n"
        )


def played(folder: Path, *, steps: int, strike: dict[int, Callable[[RayBackend], object]]) -> tuple[int, int]:
    """A run with blows at certain steps; asserts that its books are right. How many deaths were told, and groups dropped."""
    per_step, bound = 4, 2
    model, buffer, trained, notes = Weight(), Buffer(), list[int](), list[str]()
    with running(folder, model=model, samplers=2, restarts=50) as backend:
        ready(backend, 1)
        for version in range(steps):
            batch, struck = None, False
            deadline = time.monotonic() + LIMIT
            while batch is None:
                assert time.monotonic() < deadline
                for _ in range(room(version, per_step, bound, buffer.admitted, buffer.trained, buffer.dropped)):
                    buffer.admit(Problem("", "", ""), job_of(buffer.next))
                jobs = buffer.waiting(backend.room())
                buffer.start(job.group for job in jobs)
                backend.give(jobs)
                if jobs and version in strike and not struck:
                    struck = True
                    strike[version](backend)
                news = backend.arrived(1.0)
                notes += news.notes
                for group in news.groups:
                    buffer.finish(group, [Score(0.0, False)] * 2)
                buffer.lost(news.lost)
                batch = buffer.take(per_step, version, bound)
            for entry in batch:
                assert entry.group is not None
                assert 0 <= version - (entry.group.oldest or 0) <= bound
                assert all(sample.tokens.tolist() == sample.versions.tolist() for sample in entry.group.samples)
                trained.append(entry.job.group)
            model.becomes(version + 1)
            backend.publish(named(model), version + 1)
        if strike:
            until(lambda: any("is gone" in note for note in [*notes, *backend.arrived(0.2).notes]), "word of it")
    assert len(set(trained)) == len(trained) == steps * per_step
    missing = set(range(max(trained) + 1)) - set(trained)
    under_way = {number for number in missing if buffer.entry(number) is not None}
    assert len(missing - under_way) == buffer.dropped
    assert buffer.admitted == len(trained) + len(buffer) + buffer.dropped
    return len(notes), buffer.dropped


def test_an_exception_is_told_with_its_traceback_and_stands_in_the_log_of_the_run(nodes: Nodes, tmp_path: Path) -> None:
    nodes.grow(1)
    with running(tmp_path, {0: "raise"}, restarts=1) as backend:
        backend.give([job_of(0)])
        news = gathered(backend, lambda news: bool(news.lost))
        assert news.lost == (0,)
        assert "raised ValueError: cannot sample group 0" in news.notes[0]
        assert "scripted.py" in news.notes[0]
        assert "ValueError: cannot sample group 0" in (tmp_path / "sampler-0.log").read_text()
        backend.give([job_of(0)])
        with pytest.raises(RunError, match=r"(?s)sampler 0 dead 2 times in a row.*cannot sample group 0"):
            gathered(backend, lambda news: False)


def test_a_hung_actor_is_killed_and_its_log_says_where_it_hung(nodes: Nodes, tmp_path: Path) -> None:
    nodes.grow(1)
    with running(tmp_path, {0: "hang"}, patience=3.0) as backend:
        backend.give([job_of(0)])
        news = gathered(backend, lambda news: bool(news.lost))
        assert "gave no sign of life for" in news.notes[0]
        assert "_fail" in (tmp_path / "sampler-0.log").read_text()
        backend.give([job_of(0)])
        assert numbers(gathered(backend, lambda news: bool(news.groups)).groups) == [0]


def test_a_sampler_without_a_place_gets_nothing_to_do_and_the_user_is_told(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNPLACED", 0.0)
    nodes.grow(1)
    nodes.cluster.add_node(num_cpus=0, resources={"rare": 1})
    with running(tmp_path, settings=Ray(cpus=0, resources={"rare": 1}), samplers=2) as backend:
        backend.give([job_of(number) for number in range(4)])
        news = gathered(backend, lambda news: len(news.groups) == 4 and bool(news.notes))
        assert "samplers wait for a place with {'CPU': 0.0, 'GPU': 0.0, 'rare': 1.0}" in news.notes[0]
        assert backend.room() == 8
    settings = Ray(cpus=0, resources={"unheard of": 1})
    with (
        running(tmp_path, settings=settings, start_patience=0.0) as backend,
        pytest.raises(RunError, match=r"needs a place with .*'unheard of': 1\.0"),
    ):
        gathered(backend, lambda news: False)


def test_one_that_replaces_another_has_as_long_to_find_a_place_as_the_first(tmp_path: Path) -> None:
    """Counted from when it was asked for: a run may be days old by then."""
    now = [0.0]
    backend = RayBackend(Factory(tmp_path, {}), Ray(), hold=8, samplers=2, directory=tmp_path, clock=lambda: now[0])
    ray = SimpleNamespace(cluster_resources=dict, is_initialized=lambda: False)
    backend._connection = SimpleNamespace(ray=ray, close=lambda: None)
    actor = SimpleNamespace(news=SimpleNamespace(remote=lambda: None))
    known = {"log": tmp_path / "log", "patience": 1.0, "start_patience": 1.0, "ray": ray, "actor": actor}
    placed, again = RaySeat(number=0, since=0.0, **known), RaySeat(number=1, since=1000.0, **known)
    placed.report = ActorReport((), 1, b"", "here", 1, "log", False)
    backend.seats[:] = [placed, again]
    now[0] = 1000.0 + module.UNPLACED - 1
    assert backend._places() is None
    now[0] += 1
    assert "1 of 2 samplers wait for a place" in (backend._places() or "")
    assert backend._places() is None, "said once"
    backend.close()


def test_weights_are_stored_once_and_read_without_a_copy(nodes: Nodes) -> None:
    weights = ObjectWeights()
    given = {"a": torch.randn(300, 300), "b": torch.randn(7).bfloat16(), "none": torch.zeros(0, 3)}
    weights.publish(given.items(), 3)
    reader = weights.reader()
    one, other = reader.newest(), reader.newest()
    assert one.version == reader.version == weights.version == 3
    assert all(torch.equal(one.weights[name], tensor) for name, tensor in given.items())
    assert one.weights["a"].data_ptr() == other.weights["a"].data_ptr()
    given["a"] += 1
    assert not torch.equal(one.weights["a"], given["a"])  # what was published stays as it was
    with pytest.raises(RunError, match="above 3, got 3"):
        weights.publish(given.items(), 3)
    with pytest.raises(RunError, match="shapes and types they began with"):
        weights.publish([("a", torch.zeros(2))], 4)
    weights.publish(given.items(), 4)
    reader.take(weights.newest)
    assert torch.equal(reader.newest().weights["a"], given["a"])


def test_a_stored_tensor_is_the_same_tensor() -> None:
    for tensor in (torch.tensor(2.5), torch.arange(6).view(2, 3).t(), torch.tensor([True, False])):
        again = StoredTensor.of(tensor).tensor()
        assert again.dtype == tensor.dtype
        assert again.shape == tensor.shape
        assert torch.equal(again, tensor)
