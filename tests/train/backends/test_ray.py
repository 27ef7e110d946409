"""Samplers on a real cluster of three nodes on this machine, really killed."""

from __future__ import annotations

import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.train.backends.ray_nodes import Nodes, cluster_of_nodes
from tests.train.backends.samplers import begun, gathered, job_of, played
from tests.train.backends.scripted import Factory
from tests.train.children.processes import alive
from tests.train.faults.cuts import trials
from trimtab.config.rollout import Ray
from trimtab.errors import RunError
from trimtab.train.backends.ray import backend as module
from trimtab.train.backends.ray.actor import ActorReport
from trimtab.train.backends.ray.backend import RayBackend, RaySeat
from trimtab.train.weights.objects import ObjectWeights, StoredTensor

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


def start(factory: Any, settings: Ray | None = None, **options: Any) -> RayBackend:
    return RayBackend(factory, settings or Ray(), **options)


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    with cluster_of_nodes() as found:
        yield found


def test_a_run_that_loses_a_node_trains_every_group_once_and_counts_what_is_missing(
    nodes: Nodes, tmp_path: Path
) -> None:
    """The whole circle: admission, samplers, buffer, learner."""
    nodes.grow(2, num_cpus=1)
    played(start, tmp_path, steps=12, strike={4: lambda backend: nodes.lose()})


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
    again, dropped = played(start, tmp_path, steps=3 * count + 3, strike={3 * turn + 2: blow for turn in range(count)})
    told = ", ".join(f"{name} {number}" for name, number in sorted(struck.items()))
    with capsys.disabled():
        sys.stdout.write(
            f"\nkills on a cluster ({told}): survived {count} of {count}, {again} notes, {dropped} groups dropped and counted, "
            "none trained twice, none lost, left-overs 0\n"
        )


def test_a_sampler_without_a_place_gets_nothing_to_do_and_the_user_is_told(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "UNPLACED", 0.0)
    nodes.grow(1)
    nodes.cluster.add_node(num_cpus=0, resources={"rare": 1})
    with begun(start, tmp_path, settings=Ray(cpus=0, resources={"rare": 1}), samplers=2) as backend:
        backend.give([job_of(number) for number in range(4)])
        news = gathered(backend, lambda news: len(news.groups) == 4 and bool(news.notes))
        assert "samplers wait for a place with {'CPU': 0.0, 'GPU': 0.0, 'rare': 1.0}" in news.notes[0]
        assert backend.room() == 8
    settings = Ray(cpus=0, resources={"unheard of": 1})
    with (
        begun(start, tmp_path, settings=settings, start_patience=0.0) as backend,
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
