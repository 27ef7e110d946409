"""Gates on the age of tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import trimtab
from trimtab.errors import ConfigError, InputError
from trimtab.plugins.hook import Hook

AGES = torch.tensor([[0, 1, 3, 3], [2, 2, -1, 0]])  # −1: not known
SAME = torch.full((2, 4), -1.0)
MASK = torch.tensor([[True] * 4, [True, True, True, False]])


def kept(gate: dict[str, Any], age: torch.Tensor = AGES, mask: torch.Tensor = MASK) -> list[list[bool]]:
    rule = trimtab.Correction(gates=[{"metric": "age"} | gate])
    return trimtab.correct(rule, proximal=SAME, behavior=SAME, mask=mask, age=age).kept.tolist()


def test_tokens_stay_that_are_young_enough_and_known_to_be() -> None:
    assert kept({"upper": 2}) == [[True, True, False, False], [True, True, False, False]]
    assert kept({"upper": 1e9})[1] == [True, True, True, False]  # nothing is older than 2^24 versions
    assert kept({"upper": 2}, AGES.float()) == kept({"upper": 2})


def test_sequences_stay_by_their_oldest_token() -> None:
    known = torch.tensor([[0, 1, 3, 3], [2, 2, 1, 9]])  # the 9 is not trained
    assert kept({"level": "sequence", "agg": "max", "upper": 2}, known) == [[False] * 4, [True, True, True, False]]
    assert kept({"level": "sequence", "agg": "mean", "upper": 1.75}, known) == [[True] * 4, [True, True, True, False]]


def test_packed_tokens_are_judged_as_padded_ones() -> None:
    rule = trimtab.Correction(gates=[{"metric": "age", "level": "sequence", "agg": "max", "upper": 2}])
    flat = {"proximal": SAME.flatten(), "behavior": SAME.flatten(), "mask": MASK.flatten(), "age": AGES.flatten()}
    found = trimtab.correct(rule, **flat, cu_seqlens=torch.tensor([0, 4, 8]))
    padded = trimtab.correct(rule, proximal=SAME, behavior=SAME, mask=MASK, age=AGES)
    assert found.kept.tolist() == padded.kept.flatten().tolist()


def test_a_loss_leaves_old_tokens_out() -> None:
    rule = trimtab.Correction(policies="bypass", gates=[{"metric": "age", "upper": 1}])
    current = SAME.clone().requires_grad_()
    found = trimtab.policy_loss(
        "reinforce",
        current=current,
        behavior=SAME,
        advantages=torch.ones(2),
        mask=MASK,
        correction=rule,
        age=AGES,
    )
    found.loss.backward()
    assert current.grad is not None
    assert (current.grad != 0).tolist() == [[True, True, False, False], [False] * 4]


def test_what_is_missing_or_meaningless_is_named() -> None:
    rule = trimtab.Correction(gates=[{"metric": "age", "upper": 1}])
    with pytest.raises(InputError, match="needs age, got None"):
        trimtab.correct(rule, proximal=SAME, behavior=SAME, mask=MASK)
    with pytest.raises(InputError, match="age needs the shape of mask"):
        trimtab.correct(rule, proximal=SAME, behavior=SAME, mask=MASK, age=AGES[:1])
    with pytest.raises(ConfigError, match="neither pair nor limit"):
        trimtab.Gate(metric="age", upper=1, pair="current/behavior")
    with pytest.raises(ConfigError, match="does not support a gate on age"):
        trimtab.dialects.write("verl", rule)
    with pytest.raises(ConfigError, match="needs a correction without a gate on age"):
        Hook("here", frozenset({"correction"})).check_parts(rule)
