from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.records.rows import ARRAYS, row
from trimtab.errors import InputError, RecordError
from trimtab.records import RolloutRow, RunDirectory, rows_from, table_of
from trimtab.records.files import utf8_text
from trimtab.records.rollouts import is_recorded

any_text = st.text(alphabet=st.characters(exclude_categories=()))  # lone surrogates and NUL included
small = st.integers(0, 2**31 - 1)


def same(one: RolloutRow, other: RolloutRow, texts: bool = True) -> bool:
    for name in RolloutRow.__dataclass_fields__:
        a, b = getattr(one, name), getattr(other, name)
        if name in ARRAYS:
            agree = (a is None) == (b is None) and (
                a is None or (a.dtype == b.dtype and a.tobytes() == b.tobytes() and a.shape == b.shape)
            )
        elif isinstance(a, str):
            agree = utf8_text(a) == b
        elif isinstance(a, dict):
            agree = [(utf8_text(k), v) for k, v in a.items()] == list(b.items())
        else:
            agree = type(a) is type(b) and a == b
        if not agree:
            return False
    return True


@st.composite
def rows(draw: Any) -> RolloutRow:
    length = draw(st.integers(0, 4))
    floats = hnp.arrays(np.float32, length, elements=st.floats(width=32, allow_nan=True))
    ints = hnp.arrays(np.int32, length)
    bools = hnp.arrays(np.bool_, length)
    return row(
        step=draw(small),
        version=draw(small),
        group=draw(small),
        sample=draw(small),
        problem=draw(any_text),
        prompt=draw(any_text),
        response=draw(any_text),
        prompt_tokens=draw(hnp.arrays(np.int32, draw(st.integers(0, 3)))),
        tokens=draw(ints),
        mask=draw(bools),
        kept=draw(bools),
        versions=draw(ints),
        weight=draw(floats),
        advantage=draw(floats),
        reward=draw(st.floats(allow_nan=False)),
        parts=draw(st.dictionaries(st.text(max_size=3), st.floats(allow_nan=False), max_size=2)),
        correct=draw(st.booleans()),
        finish=draw(st.sampled_from(["stop", "length", "error"])),
        staleness=draw(small),
        failed=draw(st.none() | any_text),
        **{name: draw(st.none() | floats) for name in ("behavior", "raw", "proximal", "current", "reference")},
    )


@given(st.lists(rows(), max_size=4))
def test_every_field_comes_back_bit_for_bit(given: list[RolloutRow]) -> None:
    back = rows_from(table_of(given))
    assert len(back) == len(given)
    assert all(same(one, other) for one, other in zip(given, back, strict=True))


def test_text_that_utf8_cannot_hold_has_the_replacement_character_in_its_place(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {}) as run:
        run.rollouts([row(response="a\0\ud800b\ud83d\ude00\udfff", parts={"\ud800": 1.0})])
        (back,) = rows_from(run.rollout_table())
    assert back.response == "a\0\ufffdb\U0001f600\ufffd"  # a surrogate pair is the character it stands for
    assert back.parts == {"\ufffd": 1.0}


def test_a_row_with_an_array_of_another_length_is_refused() -> None:
    with pytest.raises(InputError, match=r"weight with one value per token \(2\), got 3"):
        row(weight=np.ones(3, np.float32))


def test_a_file_appears_when_its_steps_are_done(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", {"record": {"every": 3}})
    files = []
    for step in range(7):
        run.rollouts([row(step, group) for group in range(2)])
        files.append(sorted(path.name for path in (run.path / "rollouts").iterdir()))
    first, second = "step-000000.parquet", "step-000003.parquet"
    assert files == [[], [], [first], [first], [first], [first, second], [first, second]]
    run.close()
    assert (run.path / "rollouts" / "step-000006.parquet").exists()
    assert RunDirectory.read(run.path).rollout_table().column("step").to_pylist() == [s for s in range(7) for _ in "ab"]


def test_a_file_is_zstd_with_the_schema_in_it(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {}) as run:
        run.rollouts([row()])
    with pq.ParquetFile(tmp_path / "run" / "rollouts" / "step-000000.parquet") as file:
        assert file.metadata.row_group(0).column(0).compression == "ZSTD"
        assert file.schema_arrow.metadata[b"trimtab.schema"] == b"1"


def test_rows_that_come_after_a_flush_join_the_file(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {"record": {"every": 10}}) as run:
        run.rollouts([row(3, 0)])
        run.flush()
        run.rollouts([row(3, 1), row(4, 2)])
    assert [path.name for path in (run.path / "rollouts").iterdir()] == ["step-000000.parquet"]
    assert RunDirectory.read(run.path).rollout_table().column("group").to_pylist() == [0, 1, 2]


def test_some_steps_and_some_columns_can_be_asked_for(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {"record": {"every": 2}}) as run:
        run.rollouts([row(step, step) for step in range(6)])
        table = run.rollout_table(steps=range(1, 4), columns=["group", "reward"])
        assert table.column_names == ["group", "reward"]
        assert table.column("group").to_pylist() == [1, 2, 3]
        assert run.rollout_table(steps=[]).num_rows == 0
        assert run.rollout_table(steps=[99]).num_rows == 0


def test_a_run_without_rollouts_has_an_empty_table(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {}) as run:
        assert rows_from(run.rollout_table()) == []


@given(st.floats(0, 1), st.integers(1, 500))
def test_the_recorded_share_of_groups_is_the_one_asked_for(share: float, groups: int) -> None:
    assert abs(sum(is_recorded(group, share) for group in range(groups)) - groups * share) < 1 + 1e-6


def test_only_the_share_of_groups_is_written(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {"record": {"rollouts": 0.25}}) as run:
        run.rollouts([row(0, group) for group in range(8)])
        assert run.rollout_table().column("group").to_pylist() == [3, 7]  # floor((g + 1) / 4) > floor(g / 4)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path / "run", {}) as run:
        run.rollouts([row()])
    path = run.path / "rollouts" / "step-000000.parquet"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RecordError, match=r"step-000000.parquet needs to be a parquet file of rollouts"):
        RunDirectory.read(run.path).rollout_table()
