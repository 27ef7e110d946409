"""Files that lack something, are damaged, mixed or not dumps at all; columns by their names; what stands for missing."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from tests.records.dumps import made
from tests.records.rows import row
from trimtab.errors import RecordError
from trimtab.records import RunDirectory
from trimtab.records.dumps import follow, load
from trimtab.records.saved import SavedBatch

NAN = float("nan")


def equal(found: Any, wanted: list[float]) -> bool:
    return np.array_equal(found, np.array(wanted, np.float32), equal_nan=True)


# ── text only ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_dumps_of_text_are_read_and_say_what_brings_the_rest(tmp_path: Path):
    verl = made.jsonl(tmp_path / "7.jsonl", [{"input": "1+1=", "output": "2", "gts": "2", "score": 1.0, "step": 7}])
    swift = made.jsonl(
        tmp_path / "completions.jsonl",
        [{"step": ["7", "7"], "prompt": ["1+1=", "1+1="], "completion": ["2", "3"], "Accuracy": [1.0, 0.0], "advantages": [1, -1]}],
    )  # fmt: skip
    trl = tmp_path / "completions_00007.parquet"
    columns = {
        "step": [7],
        "prompt": ["1+1="],
        "completion": ["2"],
        "exact": [1.0],
        "format": [0.5],
        "advantage": [0.3],
    }
    pq.write_table(pa.table(columns), trl)
    for path, framework, rewards in ((verl, "verl", [1.0]), (swift, "ms-swift", None), (trl, "trl", [1.5])):
        batch = load([path])
        assert batch.origin.framework == framework
        assert batch.text is not None
        assert batch.text[0] == "1+1=2"
        assert batch.step is not None
        assert set(batch.step.tolist()) == {7}
        assert (None if batch.reward is None else batch.reward.tolist()) == rewards
        assert int(batch.offsets[-1]) == 0
        assert {"tokens", "behavior", "proximal"} <= batch.origin.absent.keys()
        assert "Recorder" in batch.origin.absent["proximal"]


def test_a_conversation_is_kept_as_json(tmp_path: Path):
    said = [{"role": "user", "content": "1+1="}]
    swift = {"step": ["7"], "prompt": [said], "completion": ["2"], "Accuracy": [1.0], "advantages": [1]}
    batch = load([made.jsonl(tmp_path / "completions.jsonl", [swift])])
    assert batch.text is not None
    assert batch.text[0] == '[{"role": "user", "content": "1+1="}]2'


@pytest.mark.parametrize(
    "runs", [[[-1, 2], [3, 1], [4, 2]], [[3, 1], [4, 2]]]
)  # over all tokens, or the response alone
def test_areal_has_versions_though_it_has_no_tokens(runs: list[list[int]], tmp_path: Path):
    record = {"task_id": 1, "sample_idx": 0, "seqlen": 5, "prompt_len": 2, "head_version": 3, "tail_version": 4}
    record |= {"version_rle": runs, "reward": 1.0, "prompt": "p", "completion": "c"}
    batch = load([made.jsonl(tmp_path / "1.jsonl", [record])])
    assert batch.versions is not None
    assert batch.versions.tolist() == [-1, -1, 3, 4, 4]
    assert batch.trained.tolist() == [False, False, True, True, True]
    del record["version_rle"]  # as AReaL 1.0 writes it: two versions, nobody knows where one ends
    batch = load([made.jsonl(tmp_path / "1.jsonl", [record])])
    assert batch.versions is not None
    assert batch.versions.tolist() == [-1] * 5


# ── runs of ours ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_run_directory_is_read_with_its_prompts(tmp_path: Path):
    with RunDirectory.create(tmp_path / "run", {}) as run:
        run.rollouts([row(0, 4), row(1, 5, proximal=np.array([-0.5, -1.0], np.float32))])
    batch = load([tmp_path / "run"])
    assert batch.origin.framework == "trimtab"
    assert batch.tokens is not None
    assert batch.tokens.tolist() == [1, 2, 3, 4, 5] * 2
    assert batch.trained.tolist() == [False, False, False, True, False] * 2
    assert equal(batch.behavior, [NAN, NAN, NAN, -0.5, -1.5] * 2)
    assert equal(batch.proximal, [NAN] * 8 + [-0.5, -1.0])
    assert batch.versions is not None
    assert batch.versions.tolist() == [-1, -1, -1, 0, 1] * 2
    assert batch.learner_version is not None
    assert batch.learner_version.tolist() == [0, 1]
    assert any("Only some sequences have proximal" in note for note in batch.origin.notes)


# ── columns by their names ─────────────────────────────────────────────────────────────────────────────────────────────

THEIRS = {"tokens": "ids", "trained": "loss", "behavior": "old", "proximal": "new", "reward": "score"}
IDS = [[1, 2, 3, 4], [5, 6, 7]]
LOSS = [[0, 0, 1, 1], [0, 1, 1]]
OLD = [[-9.0, -8.0, -0.5, -1.0], [-9.0, -0.25, -2.0]]
NEW = [[-9.0, -8.0, -0.625, -1.5], [-9.0, -0.375, -1.75]]


def as_jsonl(folder: Path) -> Path:
    rows = zip(IDS, LOSS, OLD, NEW, [1.0, 0.0], strict=True)
    return made.jsonl(folder / "a.jsonl", [dict(zip(THEIRS.values(), each, strict=True)) for each in rows])


def as_gzip(folder: Path) -> Path:
    path = folder / "a.jsonl.gz"
    path.write_bytes(gzip.compress(as_jsonl(folder).read_bytes()))
    return path


def as_parquet(folder: Path) -> Path:
    table = pa.table(dict(zip(THEIRS.values(), (IDS, LOSS, OLD, NEW, [1.0, 0.0]), strict=True)))
    pq.write_table(table, folder / "a.parquet")
    return folder / "a.parquet"


def packed() -> dict[str, np.ndarray]:
    columns = (np.concatenate([np.array(row) for row in rows]) for rows in (IDS, LOSS, OLD, NEW))
    return dict(zip(THEIRS.values(), (*columns, np.array([1.0, 0.0])), strict=True)) | {"offsets": np.array([0, 4, 7])}


def as_packed_npz(folder: Path) -> Path:
    np.savez(folder / "a.npz", **packed())
    return folder / "a.npz"


def as_padded_npz(folder: Path) -> Path:
    rows = (np.array(made.padded(rows, 4, 0, left=True)) for rows in (IDS, LOSS, OLD, NEW))
    columns = dict(zip(THEIRS.values(), (*rows, np.array([1.0, 0.0])), strict=True))
    np.savez_compressed(folder / "a.npz", **columns, attention=np.array([[1, 1, 1, 1], [0, 1, 1, 1]]))
    return folder / "a.npz"


def as_safetensors(folder: Path) -> Path:
    save_file(packed(), folder / "a.safetensors", metadata={"made": "here"})
    return folder / "a.safetensors"


def test_padding_of_a_response_is_left_out_where_the_prompt_stands_apart(tmp_path: Path):
    rows = {"prompt": [8, 9], "tokens": [5, 6, 0], "attention": [1, 1, 0], "behavior": [-1.0, -2.0, 0.0]}
    batch = load([made.jsonl(tmp_path / "a.jsonl", [rows])])
    assert batch.tokens is not None
    assert batch.tokens.tolist() == [8, 9, 5, 6]
    assert batch.trained.tolist() == [False, False, True, True]
    assert equal(batch.behavior, [NAN, NAN, -1.0, -2.0])


def test_lengths_count_the_response_where_the_prompt_stands_apart_and_the_row_where_it_does_not(tmp_path: Path):
    row = {"tokens": [5, 6, 0], "behavior": [-1.0, -2.0, 0.0], "lengths": 2}
    apart = load([made.jsonl(tmp_path / "apart.jsonl", [{"prompt": [8, 9, 7], **row}])])
    assert apart.tokens is not None
    assert apart.tokens.tolist() == [8, 9, 7, 5, 6]
    assert equal(apart.behavior, [NAN, NAN, NAN, -1.0, -2.0])
    alone = load([made.jsonl(tmp_path / "alone.jsonl", [row])])
    assert alone.tokens is not None
    assert alone.tokens.tolist() == [5, 6]
    for prompt in ({}, {"prompt": [8, 9, 7]}):  # with the prompt counted in, no place would be left out
        path = made.jsonl(tmp_path / "long.jsonl", [{**prompt, **row, "lengths": 5}])
        with pytest.raises(RecordError, match="lengths between 0 and its 3 places, got 5"):
            load([path])


@pytest.mark.parametrize("writer", [as_jsonl, as_gzip, as_parquet, as_packed_npz, as_padded_npz, as_safetensors])
def test_any_table_is_read_by_the_names_of_its_columns(writer: Any, tmp_path: Path):
    batch = load([writer(tmp_path)], columns=THEIRS)
    assert batch.origin.framework == "columns"
    assert batch.offsets.tolist() == [0, 4, 7]
    assert batch.tokens is not None
    assert batch.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert batch.trained.tolist() == [False, False, True, True, False, True, True]
    assert equal(batch.behavior, [*OLD[0], *OLD[1]])
    assert equal(batch.proximal, [*NEW[0], *NEW[1]])
    assert batch.reward is not None
    assert batch.reward.tolist() == [1.0, 0.0]


def test_sequences_without_a_trained_token_are_of_a_group_where_all_of_their_tokens_are_the_same(tmp_path: Path):
    # the second and the third are one prompt of which nothing is trained, the fourth goes on from it
    rows = [([1, 2, 3], [0, 0, 1]), ([1, 2], [0, 0]), ([1, 2], [0, 0]), ([1, 2, 4], [0, 0, 0]), ([1, 2, 9], [0, 0, 1])]
    records = [{"ids": ids, "loss": loss, "old": [-1.0] * len(ids)} for ids, loss in rows]
    columns = {name: THEIRS[name] for name in ("tokens", "trained", "behavior")}
    batch = load([made.jsonl(tmp_path / "a.jsonl", records)], columns=columns)
    assert batch.group is not None
    assert batch.group.tolist() == [0, 0, 0, 1, 0]


def test_log_probs_that_are_one_short_begin_with_the_second_token(tmp_path: Path):
    record = {"tokens": [1, 2, 3], "trained": [0, 1, 1], "behavior": [-0.5, -1.0], "prompt": None, "advantage": 0.5}
    batch = load([made.jsonl(tmp_path / "a.jsonl", [record])], columns={"behavior": "behavior"})
    assert equal(batch.behavior, [NAN, -0.5, -1.0])
    assert equal(batch.advantage, [0.5, 0.5, 0.5])


def test_columns_of_the_response_stand_behind_a_prompt_that_is_named(tmp_path: Path):
    record = {"p": [1, 2], "r": [3, 4], "lp": [-0.5, None]}
    columns = {"prompt": "p", "tokens": "r", "behavior": "lp"}
    batch = load([made.jsonl(tmp_path / "a.jsonl", [record])], columns=columns)
    assert batch.tokens is not None
    assert batch.tokens.tolist() == [1, 2, 3, 4]
    assert equal(batch.behavior, [NAN, NAN, -0.5, NAN])
    assert batch.trained.tolist() == [False, False, True, False]  # no mask: where the sampler said something


def test_a_name_that_is_not_there_is_told_with_the_nearest(tmp_path: Path):
    path = as_jsonl(tmp_path)
    with pytest.raises(RecordError, match=r"needs a column 'odl' for behavior, got none\. Did you mean 'old'\?"):
        load([path], columns={"behavior": "odl"})
    with pytest.raises(RecordError, match=r"got 'behaviour'\. Did you mean 'behavior'\?"):
        load([path], columns={"behaviour": "old"})
    np.savez(tmp_path / "b.npz", old=np.zeros(3))
    with pytest.raises(RecordError, match="needs the ends of its sequences"):
        load([tmp_path / "b.npz"], columns={"behavior": "old"})


def test_arrays_that_are_bombs_code_or_lies_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    columns = {"behavior": "old"}
    path = tmp_path / "a.npz"
    np.savez(path, old=np.array([print], dtype=object))
    with pytest.raises(RecordError, match="Object arrays"):
        load([path], columns=columns)
    np.savez_compressed(path, old=np.zeros((2, 1 << 22)))
    with pytest.raises(RecordError, match="needs to unpack to at most 100 times its size"):
        load([path], columns=columns)
    np.savez(path, old=np.zeros((2, 1 << 16)))
    monkeypatch.setattr("trimtab.records.dumps.room.free_memory", lambda: 4 << 20)
    with pytest.raises(
        RecordError, match=r"needs to fit into 1\.0 MB, a quarter of the memory that is free here, got 1\.0 MB"
    ):
        load([path], columns=columns)
    monkeypatch.undo()
    path = tmp_path / "a.safetensors"
    for entry in (
        {"dtype": "F32", "shape": [2, 4], "data_offsets": [0, 64]},
        {"dtype": "F32", "shape": [2, 1 << 40], "data_offsets": [0, 32]},
        {"dtype": "F32", "shape": [2, -4], "data_offsets": [0, 32]},
        {"dtype": "F32", "shape": [2, 4], "data_offsets": [-8, 24]},
        {"dtype": "F8_E4M3", "shape": [2, 4], "data_offsets": [0, 8]},
        [],
    ):
        header = json.dumps({"old": entry}).encode()
        path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(32))
        with pytest.raises(RecordError, match="needs to be a whole file of arrays"):
            load([path], columns=columns)


# ── files that are not what they should be ─────────────────────────────────────────────────────────────────────────────


def test_files_that_hold_nothing_to_judge_are_one_sentence(tmp_path: Path):
    cases: dict[str, tuple[bytes, str]] = {
        "empty.jsonl": (b"", "needs sequences, got an empty file"),
        "blank.jsonl": (b"\n\n", "needs to be a dump of a framework that is read"),
        "text.txt": (b"hello\n", "needs to be a dump of a framework that is read"),
        "binary.bin": (bytes(range(256)), "needs to be a dump"),
        "config.jsonl": (b'{"lr": 1e-6}\n', "got columns lr"),
        "broken.parquet": (b"PAR1" + bytes(50), "needs to be a whole parquet file"),
        "broken.pt": (b"PK\x03\x04" + bytes(50), "cut off"),
        "broken.npz": (b"PK\x03\x04", "cut off"),
        "list.jsonl": (b"[1, 2]\n", "needs to be a dump"),
    }
    for name, (data, words) in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(RecordError, match=words) as told:
            load([tmp_path / name])
        assert "\n" not in str(told.value)
    with pytest.raises(RecordError, match="needs to exist"):
        load([tmp_path / "absent.jsonl"])
    (tmp_path / "folder").mkdir()
    with pytest.raises(RecordError, match="none that is recognised"):
        load([tmp_path / "folder"])
    with pytest.raises(RecordError, match=r"got 'slim'\. Did you mean 'slime'\?"):
        load([tmp_path / "list.jsonl"], framework="slim")
    with pytest.raises(RecordError, match="at least one file"):
        load([])


SPOILT: list[tuple[dict[str, Any], str]] = [
    ({"reward": "off"}, "one number for reward, got 'off'"),
    ({"reward": [1.0, 2.0]}, "one number for reward, got [1.0, 2.0]"),
    ({"reward": {"score": 1}}, "one number for reward, got {'score': 1}"),
    ({"step": 10**60}, f"one number for step, got {10**39}…"),
    ({"group": ["a", "b"]}, "one value for group, got ['a', 'b']"),
]
LOADING = """
import sys
from pathlib import Path
from trimtab.records.dumps import load
for path in sys.argv[1:]:
    batch = load([Path(path)])
    print(batch.reward.tolist(), *batch.origin.notes)
