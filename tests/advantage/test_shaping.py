"""Rewards shaped, and how a row ended: worked by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trimtab.advantage.estimate import advantages
from trimtab.advantage.shaping import ended, shaped
from trimtab.config.advantages import Gae, Grpo, Normalise, Overlong, Shaping


def test_bias_comes_before_scale_and_bounds_come_after() -> None:
    # (1 + 1)·3 = 6 ↦ 5; (−1 + 1)·3 = 0 ↦ 1; (0.2 + 1)·3 = 3.6
    shaping = Shaping(bias=1.0, scale=3.0, lower=1.0, upper=5.0)
    found = shaped(shaping, torch.tensor([1.0, -1.0, 0.2]), mask=torch.ones(3, 1))
    torch.testing.assert_close(found.rewards, torch.tensor([5.0, 1.0, 3.6]))


@pytest.mark.parametrize(("cap", "longest"), [(True, -2.0), (False, -3.0)])
def test_the_overlong_penalty_grows_over_the_buffer(cap: bool, longest: float) -> None:
    # buffer 4 before 8: free up to 4 tokens; 5: 2·1/4; 8: 2; 10: 2 if capped, 2·6/4 = 3 if not
    lengths = torch.tensor([4, 5, 8, 10])
    mask = torch.arange(10)[None] < lengths[:, None]
    shaping = Shaping(overlong=Overlong(max_length=8, buffer=4, factor=2.0, cap=cap))
    assert shaped(shaping, torch.zeros(4), mask=mask).rewards.tolist() == [0.0, -0.5, -2.0, longest]


def test_the_overlong_penalty_is_scaled_with_the_reward() -> None:
    shaping = Shaping(bias=1.0, scale=10.0, overlong=Overlong(max_length=2, buffer=2))
    # (3 − 1/2 + 1)·10
    assert shaped(shaping, torch.tensor([3.0]), mask=torch.tensor([[1, 0]])).rewards.tolist() == [35.0]


def test_a_longest_row_that_ended_with_eos_is_not_truncated() -> None:
    # row one fills the width and ends with EOS (2); row two is short and was cut
    tokens, mask = torch.tensor([[5, 6, 2], [5, 6, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert ended(tokens, mask, 2).tolist() == [True, False]
    assert ended(tokens, mask, [2, 6]).tolist() == [True, True]
    assert ended(tokens, torch.tensor([[1, 1, 0], [0, 0, 0]]), 2).tolist() == [False, False]
    assert ended(tokens.flatten(), mask.flatten(), 2, cu_seqlens=torch.tensor([0, 3, 6])).tolist() == [True, False]


@pytest.mark.parametrize("no_eos", ["zero", "bootstrap", "drop"])
@pytest.mark.parametrize("outlier", [1.0, 100.0, float("nan")])
@pytest.mark.parametrize("norm", [{"std": None}, {}, {"leave_one_out": True, "std": None}, {"mean": "group"}])
def test_a_truncated_outlier_does_not_move_a_finished_row(no_eos: Any, outlier: float, norm: dict[str, Any]) -> None:
    # AReaL's example, rewards [1, 1] and [1, 100]: its finished row got 0 and −49.5
    found = shaped(
        Shaping(no_eos=no_eos, normalise=Normalise(**norm)),
        torch.tensor([1.0, outlier]),
        mask=torch.tensor([[1, 0], [1, 1]]),
        ended=torch.tensor([True, False]),
        group=torch.tensor([0, 0]),
    )
    assert found.rewards.tolist() == [0.0, 0.0]
    assert found.votes.tolist() == [True, False]
    assert found.trained[0].tolist() == [True, False]
    assert bool(found.trained[1].any()) == (no_eos != "drop")  # nobody reads its reward, so NaN is no failure


def test_shaping_inside_and_outside_the_call_agree() -> None:
    shaping = Shaping(scale=2.0, no_eos="zero", normalise=Normalise(mean="batch", std=None))
    given = {"mask": torch.ones(3, 2), "ended": torch.tensor([True, True, False])}
    rewards = torch.tensor([1.0, 2.0, 50.0])
    critic = Gae(lam=1.0, normalise=None)
    inside = advantages(critic, rewards=rewards, shaping=shaping, values=torch.zeros(3, 2), **given)
    outside = shaped(shaping, rewards, **given)
    # 2 and 4 have mean 3; the truncated row gets nothing
    assert outside.rewards.tolist() == [-1.0, 1.0, 0.0]
    assert inside.advantages.tolist() == [[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]]


def test_the_votes_of_shaped_rewards_are_handed_on() -> None:
    # 1 and 3 have mean 2; the row cut off would make it 4/3
    given = {"mask": torch.ones(3, 2), "ended": torch.tensor([True, True, False])}
    group, rewards = torch.zeros(3).long(), torch.tensor([1.0, 3.0, 50.0])
    found = shaped(Shaping(no_eos="zero"), rewards, **given)
    assert found.votes.tolist() == [True, True, False]
    on = {"rewards": found.rewards, "mask": found.trained, "group": group}
    rows = advantages(Grpo(std=False), votes=found.votes, **on).rows
    assert rows is not None
    assert rows.tolist() == [-1.0, 1.0, 0.0]
    lost = advantages(Grpo(std=False), kept=found.votes, **on).rows  # as `kept` they are not read with baseline all
    assert lost is not None
    torch.testing.assert_close(lost, torch.tensor([-1.0, 5.0, -4.0]) / 3)


def test_rewards_per_token_of_a_truncated_row_are_gone_and_others_stay() -> None:
    rewards = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = shaped(Shaping(no_eos="zero"), rewards, mask=torch.ones(2, 2), ended=torch.tensor([False, True]))
    assert found.rewards.tolist() == [[0.0, 0.0], [3.0, 4.0]]
