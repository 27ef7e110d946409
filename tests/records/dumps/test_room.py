"""Small files that would fill the memory are refused by what they say of themselves, or by what was read of them so far."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import resource
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from tests.records.dumps import made
from trimtab.cli.app import app
from trimtab.errors import RecordError
from trimtab.records.dumps import columns, jsonl, load, room
from trimtab.records.dumps.pickles import pickle_content
from trimtab.records.dumps.pickles.unpickler import NotDataError

NAMED = {"behavior": "old"}
ROW = {"tokens": [1, 2, 3], "behavior": [-0.5, -0.25, -1.0], "proximal": [-0.5, -0.5, -1.0]}


def few(monkeypatch: pytest.MonkeyPatch, megabytes: float) -> None:
    """A machine with so much room for a batch."""
    monkeypatch.setattr(room, "free_memory", lambda: int(megabytes * 1e6) * room.SHARE)


def parquet_bomb(path: Path, count: int) -> Path:
    """One row whose lists hold one number again and again, packed into a few hundred bytes."""
    lists = {name: pa.array([np.full(count, -0.5, np.float32)]) for name in ("behavior", "proximal")}
    pq.write_table(pa.table(lists), path, compression="zstd")
    return path


def test_a_parquet_file_is_refused_by_what_it_says_before_anything_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = parquet_bomb(tmp_path / "a.parquet", 3_000_000)
    assert path.stat().st_size < 30_000
    few(monkeypatch, 40)
    monkeypatch.setattr(columns, "_table_rows", lambda *_: pytest.fail("it was unpacked"))
    with pytest.raises(
        RecordError,
        match=r"a\.parquet needs to fit into 40\.0 MB, a quarter of the memory that is free here, got 300\.\d MB or more",
    ):
        load([path])


def test_the_row_groups_of_a_parquet_file_are_counted_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.parquet"
    table = pa.table({name: pa.array([[-0.5] * 100] * 400) for name in ("behavior", "proximal")})
    pq.write_table(table, path, row_group_size=100)
    few(monkeypatch, 3)
    taken: list[int] = []
    rows = columns._table_rows
    monkeypatch.setattr(
        columns, "_table_rows", lambda block, wanted: taken.append(block.num_rows) or rows(block, wanted)
    )
    with pytest.raises(RecordError, match="needs to fit into"):
        load([path])
    assert 100 <= sum(taken) < 400
    few(monkeypatch, 50)
    assert len(load([path])) == 400


def test_one_text_in_every_row_is_counted_as_often_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.parquet"
    rows = 600
    pq.write_table(
        pa.table({"behavior": [[-0.5]] * rows, "proximal": [[-0.5]] * rows, "text": ["x" * 10_000] * rows}),
        path,
        compression="zstd",
    )
    few(monkeypatch, 3)
    with pytest.raises(RecordError, match="needs to fit into"):
        load([path])


def packed(path: Path, text: bytes) -> Path:
    path.write_bytes(gzip.compress(text))
    return path


def test_a_line_that_unpacks_without_end_is_refused_long_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = packed(tmp_path / "a.jsonl.gz", b'{"behavior": [' + b"-0.5, " * 20_000_000 + b"-0.5]}\n")
    read: list[int] = []
    blocks = jsonl._blocks
    monkeypatch.setattr(jsonl, "_blocks", lambda *asked: (read.append(len(each)) or each for each in blocks(*asked)))
    with pytest.raises(
        RecordError, match=r"needs to unpack to at most 100 times its size, got \d+\.\d MB and more out of"
    ):
        load([path])
    assert sum(read) <= 2 * (room.SMALL_FILE + (2 << 20))  # it is looked into, then read


def test_many_packed_lines_are_counted_as_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    line = json.dumps(ROW).encode() + b"\n"
    path = packed(tmp_path / "a.jsonl.gz", line * 20_000)
    few(monkeypatch, 9)
    with pytest.raises(RecordError, match=r"needs to fit into 9\.0 MB"):
        load([path])
    few(monkeypatch, 100)
    assert len(load([path])) == 20_000


def test_a_line_may_be_as_long_as_its_objects_have_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = made.jsonl(tmp_path / "a.jsonl", [ROW | {"text": "x" * 3_000_000}])
    few(monkeypatch, 64)
    with pytest.raises(RecordError, match="needs lines of at most 1 MB, got a longer one"):
        load([path])
    few(monkeypatch, 640)
    assert len(load([path])) == 1


def test_an_archive_that_unpacks_to_far_more_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.npz"
    np.savez_compressed(path, old=np.zeros((2, 1 << 22)))
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(RecordError, match="needs to unpack to at most 100 times its size, got 67"):
        load([path], columns=NAMED)


def test_an_array_that_says_it_is_larger_than_it_is_gets_no_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive, archive.open("old.npy", "w") as stream:
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (2, 1 << 40)})
        stream.write(bytes(64))
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was unpacked"))
    with pytest.raises(
        RecordError, match=r"needs to be a whole file of arrays, got a damaged one: old\.npy is shorter than it says"
    ):
        load([path], columns=NAMED)


def test_a_copy_of_the_top_of_the_stack_is_none_of_the_operations_of_data(tmp_path: Path):
    path = tmp_path / "a.pkl"
    path.write_bytes(b"\x80\x02]" + b"2" * 1_000_000 + b".")
    with pytest.raises(NotDataError, match="has the operation 0x32, which plain data does not need"):
        pickle_content(path)


def test_single_values_of_a_pickle_are_counted_where_there_is_little_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.pkl"
    path.write_bytes(b"\x80\x02" + b"]" * 100_000 + b".")
    few(monkeypatch, 1)
    with pytest.raises(
        RecordError, match="was not read to its end: it holds more single values than there is memory for"
    ):
        pickle_content(path)
    path.write_bytes(pickle.dumps({"samples": np.zeros(100_000)}))  # one value, however long
    assert pickle_content(path).keys() == {"samples"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.pt", "a.pkl", "a.npz", "a"])
def test_a_pipe_is_no_saved_batch(tmp_path: Path, name: str):
    os.mkfifo(tmp_path / name)
    done = CliRunner().invoke(app, ["audit", str(tmp_path / name)])
    assert done.exit_code == 2
    assert "it is a pipe, no ordinary file" in " ".join(done.output.split())


@pytest.mark.timeout(60)
def test_a_pipe_among_the_files_of_a_folder_is_passed_over(tmp_path: Path):
    os.mkfifo(tmp_path / "b.jsonl")
    made.jsonl(tmp_path / "a.jsonl", [ROW])
    assert len(load([tmp_path])) == 1


@pytest.mark.parametrize(
    "fails", [MemoryError(), np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype(np.float64))]
)
def test_a_lack_of_memory_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: MemoryError):
    path = made.jsonl(tmp_path / "a.jsonl", [ROW])

    def fail(*_: Any, **__: Any) -> Any:
        raise fails

    for place in ("trimtab.records.dumps.row.Gathering.add", "trimtab.audit.audit.audit_batch"):
        with monkeypatch.context() as patched:
            patched.setattr(place, fail)
            done = CliRunner().invoke(app, ["audit", str(path)])
        shown = " ".join(done.output.split())
        assert (done.exit_code, shown.count("error: ")) == (2, 1), shown
        assert "more memory" in shown
        assert "Audit fewer files or sequences at a time" in shown


def test_free_memory_heeds_a_limit_of_the_process():
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    try:
        resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 30), before[1]))
        assert 0 < room.free_memory() <= 1 << 30
        assert room.free_room() == pytest.approx(room.free_memory() / 4, rel=0.2)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert room.free_memory() > 0
