"""Estimators that give a sequence one advantage: worked by hand, and against brute force."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab.advantage.estimate import advantages
from trimtab.config.advantages import (
    Estimator,
    Gae,
    Gdpo,
    Gpg,
    Grpo,
    LeaveOneOut,
    MaxRl,
    Normalise,
    Opo,
    PassK,
    ReinforcePlusPlus,
    ReMax,
    Rloo,
    Shaping,
)
from trimtab.core.correct import correct
from trimtab.errors import ConfigError, InputError
from trimtab.losses.policy import policy_loss

GROUP = torch.tensor([5, 5, 5, 5])


def rows(estimator: Estimator, rewards: list[Any], group: Tensor = GROUP, lengths: list[int] | None = None) -> Tensor:
    """The advantage of each row, in float64."""
    lengths = lengths or [1] * len(rewards)
    mask = torch.arange(max(lengths))[None] < torch.tensor(lengths)[:, None]
    found = advantages(estimator, rewards=torch.tensor(rewards, dtype=torch.float64), mask=mask, group=group)
    assert found.rows is not None
    torch.testing.assert_close(found.advantages, torch.where(mask, found.rows[:, None], 0.0))
    return found.rows


def equal(found: Tensor, wanted: list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(wanted, dtype=torch.float64))


# rewards 1, 0, 0, 0: mean 1/4, squares 9/16 + 3/16 = 3/4
@pytest.mark.parametrize(
    ("estimator", "wanted"),
    [
        (Grpo(std=False), [0.75, -0.25, -0.25, -0.25]),
        # unbiased variance (3/4)/3 = 1/4, deviation 1/2
        (Grpo(eps=0.0), [1.5, -0.5, -0.5, -0.5]),
        (Grpo(eps=0.5), [0.75, -0.25, -0.25, -0.25]),
        # biased variance 3/16, deviation √3/4: 0.75/(√3/4) = √3
        (Grpo(eps=0.0, unbiased=False), [math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3), -1 / math.sqrt(3)]),
        # 1 − 0, 0 − 1/3
        (Rloo(), [1.0, -1 / 3, -1 / 3, -1 / 3]),
        # the others of the 1 agree: not divided. Of a 0 they are 1, 0, 0: mean 1/3, squares 2/3, variance 1/3
        (LeaveOneOut(eps=0.0), [1.0, *[-math.sqrt(3) / 3] * 3]),
        # biased: variance 2/9, deviation √2/3
        (LeaveOneOut(eps=0.0, unbiased=False), [1.0, *[-1 / math.sqrt(2)] * 3]),
        (LeaveOneOut(std=False), [1.0, -1 / 3, -1 / 3, -1 / 3]),
        # held after the baseline and the deviation, not before
        (Rloo(lower=-0.2, upper=0.5), [0.5, -0.2, -0.2, -0.2]),
        (Grpo(eps=0.0, upper=1.0), [1.0, -0.5, -0.5, -0.5]),
        (Grpo(eps=0.0, lower=-0.1), [1.5, -0.1, -0.1, -0.1]),
        # 4 rows, all of a group that differs: times 1; by rows with a reward, of which there is 1: times 4
        (Gpg(), [0.75, -0.25, -0.25, -0.25]),
        (Gpg(factor="nonzero"), [3.0, -1.0, -1.0, -1.0]),
        # mean 1/4: 0.75 · 4, −0.25 · 4
        (MaxRl(eps=0.0), [3.0, -1.0, -1.0, -1.0]),
        # the best adds 1 − 0, nobody else adds anything; deviation 1/2
        (PassK(std=False), [1.0, 0.0, 0.0, 0.0]),
        (PassK(eps=0.0), [2.0, 0.0, 0.0, 0.0]),
        # mean 0 and variance 1 over the rows of Rloo: mean 0, squares 1 + 3/9 = 4/3, variance 4/9, deviation 2/3
        (Rloo(normalise=Normalise(unit="sequence", eps=0.0)), [1.5, -0.5, -0.5, -0.5]),
    ],
    ids=lambda value: repr(value)[:40] if isinstance(value, Estimator) else "",
)
def test_one_success_in_four(estimator: Estimator, wanted: list[float]) -> None:
    equal(rows(estimator, [1.0, 0.0, 0.0, 0.0]), wanted)


def test_opo_weighs_the_mean_by_length() -> None:
    # (1·1 + 3·0 + 2·0 + 4·1)/10 = 1/2
    equal(rows(Opo(), [1.0, 0.0, 0.0, 1.0], lengths=[1, 3, 2, 4]), [0.5, -0.5, -0.5, 0.5])


def test_opo_counts_only_the_tokens_that_vote() -> None:
    # the last row keeps one token of four: (1·1 + 3·0 + 2·0 + 1·1)/7 = 2/7; with `all`, 1/2 as before
    mask = torch.arange(4)[None] < torch.tensor([1, 3, 2, 4])[:, None]
    kept = mask & ~((torch.arange(4) > 0)[None] & (torch.arange(4) == 3)[:, None])
    given = {"rewards": torch.tensor([1.0, 0.0, 0.0, 1.0]), "mask": mask, "group": GROUP, "kept": kept}
    kept_rows, all_rows = advantages(Opo(baseline="kept"), **given).rows, advantages(Opo(), **given).rows
    assert kept_rows is not None
    assert all_rows is not None
    torch.testing.assert_close(kept_rows, torch.tensor([5 / 7, -2 / 7, -2 / 7, 5 / 7]))
    torch.testing.assert_close(all_rows, torch.tensor([0.5, -0.5, -0.5, 0.5]))


def test_grpo_can_divide_by_the_deviation_of_the_batch() -> None:
    # groups (0, 2) and (1, 1): means 1 and 1; batch 0, 2, 1, 1: mean 1, squares 2, variance 2/3
    group = torch.tensor([0, 0, 1, 1])
    equal(
        rows(Grpo(std_over="batch", eps=0.0), [0.0, 2.0, 1.0, 1.0], group), [-math.sqrt(1.5), math.sqrt(1.5), 0.0, 0.0]
    )


def test_gpg_as_in_verl_counts_rows_with_a_reward_in_the_whole_batch() -> None:
    # 5 rows, 2 of them with a reward: 5/2 · (1/2, −1/2, 2/3, −1/3, −1/3)
    group = torch.tensor([0, 0, 1, 1, 1])
    found = rows(Gpg(factor="nonzero"), [1.0, 0.0, 1.0, 0.0, 0.0], group)
    equal(found, [1.25, -1.25, 5 / 3, -5 / 6, -5 / 6])


def test_gpg_as_in_the_paper_makes_up_for_the_rows_of_groups_that_agree() -> None:
    # B = 8, M = 4 in the group that agrees: 8/4 = 2 on (3/4, −1/4, −1/4, −1/4). verl: 8 rows / 5 with a reward = 1.6
    rewards, group = [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0], torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    equal(rows(Gpg(), rewards, group), [0.0] * 4 + [1.5, -0.5, -0.5, -0.5])
    equal(rows(Gpg(factor="nonzero"), rewards, group), [0.0] * 4 + [1.2, -0.4, -0.4, -0.4])
    # groups of zeros agree as well, and a single row agrees with itself: 4 rows / 2
    equal(rows(Gpg(), [0.0, 5.0, 1.0, 0.0], torch.tensor([0, 1, 2, 2])), [0.0, 0.0, 1.0, -1.0])
    equal(rows(Gpg(), [1.0, 1.0], torch.tensor([0, 0])), [0.0, 0.0])  # nothing differs: nothing is divided by 0


def test_maxrl_gives_zero_where_the_mean_is_not_positive() -> None:
    group = torch.tensor([0, 0, 1, 1, 2, 2])
    # means 0 and −1/2: nothing; mean 1: (2 − 1)/1
    equal(rows(MaxRl(eps=0.0), [1.0, -1.0, 0.0, -1.0, 2.0, 0.0], group), [0.0, 0.0, 0.0, 0.0, 1.0, -1.0])


@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("rewards", [[-0.1, -0.2, 0.3], [0.7, -0.3, -0.4], [1e6, -999999.9, -0.1]])
def test_maxrl_takes_a_mean_that_is_only_rounding_for_zero(rewards: list[float], kind: torch.dtype) -> None:
    found = advantages(
        MaxRl(), rewards=torch.tensor(rewards, dtype=kind).clamp(-6e4, 6e4), mask=torch.ones(3, 1), group=GROUP[:3]
    )
    assert not found.advantages.any()


def test_maxrl_still_divides_by_a_small_mean_of_rewards_that_do_not_cancel() -> None:
    # mean 1e-9: (3e-9 − 1e-9)/1e-9 = 2
    equal(rows(MaxRl(eps=0.0), [3e-9, 0.0, 0.0], GROUP[:3]), [2.0, -1.0, -1.0])


def test_gdpo_normalises_each_reward_before_adding_them() -> None:
    # column one: mean 0, deviation √2 (squares 2, variance 2); column two: mean 20, squares 200, deviation √200
    # (±1/√2) + 0.5·(±1/√2): the scale of the second reward does not count
    found = rows(Gdpo(weights=(1.0, 0.5), eps=0.0, normalise=None), [[1.0, 10.0], [-1.0, 30.0]], GROUP[:2])
    equal(found, [0.5 / math.sqrt(2), -0.5 / math.sqrt(2)])


def test_gdpo_can_leave_the_row_itself_out() -> None:
    # rewards 1, 0, 0, 0 in both columns: NeMo-RL's 1 and −1/√3, once and half
    found = rows(Gdpo(weights=(1.0, 0.5), eps=0.0, leave_one_out=True, normalise=None), [[1.0, 1.0], *[[0.0, 0.0]] * 3])
    equal(found, [1.5, *[-1.5 / math.sqrt(3)] * 3])


def test_reinforce_plus_plus_holds_the_reward_after_the_baseline() -> None:
    # rewards 5, 1: less the mean 3 they are ±2, held within [−1, 1.5]; without a baseline 5 and 1 are both held at 1
    mask = torch.ones(2, 2)
    rewards, group = torch.tensor([5.0, 1.0]), torch.tensor([0, 0])
    centred = ReinforcePlusPlus(group_mean=True, lower=-1.0, upper=1.5, normalise=None)
    found = advantages(centred, rewards=rewards, mask=mask, group=group).advantages
    assert found.tolist() == [[1.5, 1.5], [-1.0, -1.0]]
    plain = ReinforcePlusPlus(lower=-1.0, upper=1.0, normalise=None)
    assert advantages(plain, rewards=rewards, mask=mask).advantages.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    with pytest.raises(InputError, match="one reward per sequence"):
        advantages(plain, rewards=torch.ones(2, 2), mask=mask)


def test_a_lower_bound_pays_nothing_to_a_row_without_a_reward() -> None:
    mask, rewards = torch.ones(2, 1), torch.tensor([3.0, float("nan")])
    estimator = ReinforcePlusPlus(lower=1.0, normalise=None)
    assert advantages(estimator, rewards=rewards, mask=mask).advantages.tolist() == [[3.0], [0.0]]


@pytest.mark.parametrize("kind", [Grpo, Rloo, ReinforcePlusPlus])
def test_crossed_bounds_are_refused(kind: Any) -> None:
    with pytest.raises(ConfigError, match="lower <= upper"):
        kind(lower=1.0, upper=0.0)


@pytest.mark.parametrize("k", [2, 3, 4, 7, None])
@pytest.mark.parametrize("rewards", [[0.3, -1.0, 2.5, 0.3, 1.1], [1.0, 1.0, 0.0, 0.0, 0.0], [2.0, 5.0]])
def test_pass_at_k_is_the_mean_gain_over_subsets(k: int | None, rewards: list[float]) -> None:
    size = min(k or len(rewards), len(rewards))

    def gain(row: int) -> float:
        others = [reward for at, reward in enumerate(rewards) if at != row]
        chosen = list(itertools.combinations(others, size - 1))
        return sum(max(rewards[row], *rest) - max(rest) for rest in chosen) / len(chosen)

    other = [9.0, -9.0]  # another group must not enter
    group = torch.tensor([1, *[0] * len(rewards), 1])
    found = rows(PassK(k=k, std=False), [other[0], *rewards, other[1]], group)[1:-1]
    equal(found, [gain(row) for row in range(len(rewards))])


@pytest.mark.parametrize(
    "rewards", [[0.1, 0.3, 0.3], [0.7, 0.3, 0.7], [0.7, 0.1, -0.2, 0.7], [-0.2, 0.7, 0.1, 0.7, 0.7]]
)
@pytest.mark.parametrize("k", [3, None])
def test_who_gains_nothing_at_k_gets_exactly_nothing(rewards: list[float], k: int | None) -> None:
    # another row of every subset is as good: what rounding leaves of the difference would later be divided by eps
    found = rows(PassK(k=k, std=False), rewards, torch.zeros(len(rewards), dtype=torch.int64))
    best = torch.tensor(rewards) == max(rewards)
    assert not found[~best].any()
    assert (found[best] == found[best][0]).all()
    assert bool(found.any()) == (k == 3 and len(rewards) > 3)  # of a whole group with two best, not even they


def test_a_group_that_gains_nothing_is_not_divided_by_a_rounding() -> None:
    # the gains are 0, 0, 0 and 0, 1, 0: mean 1/6; the first group has no deviation, the second √(1/3)
    norm = Normalise(mean="batch", std="group", unit="sequence", eps=1e-6, eps_at="std")
    found = rows(PassK(std=False, normalise=norm), [0.1, 0.3, 0.3, 0.0, 1.0, 0.0], torch.tensor([0, 0, 0, 1, 1, 1]))
    deviation = math.sqrt(1 / 3) + 1e-6
    equal(found, [-1 / 6, -1 / 6, -1 / 6, -1 / 6 / deviation, 5 / 6 / deviation, -1 / 6 / deviation])


@pytest.mark.parametrize("estimator", [Grpo(), Rloo(), LeaveOneOut(), Opo(), Gpg(), Gpg(factor="nonzero")], ids=str)
def test_a_group_of_one_gets_zero_or_its_raw_reward_as_asked(estimator: Estimator) -> None:
    group, rewards = torch.tensor([0, 1, 1]), [7.0, 1.0, 0.0]
    assert rows(estimator, rewards, group)[0] == 0
    # one vote: mean 0 and deviation 1, so 7/(1 + eps) for GRPO and 7 elsewhere; verl's factor for GPG is 3 rows over 2
    raw = {Grpo(): 7 / (1 + 1e-6), Gpg(factor="nonzero"): 10.5}.get(estimator, 7.0)
    torch.testing.assert_close(
        rows(estimator.but(singleton="raw"), rewards, group)[0], torch.tensor(raw, dtype=torch.float64)
    )


def test_the_others_agreeing_to_the_last_bit_is_no_deviation() -> None:
    # Σd² − d²·n/(n − 1) leaves 1e-16 of rounding for the others of 0.9: divided by its root, 0.8 would be 8e7
    found = rows(LeaveOneOut(eps=0.0), [0.1, 0.1, 0.9], torch.zeros(3, dtype=torch.int64))
    torch.testing.assert_close(found[-1], torch.tensor(0.8, dtype=torch.float64))


VARIANTS: list[Estimator] = [
    *(Grpo(), Grpo(std=False), Grpo(std_over="batch"), Rloo(), LeaveOneOut(), Opo(), Gpg(), MaxRl()),
    Gpg(factor="nonzero"),
    *(PassK(), PassK(k=2), Gdpo(weights=(1.0, 0.5)), ReinforcePlusPlus(), ReinforcePlusPlus(group_mean=True)),
    *(Gae(), Gae(normalise=Normalise(mean="group", std=None)), ReMax(normalise=Normalise())),
    *(Rloo(normalise=Normalise(unit="sequence")), Grpo(normalise=Normalise(mean="group", std="group"))),
]


@pytest.mark.parametrize("estimator", VARIANTS, ids=lambda each: repr(each)[:60])
def test_with_baseline_kept_a_rejected_row_is_as_if_it_were_not_there(estimator: Any) -> None:
    estimator = estimator.but(baseline="kept")
    generator = torch.Generator().manual_seed(3)
    mask = torch.arange(4)[None] < torch.tensor([1, 4, 2, 3, 4, 2, 3])[:, None]
    stays = torch.tensor([True, True, False, True, True, False, True])
    group, values = torch.tensor([0, 1, 0, 0, 1, 1, 0]), torch.randn(7, 4, generator=generator)
    rewards = torch.tensor([1.0, 0.0, 50.0, 0.0, 2.0, -30.0, 1.0])
    if estimator.kind == "gdpo":
        rewards = torch.stack([rewards, rewards.square()], -1)

    def found(chosen: Tensor, kept: Tensor | None) -> Tensor:
        needs = {"gae": {"values": values[chosen]}, "remax": {"baselines": rewards[chosen] / 2}}
        given = {"rewards": rewards[chosen], "mask": mask[chosen], "group": group[chosen], "kept": kept}
        return advantages(estimator, **given, **needs.get(estimator.kind, {})).advantages

    everyone = torch.ones_like(stays)
    without = found(stays, None)
    assert without.abs().max() > 0.1
    torch.testing.assert_close(found(everyone, stays)[stays], without)
    assert not torch.allclose(found(everyone, None)[stays], without)  # with a vote it would count


@pytest.mark.parametrize("estimator", [Grpo(eps=0.0), Rloo(), Grpo(std=False)], ids=["grpo", "rloo", "centred"])
@pytest.mark.parametrize("second", [1.0, 100.0])
def test_with_baseline_kept_a_rejected_sibling_leaves_the_group(estimator: Estimator, second: float) -> None:
    # rewards [1, 1] and [1, 100] with the second row out: row one is alone either way
    mask = torch.ones(2, 3, dtype=torch.bool)
    given = {"rewards": torch.tensor([1.0, second]), "mask": mask, "group": torch.tensor([0, 0])}
    found = advantages(estimator.but(baseline="kept"), kept=torch.tensor([True, False]), **given)
    assert found.advantages.tolist() == [[0.0] * 3, [0.0] * 3]
    assert found.votes.tolist() == [True, False]
    assert found.metrics["nonvoting_rows"] == 1


def test_a_rejected_sibling_votes_and_gets_no_gradient() -> None:
    # rewards 1, 0, 5 have mean 2; the third row drifts by e and is rejected, so its 3 pushes nothing
    proximal, behavior = torch.full((3, 2), -1.0), torch.full((3, 2), -1.0)
    behavior[2] -= 1.0
    out = correct("geo-rs", proximal=proximal, behavior=behavior, mask=torch.ones(3, 2))
    assert out.kept[:, 0].tolist() == [True, True, False]
    given = {"rewards": torch.tensor([1.0, 0.0, 5.0]), "mask": torch.ones(3, 2), "group": torch.zeros(3).long()}
    found = advantages(Grpo(std=False), kept=out.kept, **given)
    assert found.rows is not None
    assert found.rows.tolist() == [-1.0, -2.0, 3.0]
    assert found.votes.tolist() == [True, True, True]
    assert torch.equal(found.advantages, advantages(Grpo(std=False), **given).advantages)
    current = proximal.clone().requires_grad_()
    loss = policy_loss(
        "clip", current=current, proximal=proximal, mask=torch.ones(3, 2), advantages=found.advantages, correction=out
    )
    loss.loss.backward()
    assert current.grad is not None
    # −A over the six tokens of the step
    torch.testing.assert_close(current.grad, torch.tensor([[1.0] * 2, [2.0] * 2, [0.0] * 2]) / 6)


@pytest.mark.parametrize("baseline", ["all", "kept"])
def test_a_row_that_was_given_no_vote_is_not_heard_whatever_the_baseline(baseline: Any) -> None:
    # without the third row: 1 and 3 have mean 2
    given = {"mask": torch.ones(3, 2), "group": torch.zeros(3).long(), "votes": torch.tensor([1, 1, 0])}
    for other in (5.0, -100.0, float("nan")):
        found = advantages(Grpo(std=False, baseline=baseline), rewards=torch.tensor([1.0, 3.0, other]), **given)
        assert found.rows is not None
        assert found.rows.tolist() == [-1.0, 1.0, 0.0]
        assert found.votes.tolist() == [True, True, False]
        assert found.trained.all()  # it stays in the batch, as a row cut off does
        assert found.metrics["failed_rows"] == 0


def test_rewards_per_token_come_on_top_of_the_rows_advantage() -> None:
    # the row's 1/2 and −1/2, and what is still to come of −1, −2, −4 (the middle one masked)
    found = advantages(
        Grpo(std=False),
        rewards=torch.tensor([1.0, 0.0]),
        mask=torch.tensor([[1, 0, 1], [1, 1, 0]]),
        group=torch.tensor([3, 3]),
        token_rewards=torch.tensor([[-1.0, -2.0, -4.0], [0.0, 1.0, 9.0]]),
    )
    assert found.advantages.tolist() == [[-4.5, 0.0, -3.5], [0.5, 0.5, 0.0]]
    assert found.rows is None


def test_a_row_without_a_finite_reward_failed() -> None:
    found = advantages(
        Grpo(std=False),
        rewards=torch.tensor([1.0, float("nan"), 3.0]),
        mask=torch.ones(3, 2),
        group=torch.zeros(3, dtype=torch.int64),
    )
    assert found.rows is not None
    assert found.rows.tolist() == [-1.0, 0.0, 1.0]
    assert found.trained.tolist() == [[True, True], [False, False], [True, True]]
    assert found.metrics["failed_rows"] == 1
    assert found.metrics["reward_mean"] == 2


def test_whitening_over_tokens_counts_a_long_row_often() -> None:
    # centred 1/2 and −1/2; tokens 1 and 3: mean −1/4, squares 1·9/16 + 3·1/16 = 3/4, unbiased variance 1/4
    # (1/2 + 1/4)/(1/2) = 3/2, (−1/2 + 1/4)/(1/2) = −1/2
    found = rows(Grpo(std=False, normalise=Normalise(eps=0.0)), [1.0, 0.0], torch.tensor([0, 0]), lengths=[1, 3])
    equal(found, [1.5, -0.5])
    # the baseline form of REINFORCE++ is the same number
    mask = torch.tensor([[1, 0, 0], [1, 1, 1]])
    plus = advantages(
        ReinforcePlusPlus(group_mean=True, normalise=Normalise(eps=0.0)),
        rewards=torch.tensor([1.0, 0.0]),
        mask=mask,
        group=torch.tensor([0, 0]),
    )
    torch.testing.assert_close(plus.advantages, torch.tensor([[1.5, 0.0, 0.0], [-0.5, -0.5, -0.5]]))


def test_shaping_comes_before_the_group() -> None:
    # 0 and 10 become 0 and 2: 0 ↦ (0 + 0)·1, 10 ↦ 2; mean 1
    found = advantages(
        Grpo(std=False),
        rewards=torch.tensor([0.0, 10.0]),
        mask=torch.ones(2, 1),
        group=torch.tensor([0, 0]),
        shaping=Shaping(upper=2.0),
    )
    assert found.rewards.tolist() == [0.0, 2.0]
    assert found.advantages.tolist() == [[-1.0], [1.0]]
