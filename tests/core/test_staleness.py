from __future__ import annotations

import pytest
import torch

from trimtab.core.staleness import staleness
from trimtab.errors import InputError


def test_a_sequence_is_as_old_as_its_oldest_token() -> None:
    # learner at 10: ages 0, 3, 1 → oldest 3, span 3; second row one token of age 2; third row masked
    versions = torch.tensor([[10, 7, 9], [8, -1, 3], [1, 1, 1]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0]])
    out = staleness(versions, mask, learner=10)
    assert out.rows.tolist() == [3.0, 2.0, 0.0]
    assert out.dated.tolist() == [True, True, False]
    assert out.tokens.tolist() == [[0.0, 3.0, 1.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    wanted = {
        "staleness/oldest_mean": 2.5,  # (3 + 2) / 2
        "staleness/oldest_max": 3.0,
        "staleness/token_mean": 1.5,  # (0 + 3 + 1 + 2) / 4
        "staleness/spans": 1.5,  # (3 + 0) / 2
        "staleness/coverage": 0.8,  # 4 of 5
    }
    assert {name: round(value.item(), 6) for name, value in out.metrics.items()} == wanted


def test_versions_that_are_floats_or_misshapen_are_refused() -> None:
    with pytest.raises(InputError, match="whole numbers"):
        staleness(torch.zeros(1, 2), torch.ones(1, 2), learner=1)
    with pytest.raises(InputError, match="shape of mask"):
        staleness(torch.zeros(1, 3, dtype=torch.int64), torch.ones(1, 2), learner=1)
