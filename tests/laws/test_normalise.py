"""What holds for every normalisation and every shaping of rewards, on every batch."""

from __future__ import annotations

from random import Random

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.laws.rollouts import FEW, Rollouts, normalisers, rollouts
from trimtab.advantage.normalise import normalised
from trimtab.advantage.shaping import ended, shaped
from trimtab.config.advantages import Normalise, Overlong, Shaping

HARMFUL = st.sampled_from([float("nan"), float("inf"), -float("inf"), 1e10, -1e10])
EOS = 2


def close(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)


@FEW
@given(normalisers(), rollouts(), HARMFUL)
def test_masked_values_never_matter(norm: Normalise, it: Rollouts, harm: float) -> None:
    clean = normalised(norm, it.values, mask=it.mask, group=it.group)
    poisoned = normalised(norm, torch.where(it.mask, it.values, harm), mask=it.mask, group=it.group)
    assert torch.equal(clean, poisoned)
    assert not clean[~it.mask].any()


@FEW
@given(normalisers(), rollouts(), st.sampled_from([float("nan"), float("inf"), -float("inf")]))
def test_a_value_that_is_not_a_number_is_as_if_it_were_masked(norm: Normalise, it: Rollouts, harm: float) -> None:
    holed = torch.where(it.kept, it.values, harm)
    found = normalised(norm, holed, mask=it.mask, group=it.group)
    assert torch.equal(found, normalised(norm, it.values, mask=it.kept, group=it.group))


@FEW
@given(normalisers(), rollouts(least=2), st.data())
def test_a_removed_row_never_votes(norm: Normalise, it: Rollouts, data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, len(it.lengths) - 1))
    others = [row for row in range(len(it.lengths)) if row != gone]
    stays = torch.tensor([row != gone for row in range(len(it.lengths))])
    for values, mask in ((it.rewards, torch.ones_like(stays)), (it.values, it.mask)):
        kept = mask & (stays if values.ndim == 1 else stays[:, None])
        changed = values.clone()
        changed[gone] = 1e6
        before = normalised(norm, values, mask=mask, kept=kept, group=it.group)
        after = normalised(norm, changed, mask=mask, kept=kept, group=it.group)
        alone = normalised(norm, values[others], mask=mask[others], group=it.group[others])
        assert torch.equal(before[others], after[others])
        close(before[others], alone)


