"""The optimal token baseline by hand: each step of a group has a baseline of its own."""

from __future__ import annotations

import pytest
import torch

from trimtab import OptimalToken, advantages
from trimtab.errors import InputError

# Two rows of one prompt, π = 0.5 everywhere, Σπ² = 0.5: each token's energy is 1 − 1 + 0.5 = 0.5
#   row 0   rewards 2 at its end, three tokens   W = 0.5, 1.0, 1.5
#   row 1   reward 1, two tokens, weights 2      energy 2.0 each: W = 2.0, 4.0
#   step 0  (2·0.5 + 1·2.0) / 2.5 = 1.2
#   step 1  (2·1.0 + 1·4.0) / 5.0 = 1.2
#   step 2  row 0 alone
MASK = torch.tensor([[True, True, True], [True, True, False]])
GIVEN = {
    "mask": MASK,
    "rewards": torch.tensor([2.0, 1.0], dtype=torch.float64),
    "group": torch.tensor([7, 7]),
    "proximal": torch.full((2, 3), 0.5, dtype=torch.float64).log(),
    "squares": torch.full((2, 3), 0.5, dtype=torch.float64),
    "weight": torch.tensor([[1.0, 1.0, 1.0], [2.0, 2.0, float("nan")]], dtype=torch.float64),
}


def test_each_step_of_a_group_has_its_own_baseline() -> None:
    found = advantages(OptimalToken(eps=0.0), **GIVEN)
    torch.testing.assert_close(
        found.advantages, torch.tensor([[0.8, 0.8, 2.0], [-0.2, -0.2, 0.0]], dtype=torch.float64)
    )
    own = advantages(OptimalToken(eps=0.0, tail="own"), **GIVEN)
    torch.testing.assert_close(own.advantages[0, 2], torch.zeros((), dtype=torch.float64))
    plain = advantages(OptimalToken(eps=0.0), **(GIVEN | {"weight": None}))
    # without weights the energies are equal: the plain mean 1.5 at both steps
    torch.testing.assert_close(
        plain.advantages, torch.tensor([[0.5, 0.5, 2.0], [-0.5, -0.5, 0.0]], dtype=torch.float64)
    )


def test_steps_are_counted_in_trained_tokens() -> None:
    gap = torch.tensor([[True, False, True, True], [True, True, False, False]])
    wide = {
        name: torch.cat([value[:, :1], value[:, :1] * float("nan"), value[:, 1:]], 1)
        for name, value in GIVEN.items()
        if name in ("proximal", "squares")
    }
    second = {name: torch.cat([value[1:], value[1:, :1]], 1) for name, value in GIVEN.items() if name in wide}
    given = GIVEN | {"mask": gap, "weight": None} | {name: torch.cat([wide[name][:1], second[name]]) for name in wide}
    found = advantages(OptimalToken(eps=0.0), **given)
    torch.testing.assert_close(
        found.advantages, torch.tensor([[0.5, 0.0, 0.5, 2.0], [-0.5, -0.5, 0.0, 0.0]], dtype=torch.float64)
    )


def test_a_row_alone_in_its_group_gets_nothing_or_its_return() -> None:
    given = GIVEN | {"group": torch.tensor([0, 1])}
    assert not advantages(OptimalToken(), **given).advantages.any()
    raw = advantages(OptimalToken(singleton="raw"), **given).advantages
    assert raw.tolist() == [[2.0, 2.0, 2.0], [1.0, 1.0, 0.0]]


def test_a_token_without_its_squares_was_never_trained() -> None:
    squares = GIVEN["squares"].clone()
    squares[0, 0] = float("nan")
    found = advantages(OptimalToken(eps=0.0), **(GIVEN | {"squares": squares}))
    assert found.trained.tolist() == [[False, True, True], [True, True, False]]
    assert found.metrics["unknown_fraction"] == pytest.approx(1 / 5)
    assert found.advantages.isfinite().all()
    with pytest.raises(InputError, match="OptimalToken needs squares, got None"):
        advantages(OptimalToken(), **(GIVEN | {"squares": None}))
