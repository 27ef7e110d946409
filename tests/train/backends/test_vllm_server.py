"""Real vLLM servers and real runs on vLLM. Minutes, most of which are starts of servers."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.train.backends.samplers import gathered
from tests.train.backends.served import server_of
from tests.train.children.processes import group_is_gone
from tests.train.engines.vllm_models import differences, jobs, named, policy, rollout
from tests.train.faults.cuts import trials
from tests.train.started import Launcher, check_records, done, said
from tests.train.started import until as until_run
from tests.waiting import LIMIT, until
from trimtab.train.backends.servers import ServersBackend
from trimtab.train.messages import Group

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("vllm", reason="vLLM is not installed: make vllm-env sets it up")

TRAIN = [sys.executable, "-m", "trimtab", "train", "model.tiny.heads=2"]


@pytest.fixture(scope="module")
def models() -> list[Any]:
    return [policy(seed, tied=True) for seed in range(5)]


@pytest.fixture
def backend(models: list[Any], tmp_path: Path) -> Iterator[ServersBackend]:
    asked = rollout(engine="vllm-server", samples=4, slots=16, in_flight="keep_cache")
    made = ServersBackend(models[0].config, asked, stop=[0], hold=64, directory=tmp_path, start_patience=LIMIT)
    yield made
    made.close()


def test_a_server_samples_with_each_version_is_replaced_when_killed_and_leaves_nothing_behind(
    backend: ServersBackend, models: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    backend.begin(named(models[0]).items(), 0)
    first, server = server_of(os.getpid())
    groups: list[Group] = []
    for version in range(4):
        if version:
            backend.publish(named(models[version]).items(), version)
        backend.give(jobs(8, first=100 * version, max_tokens=85))
        groups += gathered(backend, lambda news: bool(news.groups)).groups  # the others run or wait
    groups += gathered(backend, lambda news: len(groups) + len(news.groups) == 32).groups
    off = differences(models, groups, keep_cache=True)
    spans = Counter(len(set(sample.versions.tolist())) for group in groups for sample in group.samples)
    with capsys.disabled():
        sys.stdout.write(
            f"\nserver: {len(off)} tokens, mean {off.mean():.1e}, most {off.max():.1e}; versions {dict(spans)}\n"
        )
    assert off.mean() < 2e-6
    assert off.max() < 5e-5
    assert spans.keys() > {1}  # weights changed under some of them
    assert {group.job.group for group in groups} == {
        100 * version + place for version in range(4) for place in range(8)
    }
    assert len(backend.differences) == 4
    assert differences(models[1:], groups, keep_cache=True).mean() > 0.1  # the control

    backend.give(jobs(8, first=900, max_tokens=60))
    os.kill(server, signal.SIGKILL)
    news = gathered(backend, lambda news: bool(news.lost))
    done = {group.job.group for group in news.groups}
    assert set(news.lost) | done == set(range(900, 908))
    assert not set(news.lost) & done
    assert "Sampler 0 was ended by SIGKILL" in news.notes[0]
    until(lambda: group_is_gone(first), "the engine of a killed server")
    backend.give([job for job in jobs(8, first=900, max_tokens=60) if job.group in news.lost])
    again = gathered(backend, lambda later: len(later.groups) == len(news.lost)).groups
    assert {int(version) for group in again for sample in group.samples for version in sample.versions} == {3}
    assert differences(models, again, keep_cache=True).mean() < 2e-6
    (second,) = backend.pids
    backend.close()
    assert second != first
    until(lambda: group_is_gone(second), "a server that was closed")


def test_a_run_learns_on_vllm_in_process(tmp_path: Path) -> None:
    command = [*TRAIN, "rollout.engine=vllm", "steps=30", "evaluate.every=30", "--out", "run"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert lines[0]["ratio/std"] < 1e-5  # the first batch is on-policy: only the engine differs
    assert lines[0]["staleness/coverage"] == 1.0
    assert max(line["ratio/std"] for line in lines) > 1e-3  # later ones are not
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    before = next(event["accuracy"] for event in events if event["kind"] == "start")
    assert lines[-1]["eval/accuracy"] > before + 0.15


def test_a_run_whose_server_is_killed_in_the_middle_ends_and_trains_nothing_twice(tmp_path: Path) -> None:
    command = [*TRAIN, "rollout.engine=vllm-server", "steps=16", "evaluate=null", "record.every=1", "--out", "run"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    metrics = tmp_path / "run/metrics.jsonl"
    try:
        until(lambda: process.poll() is not None or (metrics.exists() and len(metrics.read_text().splitlines()) > 4))
        first, server = server_of(process.pid)
        os.kill(server, signal.SIGKILL)
        assert process.wait(LIMIT) == 0, (tmp_path / "log").read_text()[-3000:]
    finally:
        process.kill()
        process.wait()
    until(lambda: group_is_gone(first), "the engine of a killed server")
    events = (tmp_path / "run/events.jsonl").read_text()
    assert "Sampler 0 was ended by SIGKILL" in events
    rows = [row for file in (tmp_path / "run/rollouts").glob("*.parquet") for row in pq.read_table(file).to_pylist()]
    trained = Counter((row["group"], row["sample"]) for row in rows)
    assert len(rows) == 16 * 16 * 8
    assert max(trained.values()) == 1


def test_a_server_ends_with_the_run_that_started_it(tmp_path: Path) -> None:
    command = [*TRAIN, "rollout.engine=vllm-server", "steps=99", "evaluate=null", "--out", "run"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    metrics = tmp_path / "run/metrics.jsonl"
    try:
        until(lambda: process.poll() is not None or (metrics.exists() and len(metrics.read_text().splitlines()) > 0))
        leader, _ = server_of(process.pid)
    finally:
        process.kill()
        process.wait()
    until(lambda: group_is_gone(leader), "the processes of the server")


@pytest.mark.slow
@pytest.mark.timeout(3500)
def test_servers_killed_at_random_moments_lose_nothing_and_leave_nobody(
    launcher: Launcher, capsys: pytest.CaptureFixture[str]
) -> None:
    """While it samples, takes over weights or starts; not while it starts twice in a row, which would be three deaths without a group."""
    count, dice, ended = min(20, trials()), random.Random(5), list[tuple[int, str]]()
    changes = {
        "backend": "local",
        "steps": 100_000,
        "evaluate": None,
        "model": {"tiny": {"layers": 1, "width": 64, "heads": 2, "mlp": 24}},
        "rollout": {"engine": "vllm-server"},
        "checkpoint": {"every": 5},
    }
    run = launcher.train(launcher.settings(changes), "--out", "run", "--no-report", fresh=True)
    for _ in range(count):
        starts = bool(ended) and ended[-1][1] == "at work" and dice.random() < 0.3
        if ended:
            until_run(lambda: len(said(run, "sampler")) >= len(ended), "word of the last death", run)
        if starts:
            time.sleep(dice.uniform(0.0, 8.0))
        else:
            run.after(run.steps() + 4)  # more than was under way when the last one died
            time.sleep(dice.uniform(0.0, 0.5))
        leader, server = server_of(run.pid)
        ended.append((leader, "starting" if starts else "at work"))
        os.kill(server, signal.SIGKILL)
    run.after(run.steps() + 4)
    run.send(signal.SIGTERM)
    assert run.code() == 143, run.errors  # waits until nothing it started is left
    assert len({leader for leader, _ in ended}) == count, "each was a server of its own"
    path = launcher.folder / "run"
    check_records(path, done(path))
    kinds = Counter(kind for _, kind in ended)
    with capsys.disabled():
        sys.stdout.write(
            f"\nkills of servers ({', '.join(f'{kind} {number}' for kind, number in sorted(kinds.items()))}): survived "
            f"{count} of {count}, {done(path)} steps done, none trained twice, none lost, left-overs 0\n"
        )
