"""A run whose samplers are vLLM engines inside Ray actors."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.train.runs.clusters import actors, leftovers, surroundings
from tests.train.started import Launcher, check_records, said, until

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("vllm", reason="vLLM is not installed: make vllm-env sets it up")
pytest.importorskip("ray")

STEPS = 24
TRAIN = ["backend=ray", "rollout.engine=vllm", "model.tiny.heads=2", f"steps={STEPS}", f"evaluate.every={STEPS}"]


def test_a_run_learns_on_vllm_in_an_actor_which_is_killed_and_replaced(launcher: Launcher) -> None:
    run = launcher.train(*TRAIN, "--out", "run", fresh=True, **surroundings(launcher))
    run.after(6)
    os.kill(actors(run)[0], signal.SIGKILL)
    until(lambda: said(run, "sampler"), "word of the dead actor", run)
    assert run.code() == 0, run.errors
    found = check_records(launcher.folder / "run", STEPS, groups=16)
    lines = found.metrics()
    assert lines[0]["ratio/std"] < 1e-5  # the first batch is on-policy: only the engine differs
    assert lines[0]["staleness/coverage"] == 1.0
    assert max(line["ratio/std"] for line in lines) > 1e-3  # later ones are not
    before = next(event["accuracy"] for event in found.events() if event["kind"] == "start")
    sys.stdout.write(
        f"\nvLLM in an actor: ratio std {lines[0]['ratio/std']:.1e}, {before:.3f} → {lines[-1]['eval/accuracy']:.3f}\n"
    )
    assert lines[-1]["eval/accuracy"] > before + 0.1
    assert [each for each in leftovers(launcher.folder) if "vllm" not in each and ".cache" not in each] == []
