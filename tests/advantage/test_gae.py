"""Returns and generalised advantages: worked by hand, and the scan against a plain loop."""

from __future__ import annotations

import pytest
import torch

from trimtab.advantage.estimate import advantages
from trimtab.config.advantages import Gae, Normalise, ReinforcePlusPlus, ReMax, Shaping
from trimtab.core.layout import BLOCK, reverse_scan


@pytest.mark.parametrize("length", [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5, BLOCK * BLOCK + 7])
def test_the_scan_is_the_loop(length: int) -> None:
    generator = torch.Generator().manual_seed(length)
    decay = torch.rand(length, generator=generator, dtype=torch.float64) * 1.02
    decay[torch.rand(length, generator=generator) < 0.02] = 0.0
    add = torch.randn(length, generator=generator, dtype=torch.float64)
    running, wanted = 0.0, []
    for at in reversed(range(length)):
        running = float(add[at]) + float(decay[at]) * running
        wanted.append(running)
    before = decay.clone(), add.clone()
    torch.testing.assert_close(reverse_scan(decay, add), torch.tensor(wanted[::-1], dtype=torch.float64))
    assert torch.equal(before[0], decay)
    assert torch.equal(before[1], add)


MASK = torch.tensor([[0, 1, 0, 1, 1, 0]])
VALUES = torch.tensor([[float("nan"), 1.0, 100.0, 2.0, 4.0, float("inf")]])


def test_gae_skips_masked_tokens() -> None:
    # trained values 1, 2, 4; reward 8 at the end; γ = 1/2, λ = 1/2
    # δ₃ = 8 − 4 = 4; δ₂ = 4/2 − 2 = 0; δ₁ = 2/2 − 1 = 0;  A₃ = 4, A₂ = 0 + 4/4 = 1, A₁ = 0 + 1/4
    found = advantages(Gae(gamma=0.5, lam=0.5, normalise=None), rewards=torch.tensor([8.0]), mask=MASK, values=VALUES)
    assert found.advantages.tolist() == [[0.0, 0.25, 0.0, 1.0, 4.0, 0.0]]
    assert found.returns is not None
    assert found.returns.tolist() == [[0.0, 1.25, 0.0, 3.0, 8.0, 0.0]]
    assert found.rows is None


def test_a_masked_token_can_be_a_step_or_an_end() -> None:
    given = {"rewards": torch.tensor([8.0]), "mask": MASK, "values": VALUES}
    # step: the hole has value 0 and reward 0. δ at the hole = 2/2 = 1, A = 1 + 1/4; δ₁ = 0/2 − 1 = −1, A₁ = −1 + 1.25/4
    step = advantages(Gae(gamma=0.5, lam=0.5, gaps="step", normalise=None), **given)
    assert step.advantages.tolist() == [[0.0, -1 + 1.25 / 4, 0.0, 1.0, 4.0, 0.0]]
    # reset: nothing comes from beyond the hole, A₁ = 0 − 1
    reset = advantages(Gae(gamma=0.5, lam=0.5, gaps="reset", normalise=None), **given)
    assert reset.advantages.tolist() == [[0.0, -1.0, 0.0, 1.0, 4.0, 0.0]]


def test_a_separate_lambda_for_the_returns() -> None:
    # λ = 1 for the critic, γ = 1/2: return = discounted reward: 8, 4, 2
    found = advantages(
        Gae(gamma=0.5, lam=0.5, value_lam=1.0, normalise=None), rewards=torch.tensor([8.0]), mask=MASK, values=VALUES
    )
    assert found.advantages.tolist() == [[0.0, 0.25, 0.0, 1.0, 4.0, 0.0]]
    assert found.returns is not None
    assert found.returns.tolist() == [[0.0, 2.0, 0.0, 4.0, 8.0, 0.0]]


def test_lambda_follows_the_length() -> None:
    # α = 1/4, γ = 1: 6 tokens, λ = 1 − 4/6 = 1/3; 2 tokens, λ = max(0, 1 − 2) = 0; 8 tokens, λ = 1/2
    mask = torch.arange(8)[None] < torch.tensor([6, 2, 8])[:, None]
    rewards = torch.tensor([243.0, 9.0, 128.0])
    adaptive = advantages(
        Gae(length_adaptive=0.25, normalise=None), rewards=rewards, mask=mask, values=torch.zeros(3, 8)
    )
    # values 0: A is the reward times λ to the distance
    wanted = [[1.0, 3.0, 9.0, 27.0, 81.0, 243.0, 0.0, 0.0], [0.0, 9.0, *[0.0] * 6], [2.0**at for at in range(8)]]
    torch.testing.assert_close(adaptive.advantages, torch.tensor(wanted))


