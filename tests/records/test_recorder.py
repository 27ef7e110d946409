from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

import trimtab
from tests.waiting import until
from trimtab.errors import ConfigError, InputError, RecordError
from trimtab.records import recorder as module
from trimtab.records.dumps import load
from trimtab.records.recorder import TrainedBatch

NAN = float("nan")
TOKENS = np.array([[9, 1, 2, 3], [4, 5, 6, 9]])
ATTENTION = np.array([[0, 1, 1, 1], [1, 1, 1, 0]])  # padded in front, padded behind
MASK = np.array([[0, 0, 1, 1], [0, 1, 1, 0]])
BEHAVIOR = np.array([[0.0, 0.0, -0.5, -1.0], [0.0, -0.25, -2.0, 0.0]], np.float32)
PROXIMAL = np.array([[0.0, -0.625, -1.25], [-0.375, -1.75, 0.0]], np.float32)  # one narrower: of the last three tokens


def given(step: int = 3, **changes: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "step": step,
        "tokens": TOKENS,
        "mask": MASK,
        "behavior": BEHAVIOR,
        "proximal": PROXIMAL,
        "advantages": np.array([0.5, -0.5]),
        "rewards": [1.0, 0.0],
        "groups": ["p", "p"],
        "versions": np.array([2, 3]),
        "learner_version": 3,
        "finish": ["stop", "length"],
        "attention": ATTENTION,
    }
    return columns | changes


def packed(step: int = 3) -> dict[str, Any]:
    kept = ATTENTION.astype(bool)
    wide = np.concatenate([np.zeros((2, 1), np.float32), PROXIMAL], 1)
    columns = {"tokens": TOKENS, "mask": MASK, "behavior": BEHAVIOR, "proximal": wide}
    flat: dict[str, Any] = {name: column[kept] for name, column in columns.items()}
    return given(step) | flat | {"attention": None, "cu_seqlens": np.array([0, 3, 6])}


def tensors(columns: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for name, v in columns.items()}


@pytest.mark.parametrize("columns", [given(), packed(), tensors(given()), tensors(packed())], ids=range(4))
def test_what_is_recorded_is_read_back_padded_or_packed_numpy_or_torch(columns: dict[str, Any], tmp_path: Path):
    rec = trimtab.Recorder(tmp_path / "dump", rank=0)
    assert rec.add(**columns)
    rec.close()
    batch = load([tmp_path / "dump"])
    assert batch.origin.framework == "trimtab"
    assert batch.offsets.tolist() == [0, 3, 6]
    assert batch.tokens is not None
    assert batch.tokens.tolist() == [1, 2, 3, 4, 5, 6]
    assert batch.trained.tolist() == [False, True, True, False, True, True]
    assert np.array_equal(batch.behavior, np.array([NAN, -0.5, -1.0, NAN, -0.25, -2.0], np.float32), equal_nan=True)
    assert np.array_equal(
        batch.proximal, np.array([NAN, -0.625, -1.25, NAN, -0.375, -1.75], np.float32), equal_nan=True
    )
    assert batch.advantage is not None
    assert batch.advantage.tolist() == [0.5] * 3 + [-0.5] * 3
    assert batch.versions is not None
    assert batch.versions.tolist() == [2] * 3 + [3] * 3
    facts = (batch.reward, batch.group, batch.step, batch.learner_version)
    assert [None if each is None else each.tolist() for each in facts] == [[1.0, 0.0], [0, 0], [3, 3], [3, 3]]
    assert batch.finish == ("stop", "length")
    assert batch.source == ("rank 0", "rank 0")


def test_bfloat16_and_gradients_are_no_obstacle(tmp_path: Path):
    columns = tensors(given())
    columns["behavior"] = columns["behavior"].bfloat16()
    columns["current"] = columns["proximal"].clone().requires_grad_()
    with trimtab.Recorder(tmp_path, rank=0) as rec:
        rec.add(**columns)
    batch = load([tmp_path])
    assert batch.current is not None
    assert batch.current[1] == np.float32(-0.625)


def test_a_batch_is_copied_when_it_is_given():
    behavior, tokens = torch.from_numpy(BEHAVIOR.copy()), TOKENS.copy()
    columns = {"tokens": tokens, "trained": MASK, "behavior": behavior}
    held = TrainedBatch.copy_of(columns, {}, None, None, {"step": 0})
    behavior.fill_(-7.0)  # the loop's own buffers, used again
    tokens[:] = 0
    row = held.rows("rank 0")[0]
    assert row["behavior"].tolist() == BEHAVIOR[0].tolist()
    assert row["tokens"].tolist() == TOKENS[0].tolist()


def test_only_each_nth_step_is_recorded_and_ranks_write_parts_of_their_own(tmp_path: Path):
    for rank in range(2):
        with trimtab.Recorder(tmp_path, every=2, rank=rank) as rec:
            assert [rec.add(**given(step)) for step in range(4)] == [True, False, True, False]
    batch = load([tmp_path])
    assert batch.source is not None
    assert sorted(batch.source) == ["rank 0"] * 4 + ["rank 1"] * 4
    assert len(list(tmp_path.iterdir())) == 4


