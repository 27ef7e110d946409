"""What stands for a log-prob that nobody knows, and what only looks like it."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab.records.dumps.row import FILLS, float_column, without_fills
from trimtab.records.saved import Origin, SavedBatch

ORIGIN = Origin(framework="columns", files=())


def batch(behavior: list[float], proximal: list[float] | None = None, trained: list[int] | None = None) -> SavedBatch:
    return SavedBatch(
        origin=ORIGIN,
        offsets=np.array([0, len(behavior)]),
        trained=np.array(trained or [1] * len(behavior), bool),
        behavior=np.array(behavior, np.float32),
        proximal=None if proximal is None else np.array(proximal, np.float32),
    )


def missing(found: SavedBatch) -> list[bool]:
    assert found.behavior is not None
    return np.isnan(found.behavior).tolist()


def test_a_zero_outside_the_mask_is_missing_and_one_inside_it_alone_is_not():
    found = without_fills(batch([0.0, -1.0, 0.0], trained=[0, 1, 1]))
    assert missing(found) == [True, False, False]
    assert found.origin.notes == ("behavior: 1 values are 0.0 outside the mask and count as missing.",)


def test_a_trained_zero_is_missing_where_the_trainer_gave_the_token_little():
    found = without_fills(batch([0.0, 0.0, -1.0, -1e-5], [-2.0, -1e-6, -1.1, -1e-5]))
    assert missing(found) == [True, False, False, False]  # the second is a token of probability 1, for both
    assert "all of them trained" in found.origin.notes[0]


def test_zeros_of_columns_that_are_shifted_are_left_for_an_audit_to_see():
    # near-certain tokens (-1e-5, not 0) stand beside improbable ones too: it is the columns that do not match
    found = without_fills(batch([0.0, -1e-5, -2.0, -1e-5], [-2.0, -3.0, -1e-6, -1.5]))
    assert missing(found) == [False] * 4


def test_one_certain_token_in_hundreds_that_the_trainer_doubts_is_no_shift():
    # 1 of 200 is less than one in a hundred: the zero stays missing
    behavior, proximal = [0.0] + [-1e-5] * 200, [-2.0, -1.0] + [-1e-5] * 199
    assert missing(without_fills(batch(behavior, proximal))) == [True] + [False] * 200


@pytest.mark.parametrize("value", [*FILLS, float("-inf"), float("inf"), 3.0])
def test_a_filler_is_missing_wherever_it_stands(value: float):
    found = without_fills(batch([value, -1.0, value], [-1.0, -1.0, -1.0], trained=[1, 1, 0]))
    assert missing(found) == [True, False, True]
    assert "1 of them trained" in found.origin.notes[0]


@pytest.mark.parametrize("value", [-30.000002, -29.5, -99.0, 1e-6, -1e-7])
def test_a_value_near_a_filler_is_a_value(value: float):
    assert missing(without_fills(batch([value, -1.0], [value, -1.0]))) == [False, False]


def test_the_trainer_s_side_is_looked_at_as_well():
    found = without_fills(batch([-2.0, -1.0], [0.0, -30.0]))
    assert found.proximal is not None
    assert np.isnan(found.proximal).tolist() == [True, True]
    assert missing(found) == [False, False]


def test_a_number_beyond_float32_is_infinite_and_so_missing():
    assert float_column([-1.0, -1e300]).tolist() == [-1.0, -np.inf]  # numpy's warning would be an error here
