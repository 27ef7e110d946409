"""Steps scaled by the effective share of their tokens, and the cosine of consecutive gradients."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import trimtab
from tests.train.batches import batch, policy
from trimtab.config.training import Train
from trimtab.errors import ConfigError
from trimtab.train.learner.learner import Learner, StepTensors
from trimtab.train.learner.ranks import LearnerRanks
from trimtab.train.learner.step_metrics import GradientMemory, effective_share, ess_sums, scaled_rate

BASE = {"minibatches": 1, "warmup": 1, "lr": 1e-2}


def stepped(
    correction: Any = "token-tis", *, drift: float = 1.0, **options: Any
) -> tuple[Learner, StepTensors, dict[str, Tensor]]:
    """A learner after one step, what it did, and how far it moved each weight."""
    made = policy()
    config = Train.from_settings({"correction": correction, "loss": "reinforce", "learner": BASE | options})
    learner = Learner(config, copy.deepcopy(made.model))
    before = {name: each.detach().clone() for name, each in learner.model.named_parameters()}
    found = learner.learn(batch(made, groups=8, drift=drift))
    return learner, found, {name: each.detach() - before[name] for name, each in learner.model.named_parameters()}


def test_the_effective_share_worked_by_hand() -> None:
    # weights 1, 1, 4 and a rejected token: 36 / (4 · 18) = 0.5; what is not trained does not count
    weight = torch.tensor([1.0, 1.0, 4.0, 0.0, 9.0])
    trained = torch.tensor([True, True, True, True, False])
    assert effective_share(ess_sums(weight, trained)) == pytest.approx(0.5)
    halves = ess_sums(weight[:2], trained[:2]) + ess_sums(weight[2:], trained[2:])
    assert effective_share(halves) == pytest.approx(0.5)
    assert effective_share(torch.zeros(3)) == 1.0


def test_rates_are_what_they_were_after_a_scaled_step() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([weight], lr=0.5)
    weight.grad = torch.ones(2)
    with scaled_rate(optimizer, 0.25):
        optimizer.step()
    assert weight.tolist() == [0.875, 0.875]
    assert optimizer.param_groups[0]["lr"] == 0.5


@pytest.mark.parametrize("correction", ["token-tis", "bypass-token-tis", "token-mis"])
def test_a_scaled_step_goes_as_far_as_the_share_says(correction: str) -> None:
    """The first step of AdamW is proportional to its rate, whatever the gradient."""
    _, plain, far = stepped(correction)
    learner, found, near = stepped(correction, step_scale="ess")
    scale = found.metrics["train/step_scale"]
    assert "train/step_scale" not in plain.metrics
    assert 0.1 < scale < 0.95
    for name, moved in near.items():
        torch.testing.assert_close(moved, far[name] * scale, rtol=1e-3, atol=1e-7)
    assert found.metrics["train/lr"] == plain.metrics["train/lr"] == learner.optimizer.param_groups[0]["lr"]
    valued = ((found.advantages != 0) & found.rows.mask).any(-1)
    share = effective_share(ess_sums(found.corrected.weight[valued], found.corrected.trained[valued]))
    assert scale == pytest.approx(share, rel=1e-5)


def test_micro_batches_share_one_scale() -> None:
    """A rule of the moving policy is judged call by call; the share is that of the minibatch."""
    _, whole, _ = stepped("bypass-token-tis", step_scale="ess")
    _, parts, _ = stepped("bypass-token-tis", step_scale="ess", micro_tokens=40)
    assert parts.metrics["train/step_scale"] == pytest.approx(whole.metrics["train/step_scale"], rel=1e-6)


def test_without_mismatch_nothing_is_scaled() -> None:
    _, plain, far = stepped(drift=0.0)
    _, found, near = stepped(drift=0.0, step_scale="ess")
    assert found.metrics["train/step_scale"] == pytest.approx(1.0, abs=1e-6)
    for name, moved in near.items():
        torch.testing.assert_close(moved, far[name], rtol=1e-4, atol=1e-8)
    assert plain.outcome == found.outcome == "updated"


def test_the_cosine_of_gradients_worked_by_hand() -> None:
    weight, other = torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(1))
    memory = GradientMemory(LearnerRanks(torch.device("cpu")))
    weight.grad, other.grad = torch.tensor([3.0, 0.0]), torch.tensor([4.0])
    assert memory.cosine([weight, other]) is None
    weight.grad = torch.tensor([3.0, 0.0])
    other.grad = torch.tensor([-4.0])  # (9 − 16) / 25
    found = memory.cosine([weight, other])
    assert found is not None
    assert float(found) == pytest.approx(-0.28)
    other.grad.zero_()  # what was kept is a copy: (9 + 0) / (3 · 5)
    found = memory.cosine([weight, other])
    assert found is not None
    assert float(found) == pytest.approx(0.6)
    weight.grad.zero_()
    found = memory.cosine([weight, other])
    assert found is not None
    assert float(found) == 0.0


def test_a_run_records_the_cosine_if_asked_and_learns_the_same() -> None:
    learner, found, moved = stepped(gradient_cosine=True)
    _, plain, same = stepped()
    assert math.isnan(found.metrics["train/grad_cosine"])  # the first gradient has none before it
    assert "train/grad_cosine" not in plain.metrics
    for name, each in moved.items():
        assert torch.equal(each, same[name])
    rows = batch(policy(), groups=8, drift=1.0)
    again = learner.learn(rows).metrics["train/grad_cosine"]
    assert 0.0 < again <= 1.0  # much the same batch


def test_several_updates_of_a_step_have_a_mean_cosine() -> None:
    _, found, _ = stepped(gradient_cosine=True, minibatches=4)
    assert -1.0 <= found.metrics["train/grad_cosine"] <= 1.0


@pytest.mark.parametrize("policies", ["decoupled", "bypass"])
def test_a_run_has_the_entropies_and_groups_that_a_rule_asks_for(policies: str) -> None:
    narrow = {"metric": "abs_log_ratio", "upper": 0.3, "bound_scale": "entropy"}
    rule = {"policies": policies, "gates": [narrow], "weight": {"level": "token", "upper": 2.0}}
    _, found, _ = stepped(rule, drift=0.5)
    assert found.outcome == "updated"
    assert 0.0 < found.metrics["kept_fraction"] < 1.0
    wide = stepped(rule | {"gates": [narrow | {"bound_scale": "none"}]}, drift=0.5)[1]
    assert wide.metrics["kept_fraction"] != found.metrics["kept_fraction"]
    grouped = stepped({"policies": policies, "weight": {"level": "token"}, "normalize": "group"})[1]
    assert grouped.outcome == "updated"
    if policies == "decoupled":
        weight, trained = grouped.corrected.weight, grouped.corrected.trained
        for group in grouped.rows.group.unique():
            rows = grouped.rows.group == group
            assert float(weight[rows][trained[rows]].mean()) == pytest.approx(1.0, rel=1e-4)
    kept = stepped({"policies": policies, "gates": [{"metric": "ratio", "bounds": {"keep": 0.75}}]})[1]
    assert kept.metrics["kept_fraction"] == pytest.approx(0.75, abs=0.02)


def test_entropies_are_not_guessed() -> None:
    rule = {"policies": "bypass", "gates": [{"metric": "ratio", "upper": 2.0, "bound_scale": "entropy"}]}
    with pytest.raises(ConfigError, match=r"bound_scale entropy needs learner\.proximal recompute, got none"):
        Train.from_settings({"correction": rule, "learner": {"proximal": "none"}})


def test_the_effective_share_by_age_worked_by_hand() -> None:
    # ages 0, 0, 1, 3, 9, not known; ratios 1, 3, 2, 1, 1, 5: of age 0 (1 + 3)² / (2 · 10) = 0.8, of the others one token each
    behavior = torch.full((1, 6), -3.0)
    proximal = behavior + torch.tensor([[1.0, 3.0, 2.0, 1.0, 1.0, 5.0]]).log()
    age = torch.tensor([[0, 0, 1, 3, 9, -1]])
    given = {"behavior": behavior, "proximal": proximal, "mask": torch.ones(1, 6, dtype=torch.bool)}
    out = trimtab.correct(trimtab.Correction(weight={"level": "token"}), **given, age=age)
    found = {name: float(value) for name, value in out.metrics.items() if name.startswith("weight/ess_age/")}
    assert found == pytest.approx({f"weight/ess_age/{band}": share for band, share in _SHARES.items()})
    assert "weight/ess_age/0" not in trimtab.correct("token-tis", **given).metrics


_SHARES = {"0": 0.8, "1": 1.0, "2-3": 1.0, "4-7": 0.0, "8-up": 1.0}


def test_the_weight_before_its_bounds_stands_beside_the_weight() -> None:
    # ratios 1, 3, 8 held at 2; the last is rejected: raw (1 + 3)² / (3 · 10) = 16/30, held (1 + 2)² / (3 · 5) = 0.6
    behavior = torch.full((1, 3), -3.0)
    proximal = behavior + torch.tensor([[1.0, 3.0, 8.0]]).log()
    rule = trimtab.Correction(gates=[{"metric": "ratio", "upper": 4.0}], weight={"level": "token", "upper": 2.0})
    mask = torch.ones(1, 3, dtype=torch.bool)
    for kind in (torch.float32, torch.float64):  # by the pass, and plainly
        found = trimtab.correct(rule, behavior=behavior.to(kind), proximal=proximal.to(kind), mask=mask).metrics
        expected = {"raw_mean": 2.0, "raw_std": 1.0, "raw_min": 1.0, "raw_max": 3.0, "raw_ess": 16 / 30, "ess": 0.6}
        assert {name: float(found[f"weight/{name}"]) for name in expected} == pytest.approx(expected, rel=1e-5)