def test_a_truncated_row_takes_the_value_after_its_end_and_a_finished_one_does_not() -> None:
    # γ = 1/2, λ = 1, values 0: reward 1 and, where truncated, 1/2 · 10 more
    given = {"rewards": torch.tensor([1.0, 1.0]), "mask": torch.tensor([[1, 1, 0], [1, 1, 1]])}
    critic = {"values": torch.zeros(2, 3), "bootstrap": torch.tensor([10.0, float("nan")])}
    estimator, ended = Gae(gamma=0.5, lam=1.0, normalise=None), torch.tensor([False, True])
    found = advantages(estimator, ended=ended, **given, **critic)
    assert found.advantages.tolist() == [[3.0, 6.0, 0.0], [0.25, 0.5, 1.0]]
    assert found.metrics["truncated_rows"] == 1
    # bootstrap: the value instead of the reward; zero: neither; drop: as if it were not there
    wanted = {"bootstrap": [2.5, 5.0, 0.0], "zero": [0.0, 0.0, 0.0], "drop": [0.0, 0.0, 0.0]}
    for no_eos, row in wanted.items():
        found = advantages(estimator, ended=ended, shaping=Shaping(no_eos=no_eos), **given, **critic)
        assert found.advantages[0].tolist() == row
        assert found.advantages[1].tolist() == [0.25, 0.5, 1.0]
        assert found.votes.tolist() == [False, True]
        assert bool(found.trained[0].any()) == (no_eos != "drop")


def test_a_value_that_is_not_finite_fails_its_row_only() -> None:
    values = torch.tensor([[1.0, float("nan")], [1.0, 1.0]])
    found = advantages(
        Gae(lam=1.0, normalise=None), rewards=torch.tensor([5.0, 3.0]), mask=torch.ones(2, 2), values=values
    )
    assert found.advantages.tolist() == [[0.0, 0.0], [2.0, 2.0]]
    assert found.metrics["failed_rows"] == 1


def test_reinforce_plus_plus_discounts_the_reward_to_come() -> None:
    given = {"rewards": torch.tensor([8.0]), "mask": MASK}
    plain = advantages(ReinforcePlusPlus(gamma=0.5, normalise=None), **given)
    assert plain.advantages.tolist() == [[0.0, 2.0, 0.0, 4.0, 8.0, 0.0]]
    step = advantages(ReinforcePlusPlus(gamma=0.5, gaps="step", normalise=None), **given)
    assert step.advantages.tolist() == [[0.0, 1.0, 0.0, 4.0, 8.0, 0.0]]
    # whitened: 2, 4, 8 have mean 14/3, squares 64/9 + 4/9 + 100/9 = 168/9, unbiased variance 28/3
    white = advantages(ReinforcePlusPlus(gamma=0.5, normalise=Normalise(eps=0.0)), **given)
    wanted = (torch.tensor([2.0, 4.0, 8.0]) - 14 / 3) / (28 / 3) ** 0.5
    torch.testing.assert_close(white.advantages[MASK.bool()], wanted)


def test_remax_takes_the_greedy_reward_off_the_reward_to_come() -> None:
    # to come 5, 4, less 3; the second row gets no task reward: nothing comes, and nothing is taken off
    found = advantages(
        ReMax(),
        rewards=torch.tensor([[1.0, 4.0], [9.0, 9.0]]),
        mask=torch.ones(2, 2),
        baselines=torch.tensor([3.0, 100.0]),
        ended=torch.tensor([True, False]),
        shaping=Shaping(no_eos="zero"),
    )
    assert found.advantages.tolist() == [[2.0, 1.0], [0.0, 0.0]]


def test_the_reward_of_a_rejected_last_token_still_reaches_the_others() -> None:
    mask = torch.tensor([[1, 1, 1]])
    kept = torch.tensor([[1, 1, 0]])
    values = torch.zeros(1, 3)
    for rewards in (torch.tensor([6.0]), torch.tensor([[0.0, 0.0, 6.0]])):
        found = advantages(Gae(lam=1.0, normalise=None), rewards=rewards, mask=mask, kept=kept, values=values)
        assert found.advantages.tolist() == [[6.0, 6.0, 6.0]]
        plus = advantages(ReinforcePlusPlus(normalise=None), rewards=rewards, mask=mask, kept=kept)
        assert plus.advantages.tolist() == [[6.0, 6.0, 6.0]]


def test_with_baseline_kept_rejected_tokens_do_not_vote_in_whitening() -> None:
    # advantages 1, 2, 3 and a rejected 3: kept votes 1, 2, 3 have mean 2 and variance 1
    mask, kept = torch.ones(1, 4), torch.tensor([[True, True, True, False]])
    rewards = torch.tensor([[-1.0, -1.0, 0.0, 3.0]])
    white = Normalise(eps=0.0)
    found = advantages(ReinforcePlusPlus(normalise=white, baseline="kept"), rewards=rewards, mask=mask, kept=kept)
    assert found.advantages.tolist() == [[-1.0, 0.0, 1.0, 1.0]]
    # everyone votes: 1, 2, 3, 3 have mean 9/4 and variance (25 + 1 + 9 + 9)/16/3 = 11/12
    everyone = advantages(ReinforcePlusPlus(normalise=white), rewards=rewards, mask=mask, kept=kept)
    wanted = torch.tensor([[-5.0, -1.0, 3.0, 3.0]]) / 4 / (11 / 12) ** 0.5
    torch.testing.assert_close(everyone.advantages, wanted)
