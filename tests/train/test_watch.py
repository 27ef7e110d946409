from __future__ import annotations

import copy

import pytest
import torch

import trimtab
from tests.train.batches import batch, policy
from trimtab.config.training import Train
from trimtab.errors import RunError
from trimtab.train.learner.learner import Learner
from trimtab.train.messages import Stepped
from trimtab.train.run_state import KeptWatch
from trimtab.train.watch import REMEDIES, STREAK, Watch, thresholds


def stepped(correction: object, *, drift: float = 0.05, seed: int = 0) -> tuple[Stepped, Watch]:
    made = policy()
    config = Train.from_settings({"correction": correction, "learner": {"minibatches": 1}})
    learner = Learner(config, copy.deepcopy(made.model))
    return learner.learn(batch(made, groups=8, drift=drift, seed=seed)).message({}), Watch(config.correction, 3)


def test_a_gate_that_keeps_everything_is_called_out_once_with_a_bound_that_would_act() -> None:
    found, watch = stepped({"preset": "k2-rs", "upper": 100.0})
    notes = [note for _ in range(2 * STREAK) for note in watch.notes(found)]
    assert len(notes) == 1
    assert "Gate 0 (sequence k2) has kept 100.0% of the tokens for 20 steps: it does next to nothing" in notes[0]
    assert "would keep 90 %" in notes[0]


def test_a_gate_that_starves_the_run_is_called_out() -> None:
    found, watch = stepped({"preset": "k2-rs", "upper": 1e-7}, drift=0.5)
    watch.patience = 1000
    notes = [note for _ in range(STREAK) for note in watch.notes(found)]
    assert len(notes) == 1
    assert "has kept only" in notes[0]


def test_a_gate_between_is_left_alone() -> None:
    found, watch = stepped({"preset": "k2-rs", "upper": 0.001})
    assert 0.3 < found.metrics["kept_fraction"] < 0.99
    assert [note for _ in range(2 * STREAK) for note in watch.notes(found)] == []


@pytest.mark.parametrize("keep", [0.5, 0.9])
def test_the_bound_named_keeps_the_share_named(keep: float) -> None:
    found, watch = stepped({"preset": "k2-rs", "upper": 100.0})
    bound = float(thresholds(watch.rule, found, keep)[0].removeprefix("upper "))
    again = trimtab.correct(
        trimtab.preset("k2-rs", upper=bound * 1.001),  # printed to four digits
        proximal=torch.from_numpy(found.proximal),
        behavior=torch.from_numpy(found.behavior),
        mask=torch.from_numpy(found.mask),
    )
    assert float(again.metrics["kept_sequence_fraction"]) == pytest.approx(keep, abs=1 / 32 + 1e-6)


def test_two_sided_bounds_share_what_is_given_up() -> None:
    found, watch = stepped("geo-rs")
    lower, upper = thresholds(watch.rule, found, 0.9)[0].split(" and ")
    assert lower.startswith("lower ")
    assert float(lower.split()[1]) < 1 < float(upper.split()[1])


@pytest.mark.parametrize("outcome", sorted(REMEDIES))
def test_steps_without_an_update_stop_the_run_with_what_to_look_at(outcome: str) -> None:
    found, watch = stepped("off")
    idle = Stepped(**(vars(found) | {"outcome": outcome}))
    watch.notes(idle)
    watch.notes(idle)
    with pytest.raises(RunError, match=f"3 steps in a row brought no update: {outcome}"):
        watch.notes(idle)


def test_an_update_in_between_starts_the_count_anew() -> None:
    found, watch = stepped("off")
    idle = Stepped(**(vars(found) | {"outcome": "no signal"}))
    for each in (idle, idle, found, idle, idle):
        watch.notes(each)
    assert watch.idle_steps == 2


def test_the_counts_survive_a_checkpoint() -> None:
    found, watch = stepped({"preset": "k2-rs", "upper": 100.0})
    for _ in range(STREAK):
        watch.notes(found)
    again = Watch(watch.rule, 3)
    KeptWatch.model_validate(KeptWatch.of(watch)).put(again)
    assert [note for _ in range(STREAK) for note in again.notes(found)] == []
