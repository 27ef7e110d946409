"""Real SGLang servers, in an environment of their own, and real runs on them. Minutes, most of which are starts of servers."""

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

import numpy as np
import pytest

from tests.train.backends.served import server_of
from tests.train.backends.test_servers import gathered
from tests.train.children.test_session import group_is_gone
from tests.train.engines.vllm_models import VOCABULARY, differences, named, policy, rollout
from tests.train.started import Launcher, check_records
from tests.train.started import until as until_run
from tests.waiting import LIMIT, until
from trimtab.errors import RunError
from trimtab.train.backends.servers import ServersBackend
from trimtab.train.engines.sglang import client
from trimtab.train.engines.sglang.server import SglangServers
from trimtab.train.messages import Group, Job, Sampling
from trimtab.train.weights.files import FileWeights

PYTHON = Path(".venv-sglang/bin/python").absolute()
pytestmark = [
    pytest.mark.sglang,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(not PYTHON.exists(), reason="SGLang is not installed: make sglang-env sets it up"),
]
TRAIN = [sys.executable, "-m", "trimtab", "train", "model.tiny.heads=2", "rollout.engine=sglang-server"]
TRAIN += [f"rollout.sglang.python={PYTHON}"]
VERSIONS = 4


def jobs_of(version: int, sampling: Sampling, count: int = 8) -> list[Job]:
    """With the same prompts in every version: keys of the one before would be there to be taken. One ends after the other."""
    prompts = np.random.default_rng(0).integers(0, VOCABULARY, (count, 70)).astype(np.int32)
    return [
        Job(100 * version + place, prompt, 4, 0, 29 + 8 * place, sampling, head="mask")
        for place, prompt in enumerate(prompts)
    ]


