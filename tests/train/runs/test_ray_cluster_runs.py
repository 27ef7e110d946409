"""Runs of the command line on a cluster that was there before them, and of a program that knew Ray before us."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.train.backends.ray_nodes import Nodes, cluster_of_nodes
from tests.train.started import ROOT, Launcher, check_records, said, surroundings, until
from tests.waiting import LIMIT

pytest.importorskip("ray")
pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc"),
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]
STEPS, BLOW = 40, 15


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    with cluster_of_nodes() as found:
        yield found


@pytest.mark.slow
def test_a_run_on_two_nodes_loses_one_in_the_middle_and_learns_to_the_end(nodes: Nodes, launcher: Launcher) -> None:
    """As a user starts it: `trimtab train` with the default policy, evaluations, records and report."""
    nodes.grow(2, num_cpus=1)
    words = ["backend=ray", f"ray.address={nodes.cluster.address}", "rollout.samplers=2", f"steps={STEPS}"]
    run = launcher.train(*words, "--out", "run", fresh=True)
    run.after(BLOW)
    nodes.lose()
    until(lambda: said(run, "sampler") or run.ended() is not None, "word of the dead node", run)
    noticed = run.steps()
    assert run.code() == 0, run.errors
    assert any("Restarted" in note and "groups are sampled again" in note for note in said(run, "sampler"))
    assert BLOW <= noticed < STEPS, "the blow has to come in the middle"
    found = check_records(launcher.folder / "run", STEPS, groups=16)
    accuracy = [line["eval/accuracy"] for line in found.metrics() if "eval/accuracy" in line]
    assert accuracy[-1] > 0.5, "from 0.23 before the first step"
    assert (launcher.folder / "run" / "report.html").exists()
    assert "Traceback" not in run.errors
    assert "raylet" not in run.output + run.errors, "what Ray announces is in samplers/ray.log"
    assert sum(node["Alive"] for node in nodes.ray.nodes()) == 2, "the run leaves the cluster as it found it"


EARLY = """
import os
import sys
from pathlib import Path

import ray

from tests.train.small_runs import lines, small
from trimtab.train.loop import train

if __name__ == "__main__":
    before = dict(os.environ)
    for name in ("one", "two"):
        train(small(backend="ray", steps=2, evaluate=None, rollout={"max_staleness": 0}), Path(sys.argv[1], name))
        assert not ray.is_initialized()
        assert {key: os.environ.get(key) for key in before} == before
        assert "RAY_AUTH_TOKEN" not in os.environ
    assert repr(lines(Path(sys.argv[1], "one"))) == repr(lines(Path(sys.argv[1], "two")))
    sys.stdout.write("both ran")
"""


def test_a_program_that_has_imported_ray_before_can_train_on_a_cluster_of_its_own_twice(launcher: Launcher) -> None:
    """Ray reads how it is to be accessed when it is imported, which is before the run has agreed on a token."""
    file = launcher.folder / "early.py"
    file.write_text(EARLY)
    around = surroundings(launcher.folder) | {"HOME": str(launcher.folder)}
    around.pop("RAY_AUTH_MODE", None)
    run = subprocess.run(
        [sys.executable, str(file), str(launcher.folder)],
        capture_output=True, text=True, check=False, env=around, cwd=ROOT, timeout=LIMIT,
    )  # fmt: skip
    assert run.stdout.endswith("both ran"), run.stderr
    assert not (launcher.folder / ".ray").exists(), "no token in the user's home"
