"""Every framework's file gives the same small batch; a file whose log-probs are one token late does not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.records.dumps import made, pickled
from trimtab.records.dumps import load
from trimtab.records.dumps.loading import READERS
from trimtab.records.saved import PER_SEQUENCE, PER_TOKEN, SavedBatch

NAN = float("nan")
TOKENS = [11, 12, 21, 22, 23, 11, 12, 31, 32]
TRAINED = [0, 0, 1, 0, 1, 0, 0, 1, 1]
BEHAVIOR = [NAN, NAN, -0.5, NAN, -1.5, NAN, NAN, -0.25, -2.0]
PROXIMAL = [-0.625, -1.25, -0.375, -1.75]  # of the trained tokens

# framework, writer, the column that holds the trainer's side, what else it has to have
FILES: list[tuple[str, Callable[..., Path], str | None, set[str]]] = [
    ("nemo-rl", made.nemo_rl, "proximal", {"advantage", "reward", "group", "step", "text"}),
    ("nemo-rl", made.nemo_rl_stream, "proximal", {"advantage", "reward", "group", "step"}),
    ("prime-rl", made.prime_export, "current", {"advantage", "reward", "group", "step", "source"}),
    ("prime-rl", made.prime_traces, "current", {"advantage", "reward", "group"}),
    ("verifiers", made.verifiers, None, {"reward"}),
    ("slime", made.slime_train, "proximal", {"advantage", "reward", "group", "step", "finish"}),
    ("slime", made.slime_ranks, "proximal", {"advantage", "reward", "group", "step"}),
    ("slime", made.slime_rollout, None, {"reward", "group", "step", "versions", "finish", "text"}),
    ("miles", made.miles_dashboard, None, {"group", "step"}),
    ("skyrl", pickled.skyrl, "proximal", {"advantage", "group", "step"}),
    ("verl", pickled.verl_queue, None, {"reward", "group", "step", "versions", "learner_version"}),
    ("verl", pickled.verl_proto, "proximal", {"advantage", "reward", "group", "step"}),
    ("roll", pickled.roll, "proximal", {"advantage", "reward", "group", "step"}),
]
NAMES = [writer.__name__ for _, writer, _, _ in FILES]


@pytest.mark.parametrize(("framework", "writer", "trainer", "more"), FILES, ids=NAMES)
def test_a_framework_s_file_is_recognised_and_read_token_by_token(
    framework: str, writer: Callable[..., Path], trainer: str | None, more: set[str], tmp_path: Path
):
    batch = load([writer(tmp_path)])
    assert batch.origin.framework == framework
    assert batch.offsets.tolist() == [0, 5, 9]
    assert batch.tokens is not None
    assert batch.tokens.tolist() == TOKENS
    assert batch.trained.tolist() == [bool(each) for each in TRAINED]
    assert batch.behavior is not None
    assert np.array_equal(batch.behavior, np.array(BEHAVIOR, np.float32), equal_nan=True)
    if trainer is not None:
        assert getattr(batch, trainer)[batch.trained].tolist() == PROXIMAL
        assert np.isnan(getattr(batch, trainer)[0])
    assert more <= set(batch.columns)
    _check_facts(batch)


def _check_facts(batch: SavedBatch) -> None:
    if batch.reward is not None:
        assert batch.reward.tolist() == [1.0, 0.0]
    if batch.group is not None:
        assert batch.group.tolist() == [0, 0]
    if batch.step is not None:
        assert batch.step.tolist() == [7, 7]
    if batch.advantage is not None:
        assert batch.advantage[batch.trained].tolist() == [0.5, 0.5, -0.5, -0.5]
    if batch.versions is not None:  # the second was sampled over two versions, nobody knows which token by which
        assert batch.versions.tolist() == [-1, -1, 5, 5, 5, -1, -1, -1, -1]


@pytest.mark.parametrize("writer", [writer for _, writer, _, _ in FILES], ids=NAMES)
def test_log_probs_that_are_one_token_late_are_seen_as_such(writer: Callable[..., Path], tmp_path: Path):
    batch = load([writer(tmp_path, made.shifted)])
    assert batch.behavior is not None
    assert not np.array_equal(batch.behavior, np.array(BEHAVIOR, np.float32), equal_nan=True)


@pytest.mark.parametrize(("framework", "writer", "trainer", "more"), FILES, ids=NAMES)
def test_naming_the_framework_gives_the_same(
    framework: str, writer: Callable[..., Path], trainer: str | None, more: set[str], tmp_path: Path
):
    path = writer(tmp_path)
    assert load([path], framework=framework).columns == load([path]).columns


@pytest.mark.parametrize("writer", [writer for _, writer, _, _ in FILES], ids=NAMES)
def test_a_file_is_found_in_its_folder(writer: Callable[..., Path], tmp_path: Path):
    writer(tmp_path)
    assert len(load([tmp_path])) == 2


def test_miles_has_three_policies_of_the_response_and_ranks_of_a_group_count_once(tmp_path: Path):
    batch = load([made.miles_loss(tmp_path)])
    assert batch.origin.framework == "miles"
    assert batch.offsets.tolist() == [0, 3, 5]
    assert batch.behavior is not None
    assert np.array_equal(batch.behavior, np.array([-0.5, NAN, -1.5, -0.25, -2.0], np.float32), equal_nan=True)
    assert batch.proximal is not None
    assert batch.current is not None
    assert batch.proximal.tolist() == [-0.625, -3.0, -1.25, -0.375, -1.75]
    assert (batch.proximal - batch.current).tolist() == [0.125] * 5
    assert any("2 sequences stood in several files" in note for note in batch.origin.notes)


def test_open_instruct_has_no_mask_so_that_a_tool_s_zero_stands_as_it_is(tmp_path: Path):
    batch = load([made.open_instruct(tmp_path)])
    assert batch.trained.tolist() == [False, False, True, True, True, False, False, True, True]
    assert batch.behavior is not None
    assert batch.behavior[2:5].tolist() == [-0.5, 0.0, -1.5]
    assert batch.finish == ("stop", "stop")
    assert "proximal" in batch.origin.absent
    assert any("no mask" in note for note in batch.origin.notes)


def sglang_answer(**meta: Any) -> dict[str, Any]:
    """As sglang 0.5.21 answers `/generate`, without what is not read."""
    told = {
        "finish_reason": {"type": "length", "length": 3},
        "prompt_tokens": 2,
        "weight_version": "4",
        "num_retractions": 0,
        "output_token_logprobs": [[-0.5, 6, None], [-1.0, 0, None], [-1.5, 1, None]],
        "weight_versions": [{"version": "3", "start": 0, "end": 2}, {"version": "4", "start": 2, "end": 3}],
    }
    return {"output_ids": [6, 0, 1], "meta_info": told | meta}


def test_sglang_names_a_version_per_token_and_of_the_prompt_its_length(tmp_path: Path):
    batch = load([made.jsonl(tmp_path / "answers.jsonl", [sglang_answer()])])
    assert batch.origin.framework == "sglang"
    assert batch.tokens is None
    assert "tokens" in batch.origin.absent
    assert batch.trained.tolist() == [False, False, True, True, True]
    assert batch.behavior is not None
    assert batch.versions is not None
    assert batch.behavior[2:].tolist() == [-0.5, -1.0, -1.5]
    assert batch.versions.tolist() == [-1, -1, 3, 3, 4]
    assert batch.finish == ("length",)
    assert any("not renormalised" in note for note in batch.origin.notes)


@pytest.mark.parametrize(
    "log_probs", [[-0.25, -0.75, -1.25], [[-0.25, -2.0], [-3.0, -0.75], [-1.25]]], ids=["selected", "support"]
)
def test_sglang_s_log_probs_over_a_mask_come_before_those_without(tmp_path: Path, log_probs: list[Any]):
    mask = {"output_token_sampling_mask": [[6, 9], [4, 0], [1]], "output_token_sampling_logprobs": log_probs}
    answer = {"input_ids": [7, 8], **sglang_answer(**mask)}
    batch = load([made.jsonl(tmp_path / "answers.jsonl", [answer])])
    assert batch.tokens is not None
    assert batch.behavior is not None
    assert batch.tokens.tolist() == [7, 8, 6, 0, 1]
    assert batch.behavior[2:].tolist() == [-0.25, -0.75, -1.25]


def test_sglang_s_log_probs_of_other_tokens_are_refused(tmp_path: Path):
    others = sglang_answer(output_token_logprobs=[[-0.5, 6, None], [-1.0, 5, None], [-1.5, 1, None]])
    batch = load([made.jsonl(tmp_path / "answers.jsonl", [sglang_answer(), others])])
    assert any(
        "1 record could not be read" in note and "others than its 3 tokens" in note for note in batch.origin.notes
    )


def test_nemo_rl_of_2025_has_neither_tokens_nor_mask(tmp_path: Path):
    record = {
        "content": ["a"],
        "rewards": [1.0],
        "generation_logprobs": [[0.0, 0.0, -0.5, -1.5, 0.0]],
        "prev_logprobs": [[0.0, -4.0, -0.625, -1.25, 0.0]],
        "input_lengths": [4],
        "idx": 0,
    }
    batch = load([made.jsonl(tmp_path / "train_data_step3.jsonl", [record])])
    assert batch.trained.tolist() == [False, False, True, True]
    assert batch.tokens is None
    assert "tokens" in batch.origin.absent


def test_a_row_that_nemo_rl_masked_is_not_trained(tmp_path: Path):
    import json

    path = made.nemo_rl(tmp_path)
    first, second = path.read_text().splitlines()
    path.write_text(json.dumps(json.loads(first) | {"sample_loss_mask": [0.0]}) + "\n" + second + "\n")
    assert load([path]).trained.tolist() == [False] * 7 + [True] * 2


def test_a_branch_of_a_trace_is_a_path_and_a_short_stream_knows_nothing_of_the_rest(tmp_path: Path):
    nodes = [
        {"parent": None, "token_ids": [1, 2], "mask": [False, False]},
        {"parent": 0, "token_ids": [3, 4], "mask": [False, True], "logprobs": [-0.5]},
        {"parent": 0, "token_ids": [5], "mask": [True], "logprobs": [-1.0]},
    ]
    traces = tmp_path / "traces"
    made.jsonl(traces / "stream.jsonl", [{"id": "e", "traces": [{"id": "t", "nodes": nodes, "info": {}}]}])
    branches = [
        {"index": 1, "trainer_logprobs": [None, None]},
        {"index": 0, "trainer_logprobs": [None, None, None, -0.75]},
    ]
    made.jsonl(traces / "annotations" / "trainer.jsonl", [{"trace_id": "t", "branches": branches}])
    batch = load([traces])
    assert batch.tokens is not None
    assert batch.tokens.tolist() == [1, 2, 3, 4, 1, 2, 5]
    assert batch.current is not None
    assert np.array_equal(batch.current, np.array([NAN, NAN, NAN, -0.75, NAN, NAN, NAN], np.float32), equal_nan=True)
    assert batch.trained.tolist() == [False] * 3 + [True] + [False] * 3


def test_the_rewards_of_a_trace_are_added_by_their_weights(tmp_path: Path):
    nodes = [{"parent": None, "token_ids": [1, 2], "mask": [False, True], "logprobs": [-0.5]}]
    rewards = {"exact": {"score": 2.0, "weight": 0.25}, "form": {"score": 1.0, "weight": None}}
    trace = {"id": "t", "nodes": nodes, "info": {}, "rewards": rewards | {"other": {"score": None, "weight": 3.0}}}
    stream = made.jsonl(tmp_path / "traces" / "stream.jsonl", [{"id": "e", "traces": [trace]}])
    batch = load([stream])
    assert batch.reward is not None
    assert batch.reward.tolist() == [1.5]  # 2/4 + 1, and nothing from what has no score


def test_streams_in_sealed_chunks_are_read_in_order(tmp_path: Path):
    import pyarrow as pa

    plain = made.prime_traces(tmp_path)
    lines = plain.read_bytes().splitlines(keepends=True)
    stream = plain.parent / "stream"
    stream.mkdir()
    codec = pa.Codec("zstd")
    frames = [codec.compress(part, asbytes=True) for part in (lines[0][:40], lines[0][40:])]  # a line over two frames
    skippable = b"\x5e\x2a\x4d\x18\x04\x00\x00\x00seek"
    (stream / "00000.jsonl.zst").write_bytes(b"".join(frames) + skippable)
    (stream / "00001.jsonl").write_bytes(lines[1])
    plain.unlink()
    batch = load([plain.parent])
    assert batch.tokens is not None
    assert batch.tokens.tolist() == TOKENS


def test_each_reader_says_who_writes_its_file_and_no_two_say_the_same():
    assert len({(reader.framework, reader.files) for reader in READERS}) == len(READERS)
    assert all(reader.option for reader in READERS)


def test_the_page_lists_every_reader_and_every_column():
    page = (Path(__file__).parents[3] / "docs" / "records.md").read_text()
    for reader in READERS:
        absent = ", ".join(reader.absent) or "–"
        assert f"| {reader.framework} | {reader.files} | {reader.option} | {absent} |" in page
    for name in (*PER_TOKEN, *PER_SEQUENCE):
        assert f"| `{name}` |" in page
