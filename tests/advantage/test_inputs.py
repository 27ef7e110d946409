"""Bad input is refused in one sentence, before any arithmetic; odd data is not refused at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trimtab.advantage.estimate import advantages
from trimtab.advantage.normalise import normalised
from trimtab.advantage.shaping import ended, shaped
from trimtab.config.advantages import Gae, Gdpo, Grpo, Normalise, ReinforcePlusPlus, ReMax, Shaping
from trimtab.errors import InputError

MASK = torch.ones(3, 4, dtype=torch.bool)
GROUP = torch.tensor([0, 0, 1])
VOTED = Grpo(baseline="kept")
GOOD: dict[str, Any] = {"rewards": torch.zeros(3), "mask": MASK, "group": GROUP}


@pytest.mark.parametrize(
    ("estimator", "changes", "says"),
    [
        (Grpo(), {"rewards": torch.zeros(4)}, r"rewards needs one value per sequence \(3,\) or per token \(3, 4\)"),
        (Grpo(), {"rewards": torch.zeros(3, 1)}, r"got shape \(3, 1\)"),
        (Grpo(), {"group": GROUP[:, None].expand(3, 4)}, r"group needs one id per sequence \(3,\), got shape \(3, 4\)"),
        (Grpo(), {"group": torch.zeros(3)}, "group needs whole numbers, got torch.float32"),
        (Grpo(), {"group": None}, "Grpo needs group, got None"),
        (Grpo(), {"groups": 1}, "needs ids from 0 to 0, got 0 … 1"),
        (ReMax(), {"group": None, "groups": 2, "baselines": torch.zeros(3)}, "groups=2 needs group"),
        (Grpo(), {"kept": torch.ones(2)}, r"kept needs one value per sequence \(3,\)"),
        (Grpo(), {"votes": torch.ones(3, 4)}, r"votes needs one value per sequence \(3,\), got shape \(3, 4\)"),
        (Grpo(), {"mask": torch.ones(3)}, r"mask needs two dimensions \[rows, width\] without cu_seqlens"),
        (Grpo(), {"values": torch.zeros(3, 4)}, "Grpo needs no values, got a tensor"),
        (Gae(), {}, "Gae needs values, got None"),
        (Gae(), {"values": torch.zeros(3)}, r"values needs the shape of mask \(3, 4\), got \(3,\)"),
        (
            Gae(),
            {"values": torch.zeros(3, 4), "bootstrap": torch.zeros(3)},
            r"A value after the end \(bootstrap\) needs ended",
        ),
        (ReMax(), {}, "ReMax needs baselines, got None"),
        (ReMax(), {"baselines": torch.zeros(3, 4)}, r"baselines needs one value per sequence \(3,\)"),
        (ReinforcePlusPlus(group_mean=True), {"group": None}, "ReinforcePlusPlus needs group"),
        (Gae(normalise=Normalise(mean="group")), {"group": None, "values": torch.zeros(3, 4)}, "Gae needs group"),
        (Gdpo(weights=(1.0, 2.0)), {}, r"one column per weight \(3, 2\), got shape \(3,\)"),
        (
            Gdpo(weights=(1.0,)),
            {"rewards": torch.zeros(3, 1), "shaping": Shaping(scale=2.0)},
            "one reward per sequence",
        ),
        (
            Grpo(),
            {"rewards": torch.zeros(3, 4), "shaping": Shaping(upper=1.0)},
            "Shaping needs one reward per sequence",
        ),
        (Grpo(), {"shaping": Shaping(no_eos="zero")}, "Shaping with no_eos zero needs ended, got None"),
        (Grpo(), {"ended": torch.ones(3, 4), "shaping": Shaping(no_eos="zero")}, "ended needs one value per sequence"),
        (
            Grpo(),
            {"ended": torch.ones(3), "shaping": Shaping(no_eos="bootstrap")},
            "Shaping with no_eos bootstrap needs Gae, got Grpo",
        ),
        (
            Gae(),
            {"ended": torch.ones(3), "values": torch.zeros(3, 4), "shaping": Shaping(no_eos="bootstrap")},
            "Shaping with no_eos bootstrap needs bootstrap",
        ),
        (Grpo(), {"token_rewards": torch.zeros(3)}, "token_rewards needs the shape of mask"),
        (
            Grpo(),
            {"mask": MASK[:0], "rewards": torch.zeros(0), "group": GROUP[:0]},
            "A batch needs at least one sequence, got 0 rows",
        ),
    ],
)
def test_what_does_not_fit_is_refused(estimator: Any, changes: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        advantages(estimator, **(GOOD | changes))


def test_an_empty_batch_is_refused_everywhere() -> None:
    with pytest.raises(InputError, match="at least one sequence"):
        normalised(Normalise(), torch.zeros(0))
    with pytest.raises(InputError, match="at least one sequence"):
        shaped(Shaping(), torch.zeros(0), mask=torch.zeros(0, 4))


def test_normalised_refuses_what_does_not_fit() -> None:
    with pytest.raises(InputError, match="Normalise over groups needs group"):
        normalised(Normalise(mean="group"), torch.zeros(3))
    with pytest.raises(InputError, match="mask needs the shape"):
        normalised(Normalise(), torch.zeros(3), mask=MASK)
    with pytest.raises(InputError, match="one id per sequence"):
        normalised(Normalise(mean="group"), torch.zeros(3, 4), group=torch.zeros(3, 4, dtype=torch.int64))


def test_shaping_over_groups_needs_groups() -> None:
    with pytest.raises(InputError, match="Shaping normalised over groups needs group"):
        shaped(Shaping(normalise=Normalise(mean="group")), torch.zeros(3), mask=MASK)


def test_ended_wants_a_token_for_every_slot() -> None:
    with pytest.raises(InputError, match="tokens needs the shape of mask"):
        ended(torch.zeros(3, dtype=torch.int64), MASK, 2)


def test_rows_without_tokens_and_sequences_without_tokens_are_no_error() -> None:
    nothing = advantages(Gae(), rewards=torch.ones(3), mask=torch.zeros(3, 4), values=torch.full((3, 4), torch.nan))
    assert not nothing.advantages.any()
    assert advantages(Grpo(), rewards=torch.ones(2), mask=torch.zeros(2, 0), group=GROUP[:2]).advantages.shape == (2, 0)
    bounds = torch.tensor([0, 0, 2, 2])
    packed = advantages(
        Gae(lam=1.0, normalise=None),
        rewards=torch.tensor([1.0, 2.0, 3.0]),
        mask=torch.ones(2),
        values=torch.zeros(2),
        cu_seqlens=bounds,
    )
    assert packed.advantages.tolist() == [2.0, 2.0]


def test_rewards_may_be_whole_numbers_truths_or_narrow() -> None:
    for rewards in (torch.tensor([1, 0]), torch.tensor([True, False]), torch.tensor([1.0, 0.0]).bfloat16()):
        found = advantages(Grpo(std=False), rewards=rewards, mask=torch.ones(2, 1), group=torch.tensor([0, 0]))
        assert found.advantages.tolist() == [[0.5], [-0.5]]


def test_nothing_carries_a_gradient() -> None:
    rewards, values = torch.ones(3, requires_grad=True), torch.ones(3, 4, requires_grad=True)
    found = advantages(Gae(), rewards=rewards, values=values, mask=MASK)
    assert not found.advantages.requires_grad
    assert rewards.tolist() == [1.0] * 3


def test_where_both_fit_rewards_are_per_sequence_and_kept_is_per_token() -> None:
    """An empty sequence and one of two tokens, packed: [2] fits tokens and sequences."""
    packed = {"mask": torch.ones(2, dtype=torch.bool), "cu_seqlens": torch.tensor([0, 0, 2])}
    rewards, whole = torch.tensor([7.0, 3.0]), ReinforcePlusPlus(normalise=None)
    assert advantages(whole, rewards=rewards, **packed).advantages.tolist() == [3.0, 3.0]
    kept, group = torch.tensor([True, False]), torch.tensor([0, 0])
    by_token = advantages(VOTED, rewards=rewards, group=group, kept=kept, **packed)
    assert by_token.votes.tolist() == [False, True]  # the sequence keeps its first token
    by_sequence = advantages(VOTED, rewards=rewards, group=group, kept=kept[:, None], **packed)
    assert by_sequence.votes.tolist() == [False, False]  # it is rejected


def test_a_column_of_kept_is_one_per_sequence_in_padded_rows_too() -> None:
    mask, rewards, group = torch.ones(3, 2, dtype=torch.bool), torch.tensor([1.0, 0.0, 5.0]), torch.zeros(3).long()
    kept = torch.tensor([True, True, False])
    plain = advantages(VOTED, rewards=rewards, mask=mask, group=group, kept=kept)
    column = advantages(VOTED, rewards=rewards, mask=mask, group=group, kept=kept[:, None])
    assert torch.equal(plain.advantages, column.advantages)
    assert plain.votes.tolist() == column.votes.tolist() == [True, True, False]