def test_a_second_recorder_goes_on_behind_the_first(tmp_path: Path):
    for _ in range(2):
        with trimtab.Recorder(tmp_path, rank=0) as rec:
            rec.add(**given(5))
    assert len(load([tmp_path])) == 4


def test_a_full_queue_leaves_steps_out_counts_them_and_never_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    free = threading.Event()
    begun = threading.Event()
    write = module.write_rows

    def slow(*arguments: Any) -> None:
        begun.set()
        assert free.wait(60)
        write(*arguments)

    monkeypatch.setattr(module, "write_rows", slow)
    rec = trimtab.Recorder(tmp_path, waiting=2, rank=0)
    assert rec.add(**given(0))
    assert begun.wait(60)
    assert [rec.add(**given(step)) for step in (1, 2, 3, 4)] == [True, True, False, False]
    assert rec.dropped == 2
    free.set()
    with pytest.warns(UserWarning, match="left out 2 of 5 steps"):
        rec.close()
    assert rec.written == 3
    assert load([tmp_path]).step is not None


def test_the_oldest_parts_go_when_the_limit_is_reached(tmp_path: Path):
    with trimtab.Recorder(tmp_path, rank=0) as rec:
        rec.add(**given(0))
    size = next(tmp_path.iterdir()).stat().st_size
    with trimtab.Recorder(tmp_path, limit=int(size * 2.5), rank=0) as rec:
        for step in range(1, 5):
            rec.add(**given(step))
            until(lambda step=step: rec.written == step)
    batch = load([tmp_path])
    assert batch.step is not None
    assert batch.step.tolist() == [3, 3, 4, 4]
    assert rec.removed == 3
    marks = pq.read_schema(max(tmp_path.iterdir())).metadata
    assert marks[b"trimtab.batch"] == b"1"


def test_a_disk_that_takes_no_more_ends_the_recording_and_not_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def full(*_: Any) -> None:
        raise RecordError("dump needs room on its disk: No space left on device.")

    monkeypatch.setattr(module, "write_rows", full)
    rec = trimtab.Recorder(tmp_path, rank=0)
    assert rec.add(**given(0))
    until(lambda: rec.error is not None)
    assert not rec.add(**given(1))
    with pytest.warns(UserWarning, match="stopped writing after 0 steps.*needs room"):
        rec.close()
    rec.close()


def test_what_does_not_fit_together_is_told_at_once(tmp_path: Path):
    with trimtab.Recorder(tmp_path, rank=0) as rec:
        for changes, words in (
            ({"behavior": BEHAVIOR[:1]}, r"needs behavior that fits tokens of shape \(2, 4\), got shape \(1, 4\)"),
            ({"behavior": np.zeros((2, 5))}, r"got shape \(2, 5\)"),
            ({"tokens": TOKENS.reshape(-1)}, "without cu_seqlens"),
            ({"rewards": [1.0]}, r"needs reward with one value per row \(2\), got 1"),
            ({"attention": ATTENTION[:, 1:]}, "needs attention of shape"),
            ({"cu_seqlens": np.array([0, 8])}, "with cu_seqlens"),
        ):
            with pytest.raises(InputError, match=words):
                rec.add(**given(**changes))
        with pytest.raises(InputError, match="rise from 0"):
            rec.add(**(packed() | {"cu_seqlens": np.array([0, 4, 3, 6])}))
    with pytest.raises(ConfigError, match="every of at least 1"):
        trimtab.Recorder(tmp_path, every=0)


def test_a_program_that_forgets_to_close_still_has_its_parts(tmp_path: Path):
    code = """
import numpy as np, sys, trimtab
rec = trimtab.Recorder(sys.argv[1])
for step in range(3):
    rec.add(step=step, tokens=np.ones((2, 3), int), mask=np.ones((2, 3)), behavior=-np.ones((2, 3)))
assert "torch" not in sys.modules
"""
    environment = os.environ | {"RANK": "5"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, env=environment)
    batch = load([tmp_path])
    assert len(batch) == 6
    assert batch.source == ("rank 5",) * 6


def test_a_part_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trimtab.records.saved.BATCH_SCHEMA", 2)
    with trimtab.Recorder(tmp_path, rank=0) as rec:
        rec.add(**given())
    with pytest.raises(RecordError, match="needs a batch of schema 1, got 2"):
        load([tmp_path])


def test_without_tokens_the_mask_says_how_many_there_are(tmp_path: Path):
    with trimtab.Recorder(tmp_path / "dump") as rec:
        rec.add(
            step=3,
            mask=np.array([[1, 1, 0], [1, 0, 0]]),
            behavior=np.array([[-0.5, -1.0, 0.0], [-2.0, 0.0, 0.0]]),
            proximal=np.array([[-0.4, -1.1, 0.0], [-2.5, 0.0, 0.0]]),
        )
    batch = load([tmp_path / "dump"])
    assert batch.tokens is None
    assert batch.trained.tolist() == [True, True, False, True, False, False]
    assert batch.behavior is not None
    assert batch.behavior[batch.trained].tolist() == [-0.5, -1.0, -2.0]
    with pytest.raises(InputError, match=r"needs mask \[rows, width\]"):
        trimtab.Recorder(tmp_path / "other").add(step=0, mask=np.array([1, 1]))
