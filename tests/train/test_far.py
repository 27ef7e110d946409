"""The engine, the learner, checkpoints and published weights on a device that is not the CPU: a stand-in, since there may be no GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.train.started import ROOT

LEARNERS = ("fast", "transformers' trunk", "several micro-batches")
READS = 20
"""Most times the host may wait for the device in a learner step: metrics, what comes of it, and once per optimiser update."""


@pytest.fixture(scope="session")
def found() -> Any:
    """Of all cases, from one process."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.far_cases"], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return json.loads(done.stdout)


def test_the_stand_in_refuses_what_cuda_would_refuse(found: Any) -> None:
    assert found["control"] == {"refused": True}


@pytest.mark.parametrize("name", ["plain", "cut", "greedy"])
def test_the_engine_samples_the_tokens_of_the_cpu_there(name: str, found: Any) -> None:
    assert found[f"engine {name}"]["same"]
    assert found[f"engine {name}"]["reads"] <= 4, "what was drawn comes home at once, and nothing else is waited for"


@pytest.mark.parametrize("name", LEARNERS)
def test_the_learner_gives_the_weights_of_the_cpu_there(name: str, found: Any) -> None:
    assert found[f"learner {name}"]["device"] == "meta"
    assert found[f"learner {name}"]["off"] < 2e-5


def test_the_host_does_not_wait_more_often_for_more_micro_batches(found: Any) -> None:
    reads = [found[f"learner {name}"]["reads"] for name in ("fast", "several micro-batches")]
    assert reads[0] == reads[1] <= READS


@pytest.mark.parametrize("name", LEARNERS)
def test_what_is_saved_and_published_there_is_read_back_bit_for_bit(name: str, found: Any) -> None:
    assert found[f"checkpoint {name}"] == {"same": True}
    assert found[f"weights {name}"] == {"same": True}
