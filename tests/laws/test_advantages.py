"""What holds for every estimator, with every shaping and normalisation, on every batch."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.laws.rollout_ranks import in_ranks
from tests.laws.rollouts import FEW, PER_TOKEN, Rollouts, Way, estimators, rollouts, ways
from trimtab.advantage.estimate import Advantages, advantages
from trimtab.advantage.shaping import shaped
from trimtab.config.advantages import (
    ESTIMATORS,
    Distillation,
    Gae,
    Gdpo,
    Grpo,
    MaxRl,
    Normalise,
    OptimalToken,
    ReinforcePlusPlus,
    ReMax,
    Rloo,
    Shaping,
)

HARMFUL = st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e10, -1e10])
RESULTS = ("advantages", "returns", "rows")


def same(one: Advantages, other: Advantages, exact: bool = False, **chosen: Any) -> None:
    """Equal results; `tokens` and `rows` pick the part of the first that the second has."""
    tokens, rows = chosen.get("tokens", slice(None)), chosen.get("rows", slice(None))
    tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 1e-4, "atol": 2e-5}
    for name in RESULTS:
        left, right = getattr(one, name), getattr(other, name)
        assert (left is None) == (right is None)
        if left is not None:
            picked = left[rows] if name == "rows" else left[tokens]
            torch.testing.assert_close(picked, right, **tolerance, msg=lambda text, name=name: f"{name}: {text}")


def same_metrics(one: Advantages, other: Advantages) -> None:
    assert one.metrics.keys() == other.metrics.keys()
    for name in one.metrics:
        torch.testing.assert_close(
            one.metrics[name], other.metrics[name], msg=lambda text, name=name: f"{name}: {text}"
        )


# Masked values never matter


@FEW
@given(ways(), rollouts(), HARMFUL)
def test_masked_values_never_matter(way: Way, it: Rollouts, harm: float) -> None:
    poisoned = {
        name: torch.where(it.mask, getattr(it, name), harm)
        for name in ("values", "token_rewards", "dense_rewards", "teacher", "proximal", "squares", "weight")
    }
    clean, other = way(it), way(it.but(**poisoned))
    same(clean, other, exact=True)
    same_metrics(clean, other)


@FEW
@given(ways(), rollouts())
def test_what_is_not_trained_has_advantage_zero(way: Way, it: Rollouts) -> None:
    found = way(it)
    assert not found.advantages[~it.mask].any()
    assert not found.advantages[~found.trained].any()
    assert not (found.trained & ~it.mask).any()
    assert found.advantages.isfinite().all()


@FEW
@given(ways(), rollouts())
def test_a_batch_without_trained_tokens_gives_exact_zeros(way: Way, it: Rollouts) -> None:
    found = way(it.but(mask=torch.zeros_like(it.mask)))
    assert not found.advantages.any()
    assert all(value.isfinite() for value in found.metrics.values())


@FEW
@given(ways(), rollouts(), st.integers(1, 3))
def test_padding_is_invisible(way: Way, it: Rollouts, extra: int) -> None:
    wide = {
        name: torch.nn.functional.pad(getattr(it, name), (0, extra), value=name not in ("mask", "kept"))
        for name in PER_TOKEN
    }
    found = way(it.but(**wide))
    assert not found.advantages[:, -extra:].any()
    same(found, way(it), tokens=(slice(None), slice(0, -extra)))


# A removed row never votes


@pytest.mark.parametrize("kind", ESTIMATORS)
@settings(max_examples=8)
@given(rollouts(least=2), st.data())
def test_a_rejected_row_never_votes(kind: str, it: Rollouts, data: st.DataObject) -> None:
    way = data.draw(ways(("kept",), named=kind))
    gone = data.draw(st.integers(0, len(it.lengths) - 1))
    kept = it.kept.clone()
    kept[gone] = False
    it = it.but(kept=kept)
    others = [row for row in range(len(it.lengths)) if row != gone]
    before = way(it)
    _others_agree(before, way(_changed(it, gone, data)), others, exact=True)
    _others_agree(before, way(it.rows(others)), others, exact=False, dropped=True)


@pytest.mark.parametrize("kind", ESTIMATORS)
@settings(max_examples=8)
@given(rollouts(least=2), st.data())
def test_a_row_without_a_task_reward_changes_nothing_for_any_other(
    kind: str, it: Rollouts, data: st.DataObject
) -> None:
    way = data.draw(ways(no_eos=("zero", "bootstrap", "drop"), named=kind))
    truncated = data.draw(st.integers(0, len(it.lengths) - 1))
    ended = it.ended.clone()
    ended[truncated] = False
    it = it.but(ended=ended)
    others = [row for row in range(len(it.lengths)) if row != truncated]
    before = way(it)
    _others_agree(before, way(_changed(it, truncated, data)), others, exact=True)
    _others_agree(before, way(it.rows(others)), others, exact=False, dropped=True)


@pytest.mark.parametrize("kind", ESTIMATORS)
@settings(max_examples=8)
@given(rollouts(), st.data())
def test_with_baseline_all_what_a_gate_rejects_changes_no_advantage(
    kind: str, it: Rollouts, data: st.DataObject
) -> None:
    way = data.draw(ways(("all",), named=kind))
    found, nothing_kept = way(it), way(it.but(kept=torch.zeros_like(it.kept)))
    same(found, nothing_kept, exact=True)
    same_metrics(found, nothing_kept)


@pytest.mark.parametrize("kind", ESTIMATORS)
@settings(max_examples=8)
@given(rollouts(), st.data())
def test_a_row_without_a_vote_is_one_that_was_cut_off(kind: str, it: Rollouts, data: st.DataObject) -> None:
    way = data.draw(ways(no_eos=("keep",), named=kind))
    cut = Way(way.estimator, way.shaping.but(no_eos="zero"), way.dense, way.extra)
    nothing_after = {"bootstrap": None}  # no_eos zero ends a row at 0, keep at the value given
    voted, ended = way(it, votes=it.ended, **nothing_after), cut(it, **nothing_after)
    same(voted, ended, exact=True)
    same_metrics(voted, ended)
    assert torch.equal(voted.votes, ended.votes)


@FEW
@given(ways(no_eos=("keep", "zero", "drop")), rollouts())
def test_shaped_rewards_and_their_votes_give_the_same_advantages(way: Way, it: Rollouts) -> None:
    assume(not isinstance(way.estimator, Gdpo))
    it, baseline = it.double().but(), way.estimator.baseline
    given = {"ended": it.ended, "kept": it.kept, "group": it.group, "baseline": baseline}
    made = shaped(way.shaping, it.dense_rewards if way.dense else it.rewards, mask=it.mask, **given)
    after = Way(way.estimator, Shaping(), way.dense, way.extra)
    handed = it.but(mask=made.trained, **{"dense_rewards" if way.dense else "rewards": made.rewards})
    found, wanted = after(handed, votes=made.votes, bootstrap=None), way(it, bootstrap=None)
    assert torch.equal(found.votes, wanted.votes)
    trained = (
        it.mask if baseline == "all" else it.mask & it.kept
    )  # what is rejected gets nothing from votes of kept rows
    torch.testing.assert_close(found.advantages[trained], wanted.advantages[trained], rtol=1e-6, atol=1e-8)


@FEW
@given(ways(no_eos=("keep",)), rollouts(least=2), st.data())
def test_a_row_that_failed_is_as_if_it_were_not_there(way: Way, it: Rollouts, data: st.DataObject) -> None:
    failed = data.draw(st.integers(0, len(it.lengths) - 1))
    harm = data.draw(st.sampled_from([float("nan"), float("inf"), -float("inf")]))
    assume(it.mask[failed].any())
    broken = {name: getattr(it, name).clone() for name in ("rewards", "columns", "dense_rewards")}
    for each in broken.values():
        each[failed] = harm
    others = [row for row in range(len(it.lengths)) if row != failed]
    found = way(it.but(**broken))
    _others_agree(found, way(it.rows(others)), others, exact=False, dropped=True)
    assert not found.advantages[failed].any()
    assert not found.trained[failed].any()
    assert found.metrics["failed_rows"] == 1


@FEW
@given(ways(("kept",)), rollouts(), st.data())
def test_padding_rows_and_duplicates_weigh_nothing(way: Way, it: Rollouts, data: st.DataObject) -> None:
    number = len(it.lengths)
    copies = data.draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=3))
    more = it.rows([*range(number), *copies])
    mask = more.mask.clone()
    mask[number:] = False
    same(way(more.but(mask=mask)), way(it), tokens=slice(0, number), rows=slice(0, number))


@FEW
@given(estimators(("kept",), plain=True), rollouts(rejecting=False), st.booleans())
def test_rejecting_tokens_removes_no_reward(estimator: Any, it: Rollouts, dense: bool) -> None:
    # every row loses its last token, where the reward sits, and keeps another
    last = it.mask & (it.mask.flip(-1).cumsum(-1).flip(-1) == 1)
    several = it.mask.sum(-1, keepdim=True) > 1
    assume(
        several.any() and estimator.kind not in ("opo", "optimal-token")
    )  # OPO's baseline weighs rows by the tokens that stay
    way = Way(estimator, Shaping(), dense=dense and estimator.kind != "gdpo")
    same(way(it.but(kept=it.mask & ~(last & several))), way(it), exact=True)


def _changed(it: Rollouts, row: int, data: st.DataObject) -> Rollouts:
    """Everything about a row but its group made something else."""
    number = data.draw(st.sampled_from([-1000.0, 0.0, 3.0, 1e6]))
    changed = {
        name: getattr(it, name).clone()
        for name in ("rewards", "columns", "dense_rewards", "values", "token_rewards", "bootstrap", "baselines")
    }
    for each in changed.values():
        each[row] = number
    mask = it.mask.clone()
    mask[row] |= data.draw(st.booleans())  # its length too
    return it.but(mask=mask, **changed)


def _others_agree(before: Advantages, after: Advantages, others: list[int], exact: bool, dropped: bool = False) -> None:
    """The results of the other rows; `dropped`: the second batch holds only those."""
    tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 1e-4, "atol": 2e-5}
    for name in RESULTS:
        left, right = getattr(before, name), getattr(after, name)
        if left is not None:
            right = right if dropped else right[others]
            torch.testing.assert_close(left[others], right, **tolerance, msg=lambda text, name=name: f"{name}: {text}")


# Group statistics follow group identity, for any size including 1


@FEW
@given(ways(), rollouts(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(way: Way, it: Rollouts, random: Random) -> None:
    order = list(range(len(it.lengths)))
    random.shuffle(order)
    same(way(it), way(it.rows(order)), tokens=order, rows=order)


@FEW
@given(ways(), rollouts())
def test_ids_are_names_and_nothing_more(way: Way, it: Rollouts) -> None:
    known, index = torch.unique(it.group, return_inverse=True)
    renamed = way(it.but(group=-3 * index + 11))
    same(way(it), renamed)
    same_metrics(way(it), renamed)
    numbered = way(it.but(group=index), groups=len(known))
    same(way(it), numbered)
    same_metrics(way(it), numbered)


@FEW
@given(ways(plain=True), rollouts())
def test_a_group_is_worth_what_it_is_worth_alone(way: Way, it: Rollouts) -> None:
    assume(way.estimator.kind != "gpg")  # counts rows with a reward in the whole batch
    whole = way(it)
    for name in it.group.unique():
        members = (it.group == name).nonzero().flatten().tolist()
        _others_agree(whole, way(it.rows(members)), members, exact=False, dropped=True)


@FEW
@given(estimators(("kept",), plain=True), rollouts(rejecting=False))
def test_a_group_of_one_and_a_group_that_agrees_get_exactly_zero_and_are_counted(estimator: Any, it: Rollouts) -> None:
    assume(type(estimator) not in (Gae, ReMax, Distillation, OptimalToken) and getattr(estimator, "group_mean", True))
    if "singleton" in type(estimator).model_fields:
        estimator = estimator.but(singleton="zero")
    it = it.double().but(rewards=it.rewards.double() * 0.1, columns=it.columns.double() * 0.1)
    agreed = {name: it.group.double().sub(3).div(7) for name in ("rewards",)}
    columns = torch.stack([agreed["rewards"], -agreed["rewards"]], -1)
    found = Way(estimator, Shaping())(it.but(columns=columns, **agreed))
    assert not found.advantages.any()
    sizes = torch.tensor([int((it.mask.any(-1) & (it.group == name)).sum()) for name in it.group.unique()])
    assert found.metrics["groups"] == (sizes > 0).sum()
    assert found.metrics["singleton_groups"] == (sizes == 1).sum()
    assert found.metrics["zero_variance_groups"] == (sizes > 1).sum()
    assert found.metrics["silent_groups"] == (sizes == 0).sum()


@FEW
@given(
    st.lists(st.integers(-99, 99), min_size=1, max_size=6),
    st.sampled_from([1e-3, 0.1, 0.3, 7.0]),
    st.lists(st.integers(-2, 2), min_size=7, max_size=7),
)
def test_rewards_that_cancel_but_for_rounding_give_maxrl_nothing(
    whole: list[int], unit: float, steps: list[int]
) -> None:
    """Each reward a few float32 steps off; divided by what is left of the mean they would be 1e5 and more."""
    exact = torch.tensor([*whole, -sum(whole)], dtype=torch.float64) * unit
    noise = 1.0 + torch.tensor(steps[: len(exact)], dtype=torch.float64) * torch.finfo(torch.float32).eps
    found = advantages(
        MaxRl(),
        rewards=(exact * noise).float(),
        mask=torch.ones(len(exact), 1),
        group=torch.zeros(len(exact), dtype=torch.int64),
    )
    assert not found.advantages.any()


# Splitting changes nothing: packing, ranks


@FEW
@given(ways(), rollouts())
def test_packed_equals_padded(way: Way, it: Rollouts) -> None:
    packed, bounds = it.packed()
    if way.dense and tuple(packed.mask.shape) == (len(it.lengths),):
        return  # as many tokens as sequences: one reward each is read as one per sequence
    for kind in (torch.int32, torch.int64):
        found = way(packed, cu_seqlens=bounds.to(kind))
        same(way(it), found, tokens=it.there())
        same_metrics(way(it), found)


@pytest.mark.parametrize("ranks", [2, 3])
def test_splitting_a_batch_over_ranks_changes_nothing(ranks: int, tmp_path: Path) -> None:
    """Real processes; groups lie across ranks, and of three ranks one has no rows."""
    in_ranks(ranks, tmp_path)


# Types


@FEW
@given(ways(), rollouts())
def test_float64_stays_float64_and_float32_agrees_with_it(way: Way, it: Rollouts) -> None:
    narrow, wide = way(it), way(it.double())
    assert narrow.advantages.dtype == torch.float32
    assert wide.advantages.dtype == torch.float64
    norm = way.estimator.normalise or way.shaping.normalise
    if norm is None:  # a deviation of nearly equal numbers may have no digits in float32
        torch.testing.assert_close(narrow.advantages.double(), wide.advantages, rtol=2e-4, atol=2e-4)


# Outside the symmetries: identities and plain loops


@FEW
@given(rollouts(rejecting=False), st.sampled_from(["skip", "step", "reset"]), st.sampled_from([1.0, 0.9]))
def test_gae_is_the_recurrence_step_by_step(it: Rollouts, gaps: Any, gamma: float) -> None:
    it = it.double()
    found = Way(Gae(gamma=gamma, lam=0.8, value_lam=0.3, gaps=gaps, normalise=None), Shaping(), extra=True)(it)
    for lam, name in ((0.8, "advantages"), (0.3, "returns")):
        plain = _gae_by_hand(it, gamma, lam, gaps)
        if name == "returns":
            plain = torch.where(it.mask, plain + it.values, 0.0)
        torch.testing.assert_close(getattr(found, name), plain)


def _gae_by_hand(it: Rollouts, gamma: float, lam: float, gaps: str) -> Tensor:
    out = torch.zeros_like(it.values)
    for row in range(len(it.lengths)):
        trained = it.mask[row].nonzero().flatten().tolist()
        following, running = (0.0 if it.ended[row] else float(it.bootstrap[row])), 0.0
        for at in reversed(range(trained[0], trained[-1] + 1) if trained else []):
            if it.mask[row, at]:
                reward = float(it.token_rewards[row, at]) + (float(it.rewards[row]) if at == trained[-1] else 0.0)
                value = float(it.values[row, at])
                running = reward + gamma * following - value + gamma * lam * running
                following = value
                out[row, at] = running
            elif gaps == "step":
                running = gamma * following + gamma * lam * running
                following = 0.0
            elif gaps == "reset":
                running = following = 0.0
    return out


@FEW
@given(rollouts(rejecting=False))
def test_at_lambda_one_gae_is_the_reward_to_come_less_the_value(it: Rollouts) -> None:
    it = it.double().but(ended=torch.ones_like(it.ended))
    found = Way(Gae(lam=1.0, normalise=None), Shaping(), extra=True)(it)
    to_come = Way(ReinforcePlusPlus(normalise=None), Shaping(), extra=True)(it)
    assert found.returns is not None
    torch.testing.assert_close(found.returns, to_come.advantages)
    torch.testing.assert_close(found.advantages, torch.where(it.mask, to_come.advantages - it.values, 0.0))


@FEW
@given(rollouts(rejecting=False))
def test_rloo_is_grpo_without_std_times_n_over_n_less_one(it: Rollouts) -> None:
    rloo, grpo = (Way(each, Shaping())(it.double()) for each in (Rloo(), Grpo(std=False)))
    assert rloo.rows is not None
    assert grpo.rows is not None
    members = it.group[:, None] == it.group[None]  # rows without tokens vote too
    size = members.sum(-1).double()
    torch.testing.assert_close(rloo.rows, grpo.rows * size / (size - 1).clamp(min=1))


@FEW
@given(rollouts(), st.sampled_from([0.5, 3.0]), st.sampled_from([-2.0, 0.0, 7.0]))
def test_grpo_does_not_see_the_scale_and_the_origin_of_rewards(it: Rollouts, scale: float, origin: float) -> None:
    it = it.double()
    way = Way(Grpo(eps=0.0), Shaping())
    same(way(it), way(it.but(rewards=it.rewards * scale + origin)))


@FEW
@given(ways(("kept",)), rollouts())
def test_nobody_rejected_and_everybody_voting_are_the_same(way: Way, it: Rollouts) -> None:
    it = it.rows([row for row in range(len(it.lengths)) if it.mask[row].any()])
    assume(len(it.lengths) > 0)
    everyone = Way(way.estimator.but(baseline="all"), way.shaping, way.dense, way.extra)
    same(way(it, kept=None), everyone(it))


def test_the_vote_of_a_row_is_a_matter_of_its_tokens_or_of_itself() -> None:
    mask = torch.ones(3, 2, dtype=torch.bool)
    per_row = torch.tensor([True, False, True])
    rewards, group = torch.tensor([1.0, 5.0, 3.0]), torch.zeros(3, dtype=torch.int64)
    way = {"rewards": rewards, "mask": mask, "group": group}
    by_row = advantages(Grpo(std=False, baseline="kept"), kept=per_row, **way)
    by_token = advantages(Grpo(std=False, baseline="kept"), kept=per_row[:, None] & mask, **way)
    same(by_row, by_token, exact=True)
    assert by_row.rows is not None
    assert by_row.rows.tolist() == [-1.0, 0.0, 1.0]  # the mean of 1 and 3 is 2


@FEW
@given(rollouts(least=2, rejecting=False))
def test_whitened_advantages_have_mean_zero_and_variance_one_over_the_voting_tokens(it: Rollouts) -> None:
    found = Way(Gae(normalise=Normalise(eps=0.0)), Shaping(), extra=True)(it.double())
    voting = found.advantages[it.mask]
    assume(len(voting) > 1)
    torch.testing.assert_close(voting.mean(), torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(voting.var(), torch.ones((), dtype=torch.float64))
