"""The learner on two ranks gives what one process gives: laws over every correction and loss, for replicas and for shards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
import torch

from tests.train.batches import batch, policy
from tests.train.learner.rank_cases import cases
from tests.train.started import ROOT
from tests.waiting import LIMIT
from trimtab.train.learner.batching import token_shares

Results = dict[str, dict[str, float]]


@pytest.fixture(scope="session")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Of all cases, from one pair of processes."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
    }
    pair = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.train.learner.rank_cases", str(rank), "2", str(folder)],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    try:
        for process in pair:
            errors = process.communicate(timeout=6 * LIMIT)[1]
            assert process.returncode == 0, errors.decode()[-2000:]
    finally:
        for process in pair:
            process.kill()
    found: Any = json.loads((folder / "results.json").read_text())
    return found


@pytest.mark.parametrize("shard", ["ddp", "fsdp"])
@pytest.mark.parametrize("case", [name for name, _ in cases()] + ["tied", "single"])
def test_weights_after_three_steps_are_those_of_one_process(shard: str, case: str, results: Results) -> None:
    found = results[f"{shard}: {case}"]
    assert found["off"] < 1e-5
    assert found["moved"] > 30 * found["off"], "the steps have to move the weights, or nothing was compared"


@pytest.mark.parametrize("shard", ["ddp", "fsdp"])
def test_a_gradient_left_out_on_one_rank_is_seen(shard: str, results: Results) -> None:
    assert results[f"control: {shard}"]["off"] > 1e-4


def test_shares_are_whole_groups_and_alike_in_tokens() -> None:
    rows = batch(policy(), groups=9, samples=3)
    index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))[:20]
    shares = token_shares(rows.extents, index, 3)
    assert sorted(row for share in shares for row in share.tolist()) == sorted(index.tolist())
    groups = [group for share in shares for group in set(rows.group[share].tolist())]
    assert len(groups) == len(set(groups)), "a group lies in two shares"
    loads = [int(rows.sizes[share].sum()) for share in shares]
    largest = max(int(rows.sizes[index[rows.group[index] == group]].sum()) for group in range(9))
    assert max(loads) - min(loads) <= largest
    assert torch.equal(token_shares(rows.extents, index, 1)[0], index), "one rank has the rows as they come"
