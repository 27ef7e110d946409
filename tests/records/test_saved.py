from __future__ import annotations

import numpy as np
import pytest

from trimtab.errors import InputError
from trimtab.records.saved import Origin, SavedBatch, part_of

ORIGIN = Origin(framework="columns", files=("batch.npz",))


def made(**columns: object) -> SavedBatch:
    offsets, trained = np.array([0, 4, 7]), np.array([0, 0, 1, 1, 0, 1, 0], bool)
    return SavedBatch(origin=ORIGIN, offsets=offsets, trained=trained, **columns)  # pyright: ignore[reportArgumentType]


def test_tokens_know_their_sequence():
    batch = made(reward=np.array([1.0, 0.0]), tokens=np.arange(7))
    assert len(batch) == 2
    assert batch.lengths.tolist() == [4, 3]
    assert batch.sequence.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert batch.columns == ("tokens", "trained", "reward")


@pytest.mark.parametrize(
    ("name", "column"), [("behavior", np.zeros(6, np.float32)), ("reward", np.zeros(3)), ("finish", ("stop",))]
)
def test_a_column_of_another_length_is_refused(name: str, column: object):
    with pytest.raises(InputError, match=f"needs {name} with"):
        made(**{name: column})


def test_a_part_has_the_rows_asked_for_with_all_their_columns():
    batch = made(tokens=np.arange(7), reward=np.array([1.0, 0.0]), finish=("stop", "length"))
    part = part_of(batch, np.array([1, 0, 1]))
    assert part.offsets.tolist() == [0, 3, 7, 10]
    assert part.tokens is not None
    assert part.tokens.tolist() == [4, 5, 6, 0, 1, 2, 3, 4, 5, 6]
    assert part.trained.tolist() == [batch.trained.tolist()[each] for each in part.tokens]
    assert part.reward is not None
    assert part.reward.tolist() == [0.0, 1.0, 0.0]
    assert part.finish == ("length", "stop", "length")
    assert part.behavior is None
    assert len(part_of(batch, np.array([], np.int64))) == 0
