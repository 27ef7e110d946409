"""The back-end of servers against scripted ones: what is sent when, and what happens to groups when a server goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.train.backends.samplers import gathered
from tests.train.backends.served import Scripted, serving
from tests.train.engines.vllm_models import jobs, named, policy, rollout
from tests.waiting import LIMIT
from trimtab.errors import ConfigError, RunError
from trimtab.train.backends.protocol import Backend
from trimtab.train.backends.servers import ServersBackend

UPDATE = [
    "/pause",
    "/start_weight_update",
    "/update_weights",
    "/finish_weight_update",
    "/update_weight_version",
    "/resume",
]
Start = Callable[..., ServersBackend]


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [policy(seed, tied=True) for seed in range(3)]


@pytest.fixture
def script(models: list[Any]) -> Scripted:
    return Scripted(models[0].config)


@pytest.fixture
def start(models: list[Any], script: Scripted, tmp_path: Path) -> Iterator[Start]:
    made: list[ServersBackend] = []
    with serving(script) as address:

        def started(**changes: Any) -> ServersBackend:
            asked = rollout(**{"engine": "vllm-server", "servers": (address,), "samples": 4, **changes})
            made.append(
                ServersBackend(models[0].config, asked, stop=[0], hold=8, directory=tmp_path, start_patience=LIMIT)
            )
            made[-1].begin(named(models[0]).items(), 0)
            return made[-1]

        yield started
        script.go.set()
        for backend in made:
            backend.close()


def test_weights_come_before_groups_and_each_version_is_proved(
    start: Start, script: Scripted, models: list[Any]
) -> None:
    backend = start()
    assert isinstance(backend, Backend)
    assert backend.room() == 8
    backend.give(jobs(2))
    assert backend.room() == 6
    first = gathered(backend, lambda news: len(news.groups) == 2)
    backend.publish(named(models[1]).items(), 1)
    backend.give(jobs(1, first=5))
    second = gathered(backend, lambda news: len(news.groups) == 1)
    assert {group.oldest for group in first.groups} == {0}
    assert {group.oldest for group in second.groups} == {1}
    assert [sample.tokens[0] for sample in second.groups[0].samples] == [2, 3, 4, 5]  # seed 505 and the next
    updates = [call for call in script.calls if call in UPDATE]
    assert updates == UPDATE * 2
    assert set(script.salts) == {"v0", "v1"}
    assert len(backend.differences) == 2
    assert max(backend.differences) < 1e-6
    assert script.ties == {"lm_head.weight": "model.embed_tokens.weight"}


def test_a_server_that_keeps_its_weights_stops_the_run(start: Start, script: Scripted, models: list[Any]) -> None:
    backend = start()
    backend.give(jobs(1))
    gathered(backend, lambda news: bool(news.groups))
    script.deaf = True
    backend.publish(named(models[1]).items(), 1)
    with pytest.raises(RunError, match=r"Server 0 at http.* of version 1 .* kept the weights of the version before"):
        gathered(backend, lambda news: False)


def test_a_request_that_began_between_two_versions_is_sampled_again(start: Start, script: Scripted) -> None:
    """Its prompt may have been read with the keys of the version before."""
    script.begins_late = 1
    backend = start()
    backend.give(jobs(1))
    news = gathered(backend, lambda news: bool(news.groups))
    assert news.groups[0].oldest == 0
    assert script.salts == ["v0", "v0"]


def test_requests_in_flight_see_the_update_or_are_waited_for(start: Start, script: Scripted, models: list[Any]) -> None:
    script.go.clear()
    backend = start(in_flight="recompute")
    backend.give(jobs(1))
    assert script.waiting.acquire(timeout=LIMIT)
    backend.publish(named(models[1]).items(), 1)
    for _ in range(int(LIMIT / 0.01)):
        backend.arrived(0.01)
        if script.version == "1":
            break
    script.go.set()
    (group,) = gathered(backend, lambda news: bool(news.groups)).groups
    assert [set(sample.versions.tolist()) for sample in group.samples] == [{0, 1}] * 4


def test_with_finish_an_update_waits_for_what_runs_and_nothing_begins_before_it(
    start: Start, script: Scripted, models: list[Any]
) -> None:
    script.go.clear()
    backend = start(in_flight="finish", slots=8)  # two groups at a time
    backend.give(jobs(4))
    assert script.waiting.acquire(timeout=LIMIT)
    assert script.waiting.acquire(timeout=LIMIT)
    backend.publish(named(models[1]).items(), 1)
    script.go.set()
    groups = gathered(backend, lambda news: len(news.groups) == 4).groups
    found = [{version for sample in group.samples for version in sample.versions.tolist()} for group in groups]
    assert found == [{0}, {0}, {1}, {1}]


def test_groups_of_a_server_that_breaks_off_are_given_back_and_it_is_used_again(start: Start, script: Scripted) -> None:
    script.breaks = 1
    backend = start()
    backend.give(jobs(3))
    news = gathered(backend, lambda news: bool(news.lost))
    done = {group.job.group for group in news.groups}
    assert set(news.lost) | done == {0, 1, 2}
    assert "Sampler 0 at http://127.0.0.1" in news.notes[0]
    backend.give([job for job in jobs(3) if job.group in news.lost])
    again = gathered(backend, lambda later: {group.job.group for group in later.groups} >= set(news.lost) - done)
    assert again.lost == ()
    assert script.calls.count("/update_weights") == 2  # it may be another one by now, with weights of its own


def test_a_server_that_never_finishes_a_group_ends_the_run(start: Start, script: Scripted) -> None:
    script.breaks = 99
    backend = start()
    backend.give(jobs(1))
    for _ in range(3):
        assert gathered(backend, lambda news: bool(news.lost)).lost == (0,)
        backend.give(jobs(1))
    with pytest.raises(RunError, match="Sampling needs samplers that live to finish a group"):
        gathered(backend, lambda news: bool(news.lost))


def test_a_server_without_updates_is_told_what_it_lacks(start: Start, script: Scripted) -> None:
    script.refuses = "/init_weight_transfer_engine"
    backend = start()
    with pytest.raises(RunError, match=r"VLLM_SERVER_DEV_MODE=1.*docs/scale.md"):
        gathered(backend, lambda news: False)


def test_the_newest_file_is_kept_and_none_at_the_end(start: Start, models: list[Any], tmp_path: Path) -> None:
    backend = start()
    for version in (1, 2):
        backend.publish(named(models[version]).items(), version)
        backend.give(jobs(1, first=version))
        gathered(backend, lambda news: bool(news.groups))
    assert [file.name for file in (tmp_path / "weights").iterdir()] == ["weights.safetensors"]
    backend.close()
    backend.close()
    assert not (tmp_path / "weights").exists()
    with pytest.raises(RunError, match="none after close"):
        backend.give(jobs(1))


def test_more_samples_than_slots_are_refused(start: Start) -> None:
    with pytest.raises(ConfigError, match=r"needs rollout.slots of rollout.samples or more, got 2 for 4"):
        start(slots=2)


def test_an_address_is_a_whole_one(start: Start) -> None:
    with pytest.raises(ConfigError, match="such as http://host:8000"):
        start(servers=("localhost",))