"""


def test_a_record_with_a_value_that_its_column_cannot_hold_is_left_out_and_told(tmp_path: Path):
    row = {"tokens": [5, 6], "behavior": [-1.0, -2.0], "reward": 1.0, "step": 3, "group": "a"}
    files = [made.jsonl(tmp_path / f"{n}.jsonl", [row, row | spoilt]) for n, (spoilt, _) in enumerate(SPOILT)]
    # In a process of its own: the types that are checked in tests, and nowhere else, would refuse some of them.
    ran = subprocess.run([sys.executable, "-c", LOADING, *map(str, files)], capture_output=True, text=True, check=True)
    for line, (_, told) in zip(ran.stdout.splitlines(), SPOILT, strict=True):
        assert line.startswith("[1.0] ")
        assert "1 record could not be read, the first: " in line
        assert told in line


def test_what_can_be_read_of_a_spoilt_file_is_read_and_the_rest_is_told(tmp_path: Path):
    path = made.nemo_rl(tmp_path)
    first, second = path.read_text().splitlines()
    short = json.loads(second)
    short["token_loss_mask"] = [[1, 1]]
    lacking = {key: value for key, value in json.loads(second).items() if key != "token_ids"} | {
        "generation_logprobs": "x"
    }
    lines = [first, "{not json", json.dumps(short), json.dumps(lacking), "[]", second[: len(second) // 2]]
    path.write_text("\n".join(lines))
    batch = load([path])
    assert len(batch) == 1
    assert any("5 records could not be read, the first: line 2 is no JSON" in note for note in batch.origin.notes)


def test_two_files_are_one_batch_in_the_order_of_their_steps_and_groups_stay_apart(tmp_path: Path):
    for step in (10, 9):
        folder = tmp_path / str(step)
        folder.mkdir()
        made.nemo_rl(folder).rename(tmp_path / f"train_data_step{step}.jsonl")
    batch = load([tmp_path])
    assert batch.step is not None
    assert batch.step.tolist() == [9, 9, 10, 10]
    assert batch.group is not None
    assert batch.group.tolist() == [0, 0, 1, 1]
    assert len(batch.origin.files) == 2


def test_files_of_two_frameworks_are_refused_unless_one_is_named(tmp_path: Path):
    made.nemo_rl(tmp_path)
    made.open_instruct(tmp_path)
    with pytest.raises(RecordError, match="one framework, got"):
        load([tmp_path])
    assert load([tmp_path], framework="nemo-rl").origin.framework == "nemo-rl"


def test_of_a_folder_with_several_files_of_the_same_sequences_the_ones_that_know_most_are_taken(tmp_path: Path):
    made.slime_train(tmp_path)
    for name, writer in (("rollout_data", made.slime_rollout), ("policy_loss_debug", made.miles_loss)):
        (tmp_path / name).mkdir()
        writer(tmp_path / name)
    batch = load([tmp_path])
    assert len(batch) == 2
    assert {"tokens", "behavior", "proximal", "versions", "finish"} <= set(
        batch.columns
    )  # the last two from rollout_data
    assert batch.versions is not None
    assert batch.versions.tolist() == [-1, -1, 5, 5, 5, -1, -1, -1, -1]
    assert sum("Left out" in note for note in batch.origin.notes) == 2
    assert load([tmp_path], framework="miles").current is not None
    assert load([tmp_path / "rollout_data"]).versions is not None


def test_a_refused_file_in_a_folder_leaves_the_others_standing(tmp_path: Path):
    import pickle

    made.nemo_rl(tmp_path)
    (tmp_path / "evil.pkl").write_bytes(pickle.dumps(print))
    batch = load([tmp_path])
    assert len(batch) == 2
    assert any("evil.pkl" in note and "print" in note for note in batch.origin.notes)


def test_reading_stops_where_it_is_asked_to(tmp_path: Path):
    told: list[tuple[int, int]] = []
    batch = load([made.nemo_rl(tmp_path)], most_tokens=3, progress=lambda rows, tokens: told.append((rows, tokens)))
    assert len(batch) == 1
    assert told == [(1, 5)]
    assert any("stopped after 5 tokens" in note for note in batch.origin.notes)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trimtab.records.dumps.jsonl.MOST_LINE", 3 << 20)
    path = made.nemo_rl(tmp_path)
    with path.open("a") as file:
        file.write('{"token_ids": [' + "1," * (3 << 20))
    batch = load([path])
    assert len(batch) == 2
    assert any("needs lines of at most 3 MB" in note for note in batch.origin.notes)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_file_with_bytes_changed_is_a_batch_or_one_sentence(data: st.DataObject, tmp_path: Path):
    writers = (made.nemo_rl, made.slime_rollout, made.prime_export, made.open_instruct)
    folder = tmp_path / str(len(list(tmp_path.iterdir())))
    folder.mkdir()
    path = data.draw(st.sampled_from(writers))(folder)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    with suppress(RecordError):  # whatever else is raised fails the test
        assert isinstance(load([path]), SavedBatch)


# ── a run that goes on ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_folder_is_followed_line_by_line_and_file_by_file(tmp_path: Path):
    lines = made.nemo_rl(tmp_path).read_bytes().splitlines(keepends=True)
    path = tmp_path / "train_data_step7.jsonl"
    path.write_bytes(b"")
    steps = iter(
        [
            lambda: path.write_bytes(lines[0] + lines[1][:20]),  # a line that is being written
            lambda: path.write_bytes(lines[0] + lines[1]),
            lambda: None,
            lambda: (tmp_path / "train_data_step8.jsonl").write_bytes(lines[0]),
        ]
    )

    def wait(_: float) -> bool:
        change = next(steps, None)
        if change is not None:
            change()
        return change is None

    told: list[str] = []
    found = list(follow(tmp_path, wait=wait, tell=told.append))
    assert [len(batch) for batch in found] == [1, 1, 1]
    assert [batch.step.tolist() for batch in found if batch.step is not None] == [[7], [7], [8]]
    assert found[1].tokens is not None
    assert found[1].tokens.tolist() == [11, 12, 31, 32]
    assert len(told) == 1  # at first there was nothing


def test_a_file_that_is_no_text_is_read_once_it_has_stopped_growing(tmp_path: Path):
    whole = made.slime_rollout(tmp_path).read_bytes()
    path = tmp_path / "7.pt"
    steps = iter([lambda: path.write_bytes(whole), lambda: None, lambda: None])
    path.write_bytes(whole[:100])

    def wait(_: float) -> bool:
        change = next(steps, None)
        if change is not None:
            change()
        return change is None

    assert [len(batch) for batch in follow(tmp_path, wait=wait)] == [2]
    other = made.slime_train(tmp_path / "other")
    path.write_bytes(other.read_bytes())  # whole as well, and not what will stand there
    other.unlink()
    steps = iter([lambda: path.write_bytes(whole), lambda: None, lambda: None])
    assert [batch.finish is not None for batch in follow(tmp_path, wait=wait)] == [True]


def test_a_run_of_ours_is_followed_by_its_new_rows(tmp_path: Path):
    run = RunDirectory.create(tmp_path / "run", {"record": {"every": 1}})
    ended = threading.Event()
    turns = iter([0, None, 1, None, None])

    def wait(_: float) -> bool:
        turn = next(turns, "end")
        if turn == "end":
            ended.set()
        elif turn is not None:
            run.rollouts([row(int(turn), 4)])
            run.flush()
        return ended.is_set()

    found = list(follow(tmp_path / "run", wait=wait))
    run.close()
    assert [batch.step.tolist() for batch in found if batch.step is not None] == [[0], [1]]