def models_of(*, tied: bool) -> list[Any]:
    return [policy(seed, tied=tied) for seed in range(VERSIONS + 1)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one that serves run after run, as those that somebody else started do; keys of the run before are still there."""
    folder = tmp_path_factory.mktemp("sglang")
    asked = rollout(engine="sglang-server", samples=4, sglang={"python": str(PYTHON)})
    kind = SglangServers(policy(0, tied=True).config, asked, FileWeights(), stop=[], threads=1)
    process = kind.start(folder, folder / "log")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRIMTAB_SGLANG_KEY", str(kind._key))
        yield process.address
    process.close()


def started(models: list[Any], folder: Path, **changes: Any) -> ServersBackend:
    settings = {"engine": "sglang-server", "samples": 4, "sglang": {"python": str(PYTHON)}, **changes}
    return ServersBackend(
        models[0].config, rollout(**settings), stop=[], hold=64, directory=folder, start_patience=LIMIT
    )


@pytest.fixture
def end() -> Iterator[list[ServersBackend]]:
    backends: list[ServersBackend] = []
    yield backends
    for backend in backends:
        backend.close()


def over_versions(backend: ServersBackend, models: list[Any], sampling: Sampling) -> list[Group]:
    """Groups of four versions, each published while groups of the one before run."""
    backend.begin(named(models[0]).items(), 0)
    groups: list[Group] = []
    for version in range(VERSIONS):
        if version:
            backend.publish(named(models[version]).items(), version)
        backend.give(jobs_of(version, sampling))
        groups += gathered(backend, lambda news: bool(news.groups)).groups  # the others run or wait
    return groups + list(gathered(backend, lambda news: len(groups) + len(news.groups) == 8 * VERSIONS).groups)


@pytest.mark.parametrize(
    ("in_flight", "sampling"),
    [
        ("keep_cache", Sampling()),
        (
            "keep_cache",
            Sampling(0.7, top_k=8),
        ),  # top_p is another set there: of the whole distribution, not of what top_k left
        ("recompute", Sampling()),
        ("recompute", Sampling(0.7)),
        ("finish", Sampling()),
    ],
    ids=["kept", "kept-cut", "anew", "anew-tempered", "finished"],
)
def test_log_probs_are_those_of_each_token_and_version(
    end: list[ServersBackend],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    in_flight: str,
    sampling: Sampling,
    server: str,
) -> None:
    models = models_of(tied=True)
    cut = {"temperature": sampling.temperature, "top_k": sampling.top_k, "top_p": sampling.top_p}
    backend = started(models, tmp_path, in_flight=in_flight, slots=16, servers=(server,), **cut)
    end.append(backend)
    groups = over_versions(backend, models, sampling)
    kept = in_flight == "keep_cache"
    off = differences(models, groups, keep_cache=kept)
    spans = Counter(len(set(sample.versions.tolist())) for group in groups for sample in group.samples)
    several = [group for group in groups if any(len(set(sample.versions.tolist())) > 1 for sample in group.samples)]
    other = differences(models[1:], groups, keep_cache=kept).mean()
    wrong_law = differences(models, several, keep_cache=not kept).mean() if several else float("nan")
    with capsys.disabled():
        sys.stdout.write(
            f"\nsglang {in_flight} {sampling}: {len(off)} tokens, mean {off.mean():.1e}, most {off.max():.1e}; versions "
            f"{dict(spans)}; the other law {wrong_law:.2g}, the next version {other:.2g}; proofs {max(backend.differences):.1e}\n"
        )
    assert off.mean() < 2e-6
    assert off.max() < 5e-5
    assert other > 0.1
    assert (
        len(backend.differences) >= 4
    )  # two for each swap; of versions that came while one went on, the newest is taken
    if in_flight == "finish":
        assert spans.keys() == {1}
    else:
        assert spans.keys() > {1}  # weights changed under some of them
        assert wrong_law > 0.01


def test_keys_shared_over_versions_stop_the_run(
    end: list[ServersBackend], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = models_of(tied=False)
    asked_of = client.asked_of
    monkeypatch.setattr(client, "asked_of", lambda *given: asked_of(*given) | {"extra_key": "always"})
    backend = started(models, tmp_path)
    end.append(backend)
    with pytest.raises(RunError, match=r"version 1 .*prefix cache holds keys of other weights"):
        over_versions(backend, models, Sampling())


def test_a_server_ends_with_a_run_that_is_killed(tmp_path: Path) -> None:
    command = [*TRAIN, "steps=99", "evaluate=null", "--out", "run"]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log)
    metrics = tmp_path / "run/metrics.jsonl"
    try:
        until(lambda: process.poll() is not None or (metrics.exists() and len(metrics.read_text().splitlines()) > 0))
        assert process.poll() is None, (tmp_path / "log").read_text()[-3000:]
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
    count = int(os.environ.get("TRIMTAB_TRIALS", "20"))
    dice, ended = random.Random(5), list[tuple[int, str]]()
    changes = {
        "backend": "local",
        "steps": 100_000,
        "evaluate": None,
        "model": {"tiny": {"layers": 1, "width": 64, "heads": 2, "mlp": 24}},
        "rollout": {"engine": "sglang-server", "sglang": {"python": str(PYTHON)}},
        "checkpoint": {"every": 5},
    }
    run = launcher.train(launcher.settings(changes), "--out", "run", "--no-report", fresh=True)
    for _ in range(count):
        starts = bool(ended) and ended[-1][1] == "at work" and dice.random() < 0.3
        if ended:
            until_run(lambda: len(deaths(run)) >= len(ended), "word of the last death", run)
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
    steps = len((path / "metrics.jsonl").read_text().splitlines())
    check_records(path, steps)
    kinds = Counter(kind for _, kind in ended)
    with capsys.disabled():
        sys.stdout.write(
            f"\nkills of servers ({', '.join(f'{kind} {number}' for kind, number in sorted(kinds.items()))}): survived "
            f"{count} of {count}, {steps} steps done, none trained twice, none lost, left-overs 0\n"
        )


def deaths(run: Any) -> list[str]:
    """What the run has said of servers that ended."""
    events = [json.loads(line) for line in (run.path / "events.jsonl").read_text().splitlines()]
    return [each["message"] for each in events if "was ended by" in each.get("message", "")]