@FEW
@given(normalisers(), rollouts(), st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(norm: Normalise, it: Rollouts, random: Random) -> None:
    order = list(range(len(it.lengths)))
    random.shuffle(order)
    straight = normalised(norm, it.values, mask=it.mask, kept=it.kept, group=it.group)
    moved = normalised(norm, it.values[order], mask=it.mask[order], kept=it.kept[order], group=it.group[order])
    close(straight[order], moved)


@FEW
@given(normalisers(), rollouts())
def test_statistics_follow_group_identity(norm: Normalise, it: Rollouts) -> None:
    norm = norm.but(
        mean=norm.mean and "group", std=norm.std and "group", leave_one_out=norm.leave_one_out and norm.mean is not None
    )
    whole = normalised(norm, it.rewards, group=it.group)
    for name in it.group.unique():
        members = it.group == name
        close(whole[members], normalised(norm, it.rewards[members], group=it.group[members]))
    index = torch.unique(it.group, return_inverse=True)[1]
    close(whole, normalised(norm, it.rewards, group=index, groups=int(index.max()) + 1))


@FEW
@given(normalisers(), rollouts())
def test_packed_equals_padded(norm: Normalise, it: Rollouts) -> None:
    packed, bounds = it.packed()
    padded = normalised(norm, it.values, mask=it.mask, kept=it.kept, group=it.group)
    found = normalised(norm, packed.values, mask=packed.mask, kept=packed.kept, group=it.group, cu_seqlens=bounds)
    close(padded[it.there()], found)


@FEW
@given(st.sampled_from(["batch", "group"]), rollouts(least=3), st.booleans())
def test_normalised_values_have_mean_zero_and_variance_one(level: str, it: Rollouts, unbiased: bool) -> None:
    norm = Normalise(mean=level, std=level, eps=0.0, unbiased=unbiased)
    found = normalised(norm, it.double().values, mask=it.mask, group=it.group)
    names = it.group.unique() if level == "group" else [None]
    for name in names:
        chosen = found[it.mask if name is None else it.mask & (it.group == name)[:, None]]
        if len(chosen) > 1:
            torch.testing.assert_close(chosen.mean(), torch.zeros((), dtype=torch.float64))
            torch.testing.assert_close(chosen.var(correction=int(unbiased)), torch.ones((), dtype=torch.float64))


@FEW
@given(normalisers(), rollouts(least=3), st.sampled_from([1e3, 1e6]))
def test_a_large_mean_costs_no_digits(norm: Normalise, it: Rollouts, origin: float) -> None:
    assume(norm.mean is not None and norm.singleton == "zero")
    it = it.double()
    found = normalised(norm, it.values, mask=it.mask, group=it.group)
    far = normalised(norm, it.values + origin, mask=it.mask, group=it.group)
    torch.testing.assert_close(found, far, rtol=1e-5, atol=1e-5)


# Shaping


SHAPES = st.builds(
    Shaping,
    bias=st.sampled_from([0.0, 2.0]),
    scale=st.sampled_from([1.0, -0.5]),
    lower=st.sampled_from([None, 0.5]),
    upper=st.sampled_from([None, 1.5]),
    overlong=st.sampled_from([None, Overlong(max_length=5, buffer=4, factor=2.0)]),
    no_eos=st.sampled_from(["zero", "bootstrap", "drop"]),
    normalise=st.none() | normalisers(),
)


@FEW
@given(SHAPES, rollouts(least=2), st.sampled_from(["kept", "all"]), st.data())
def test_a_row_that_gets_no_task_reward_changes_nothing_for_any_other(
    shaping: Shaping, it: Rollouts, baseline: str, data: st.DataObject
) -> None:
    gone = data.draw(st.integers(0, len(it.lengths) - 1))
    others = [row for row in range(len(it.lengths)) if row != gone]
    complete = it.ended.clone()
    complete[gone] = False
    changed, mask = it.rewards.clone(), it.mask.clone()
    changed[gone] = data.draw(st.sampled_from([-50.0, 100.0, 1e6, float("nan")]))
    mask[gone] = data.draw(st.booleans())
    same = {"ended": complete, "kept": it.kept, "group": it.group, "baseline": baseline}
    before = shaped(shaping, it.rewards, mask=it.mask, **same)
    after = shaped(shaping, changed, mask=mask, **same)
    assert torch.equal(before.rewards[others], after.rewards[others])
    assert torch.equal(before.votes[others], after.votes[others])
    assert before.rewards[gone] == after.rewards[gone] == 0


@FEW
@given(rollouts(), st.integers(0, 3), st.data())
def test_a_row_is_complete_if_its_last_trained_token_is_eos_however_long(
    it: Rollouts, extra: int, data: st.DataObject
) -> None:
    shape = it.mask.shape
    tokens = torch.tensor(data.draw(st.lists(st.integers(1, 3), min_size=it.mask.numel(), max_size=it.mask.numel())))
    tokens = tokens.reshape(shape)
    found = ended(tokens, it.mask, EOS)
    by_hand = [bool(row[on].tolist()[-1:] == [EOS]) for row, on in zip(tokens, it.mask, strict=True)]
    assert found.tolist() == by_hand
    wide = torch.nn.functional.pad(tokens, (0, extra), value=EOS), torch.nn.functional.pad(it.mask, (0, extra))
    assert torch.equal(found, ended(*wide, EOS))
    packed, bounds = it.packed()
    assert torch.equal(found, ended(tokens[it.there()], packed.mask, EOS, cu_seqlens=bounds))
    assert torch.equal(found | ended(tokens, it.mask, 3), ended(tokens, it.mask, [EOS, 3]))
