"""What every back-end with samplers of ours does, whichever way leads to them: processes beside the learner, or actors of a cluster."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.train.backends.ray_nodes import cluster_of_nodes
from tests.train.backends.samplers import (
    HfFactory,
    Start,
    begun,
    bits,
    gathered,
    job_of,
    numbers,
    order,
    played,
    ready,
    sampled,
    tiny,
)
from tests.train.backends.scripted import Factory, Weight, named
from tests.train.children.processes import alive
from tests.waiting import until
from trimtab.config.rollout import Ray
from trimtab.errors import RunError
from trimtab.train.backends.local import LocalBackend
from trimtab.train.messages import Job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")


@dataclass(frozen=True)
class Kind:
    """A back-end, and what it says of a sampler that was killed."""

    start: Start
    killed: str


@pytest.fixture(scope="module", params=["local", pytest.param("ray", marks=pytest.mark.filterwarnings("ignore"))])
def kind(request: pytest.FixtureRequest) -> Iterator[Kind]:
    if request.param == "local":
        yield Kind(LocalBackend, "was ended by SIGKILL")
        return
    pytest.importorskip("ray")
    from trimtab.train.backends.ray.backend import RayBackend

    with cluster_of_nodes() as nodes:
        nodes.grow(1)
        yield Kind(
            lambda factory, **options: RayBackend(factory, Ray(), **options), "is gone: its worker process has died"
        )


def test_a_killed_sampler_costs_no_group_and_the_other_goes_on(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "hold").touch()
    model = Weight()
    with begun(kind.start, tmp_path, model=model, samplers=2) as backend:
        ready(backend, 2)
        assert backend.room() == 16
        backend.give([job_of(number) for number in range(5)])
        assert backend.room() == 11
        first, second = backend.pids
        # Dealt in turn: 0, 2, 4 and 1, 3.
        until(
            lambda: not backend.arrived(0.05) and order(tmp_path, first) | order(tmp_path, second) == set(range(5)),
            "both at work",
        )
        assert order(tmp_path, first) == {0, 2, 4}
        os.kill(second, signal.SIGKILL)
        news = gathered(backend, lambda news: bool(news.lost))
        assert sorted(news.lost) == [1, 3]
        assert kind.killed in news.notes[0]
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
        # Given at version 1, so begun with it.
        assert {group.oldest for group in news.groups if group.job.group in (1, 3)} == {1}

        ready(backend, 2)
        assert second not in backend.pids
        until(lambda: not alive(second), "the end of the killed one")
        (tmp_path / "hold").touch()
        backend.give([job_of(number) for number in range(5, 9)])
        pids = backend.pids
        until(lambda: not backend.arrived(0.05) and all(order(tmp_path, pid) & {5, 6} for pid in pids), "both at work")
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        news = gathered(backend, lambda news: len(news.lost) == 4)
        assert sorted(news.lost) == [5, 6, 7, 8]
        (tmp_path / "hold").unlink()
        backend.give([job_of(number) for number in news.lost])
        assert numbers(gathered(backend, lambda news: len(news.groups) == 4).groups) == [5, 6, 7, 8]


def test_a_run_with_a_kill_in_it_trains_every_group_once_and_in_bound(kind: Kind, tmp_path: Path) -> None:
    """The whole circle: admission, samplers, buffer, learner."""
    killed: list[int] = []

    def kill(backend: Any) -> None:
        killed.append(backend.pids[0])
        os.kill(killed[0], signal.SIGKILL)

    played(kind.start, tmp_path, steps=12, strike={4: kill})
    assert killed


def test_one_sampler_and_one_process_agree_to_the_bit(kind: Kind, tmp_path: Path) -> None:
    model, alone = tiny(0), HfFactory()()
    with begun(kind.start, tmp_path, model=model, factory=HfFactory()) as backend:
        for version in range(3):
            jobs = [
                Job(version * 4 + number, np.arange(2, 5 + number, dtype=np.int32), 4, seed=number, max_tokens=12)
                for number in range(4)
            ]
            backend.give(jobs)
            theirs = bits(gathered(backend, lambda news: len(news.groups) == 4).groups)
            assert theirs == bits(sampled(alone, model, jobs, version))
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
            backend.publish(model.state_dict().items(), version + 1)
            assert theirs != bits(sampled(alone, model, jobs, version)), "other weights have to differ"


def test_an_exception_is_told_with_its_traceback_and_stands_in_the_log(kind: Kind, tmp_path: Path) -> None:
    with begun(kind.start, tmp_path, {0: "raise"}, restarts=1) as backend:
        backend.give([job_of(0)])
        news = gathered(backend, lambda news: bool(news.lost))
        assert news.lost == (0,)
        assert "raised ValueError: cannot sample group 0" in news.notes[0]
        assert "scripted.py" in news.notes[0]
        assert "ValueError: cannot sample group 0" in (tmp_path / "sampler-0.log").read_text()
        backend.give([job_of(0)])
        with pytest.raises(RunError, match=r"(?s)sampler 0 dead 2 times in a row.*cannot sample group 0"):
            gathered(backend, lambda news: False)


def test_a_hung_sampler_is_killed_and_its_log_says_where_it_hung(kind: Kind, tmp_path: Path) -> None:
    with begun(kind.start, tmp_path, {0: "hang"}, patience=3.0) as backend:
        backend.give([job_of(0)])
        news = gathered(backend, lambda news: bool(news.lost))
        assert "gave no sign of life for" in news.notes[0]
        assert "_fail" in (tmp_path / "sampler-0.log").read_text()
        backend.give([job_of(0)])
        assert numbers(gathered(backend, lambda news: bool(news.groups)).groups) == [0]


def test_work_before_the_beginning_or_after_the_end_is_refused(kind: Kind, tmp_path: Path) -> None:
    backend = kind.start(Factory(tmp_path), hold=1, directory=tmp_path)
    with pytest.raises(RunError, match="needs begin"):
        backend.give([job_of(0)])
    backend.close()
    backend.close()
    with pytest.raises(RunError, match="needs to begin once"):
        backend.begin(named(Weight()), 0)
