"""What trimtab says of AReaL 1.0.4 beside what its actor, its losses and its normalisation do."""

from __future__ import annotations

import math
from typing import Any

import peers
import pytest
import torch
from torch import Tensor

from trimtab.dialects import read

Settings = dict[str, Any]
MASK = torch.tensor([[1, 1, 1], [1, 1, 1]], dtype=torch.bool)
BEHAVIOR = torch.tensor([[-1.0, -0.5, -2.0], [-0.7, -1.6, -0.3]])
PROXIMAL = BEHAVIOR + torch.tensor([[0.4, -0.3, 1.0], [0.1, 0.2, -0.9]])
CURRENT = PROXIMAL + torch.tensor([[0.05, -0.1, 0.02], [0.0, 0.15, -0.05]])
ADVANTAGES = torch.tensor([[1.0] * 3, [-0.5] * 3])


def is_said(settings: Settings, words: str, version: str = "") -> bool:
    found = [each for each in read("areal", settings, version=version).findings if words in each.text]
    return bool(found) and all(each.source for each in found)


def advantages_of(behavior: Tensor, rewards: list[float], seen: Tensor | None = None, **settings: Any) -> Settings:
    """PPOActor._compute_advantages on rows of one prompt token and as many answers' as are left."""
    attention = torch.ones_like(behavior, dtype=torch.bool) if seen is None else seen
    trained = attention.clone()
    trained[:, 0] = False
    return peers.areal_advantages(torch.tensor(rewards), attention, trained, behavior, **settings)


@pytest.mark.parametrize("again", [False, True])
def test_without_a_decoupled_loss_proximal_is_behavior(again: bool) -> None:
    def log_probs(decoupled: bool) -> tuple[Tensor, Tensor]:
        actor = peers.areal().actor.PPOActor(
            peers.areal().config.PPOActorConfig(use_decoupled_loss=decoupled, recompute_logprob=again), engine=None
        )
        ones = torch.ones(2, 3)
        batch = {"input_ids": ones.long(), "attention_mask": ones, "loss_mask": ones.clone(), "rewards": torch.zeros(2)}
        found = actor._compute_advantages(batch | {"logprobs": BEHAVIOR.clone(), "prox_logp": PROXIMAL.clone()})
        return found["prox_logp"][:, :-1], found["logprobs"][:, :-1]

    assert torch.equal(*log_probs(decoupled=False))
    assert not torch.equal(*log_probs(decoupled=True))
    asked = {"actor": {"rejection_sampling": {"upper": 2.0}, "recompute_logprob": again}}
    assert is_said(asked, "do nothing unless the loss is decoupled")
    assert not is_said({"actor": {**asked["actor"], "use_decoupled_loss": True}}, "do nothing unless")


def test_kl_k3_counts_a_fall_more_than_a_rise() -> None:
    rise, fall = (
        peers.areal_correction(torch.tensor([[move]]), torch.zeros(1, 1), torch.ones(1, 1), metric="kl_k3", upper=2.0)[
            1
        ].item()
        for move in (2.0, -2.0)
    )
    # e^-2 − 1 + 2 = 1.14 and e^2 − 1 − 2 = 4.39; r − 1 − log r, as documented, has them the other way round
    assert (rise, fall) == (True, False)
    assert is_said({"metric": "kl_k3", "upper": 2.0}, "other direction")
    assert not is_said({"metric": "kl_k2", "upper": 2.0}, "other direction")


def test_survivors_of_a_kl_gate_on_sequences_keep_their_own_ratios() -> None:
    gate = {"level": "sequence", "agg": "mean", "upper": 9.0}
    own, _, _ = peers.areal_correction(PROXIMAL, BEHAVIOR, MASK, **gate, metric="kl_k2")
    shared, _, _ = peers.areal_correction(PROXIMAL, BEHAVIOR, MASK, **gate, metric="ratio")
    torch.testing.assert_close(own, (PROXIMAL - BEHAVIOR).exp())
    torch.testing.assert_close(shared, (PROXIMAL - BEHAVIOR).mean(-1, keepdim=True).exp().expand(2, 3))
    assert is_said({**gate, "metric": "kl_k2"}, "unbounded")
    assert not is_said(gate, "unbounded")


@pytest.mark.parametrize("agg", ["sum", "max"])
def test_agg_is_what_is_tested_and_the_weight_the_geometric_mean(agg: str) -> None:
    gate = {"level": "sequence", "metric": "ratio", "upper": 2.0}
    weight, kept, _ = peers.areal_correction(PROXIMAL, BEHAVIOR, MASK, **gate, agg=agg)
    _, by_mean, _ = peers.areal_correction(PROXIMAL, BEHAVIOR, MASK, **gate, agg="mean")
    assert not torch.equal(kept, by_mean)
    means = (PROXIMAL - BEHAVIOR).mean(-1, keepdim=True).exp().expand(2, 3)
    torch.testing.assert_close(weight, means * kept)
    assert is_said({**gate, "agg": agg}, "is only what is tested")
    assert not is_said({**gate, "agg": "mean"}, "is only what is tested")


def test_a_sequence_is_gathered_by_the_mean_unless_it_is_said() -> None:
    assert peers.areal().config.RejectionSamplingConfig(level="sequence").agg == "mean"
    assert is_said({"level": "sequence", "upper": 1.1}, "the geometric mean; verl")
    assert not is_said({"level": "sequence", "agg": "sum", "upper": 1.1}, "the geometric mean; verl")


def test_a_decoupled_loss_without_rejection_carries_no_weight() -> None:
    def loss(gate: Settings | None, behavior: Tensor) -> Tensor:
        return peers.areal_loss(CURRENT, PROXIMAL, ADVANTAGES, MASK, behavior, rejection_sampling=gate)[0]

    clamp = {"action": "clamp", "upper": 9.0}
    assert torch.equal(loss(None, BEHAVIOR), loss(None, BEHAVIOR - 1))
    assert not torch.equal(loss(clamp, BEHAVIOR), loss(clamp, BEHAVIOR - 1))
    asked = {"use_decoupled_loss": True}
    assert is_said({"actor": {**asked, "rejection_sampling": None}}, "no importance weight")
    assert not is_said({"actor": {**asked, "rejection_sampling": clamp}}, "no importance weight")


def test_m2po_divides_by_the_tokens_it_leaves() -> None:
    whole, _ = peers.areal_actor_loss(CURRENT, PROXIMAL, ADVANTAGES, MASK, BEHAVIOR, use_decoupled_loss=True)
    cut, _ = peers.areal_actor_loss(
        CURRENT, PROXIMAL, ADVANTAGES, MASK, BEHAVIOR, use_decoupled_loss=True, m2_threshold=0.1
    )
    kept = peers.areal_m2po_mask(PROXIMAL, BEHAVIOR, MASK, 0.1)
    assert 0 < kept.sum() < MASK.sum()
    left, _ = peers.areal_actor_loss(CURRENT, PROXIMAL, ADVANTAGES, kept, BEHAVIOR, use_decoupled_loss=True)
    assert torch.equal(cut, left)
    gated = {"action": "mask", "upper": math.exp(0.5), "lower": math.exp(-0.5)}  # the same four tokens
    rejected, _ = peers.areal_actor_loss(
        *(CURRENT, PROXIMAL, ADVANTAGES, MASK, PROXIMAL), use_decoupled_loss=True, rejection_sampling=gated
    )
    assert torch.equal(rejected, whole)  # with every ratio 1 it divides by all of them
    asked = {"actor": {"use_decoupled_loss": True, "m2_threshold": 0.1}}
    assert is_said(asked, "M2PO divides")
    assert not is_said({"actor": {"use_decoupled_loss": True, "rejection_sampling": gated}}, "M2PO divides")


def test_sapo_never_reads_rejection_sampling() -> None:
    def loss(**settings: Any) -> Tensor:
        return peers.areal_actor_loss(CURRENT, PROXIMAL, ADVANTAGES, MASK, BEHAVIOR, **settings)[0]

    gate = {"rejection_sampling": {"action": "clamp", "upper": 1.01}}
    assert torch.equal(loss(use_sapo_loss=True), loss(use_sapo_loss=True, **gate))
    assert not torch.equal(loss(), loss(**gate))
    assert is_said({"actor": {"use_sapo_loss": True, **gate}}, "never reads rejection_sampling")
    assert not is_said({"actor": {"use_decoupled_loss": True, **gate}}, "never reads rejection_sampling")


def test_loglinear_interpolates_and_its_versions_are_not_shifted() -> None:
    behavior, current = torch.tensor([[0.0, -1.0, -1.0, -1.0]]), torch.tensor([[0.0, -3.0, -3.0, -3.0]])
    versions = torch.tensor([[-1, 8, 8, 8]])  # of the prompt's token and of three that were answered
    found = advantages_of(behavior, [0.0], use_decoupled_loss=True, prox_logp_method="loglinear", kl_ctl=0.0)
    rolled = found["logprobs"]
    assert rolled.tolist() == [[-1.0, -1.0, -1.0, 0.0]]  # shifted by one
    proximal = peers.areal_proximal(current.roll(-1, -1), rolled, versions, 10, "loglinear")["loglinear"]
    # from version 8 to 10 the policy at 9 lies half way; the first answered token stays where it was
    assert proximal[0, :3].tolist() == [-1.0, -2.0, -2.0]
    shifted = peers.areal_proximal(current.roll(-1, -1), rolled, versions.roll(-1, -1), 10, "loglinear")["loglinear"]
    assert shifted[0, :3].tolist() == [-2.0, -2.0, -2.0]
    asked = {"use_decoupled_loss": True, "prox_logp_method": "loglinear"}
    assert is_said(asked, "not shifted")
    assert is_said(asked, "interpolates them")
    assert not is_said({**asked, "prox_logp_method": "recompute"}, "not shifted")
    assert not is_said({**asked, "use_decoupled_loss": False}, "not shifted")


@pytest.mark.parametrize(("estimator", "paid"), [("k1", 0.1), ("k2", -0.05), ("k3", -0.1 * (math.e - 2))])
def test_a_kl_penalty_without_a_reference_pays_for_log_probs(estimator: str, paid: float) -> None:
    behavior = torch.tensor([[0.0, -1.0, -1.0, -1.0]])
    # a log-prob of −1 against one of 0: k1 −1, k2 1/2, k3 e − 1 − 1
    settings = {"kl_ctl": 0.1, "kl_estimator": estimator}
    alone = advantages_of(behavior, [0.0], **settings)["kl_rewards"]
    beside = advantages_of(behavior, [0.0], reference=behavior.roll(-1, -1), **settings)["kl_rewards"]
    assert alone[0, :2].tolist() == pytest.approx([paid, paid])
    assert beside.abs().max() == 0
    asked = {"actor": settings}
    assert is_said(asked, "bonus on surprise" if paid > 0 else "pays for its own surprise")
    assert not is_said({**asked, "ref": {"path": "model"}}, "without a reference")


def test_a_row_as_wide_as_the_batch_loses_its_reward_and_still_votes() -> None:
    behavior, seen = torch.zeros(2, 4), torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]], dtype=torch.bool)
    norm = {"reward_norm": {"mean_level": "batch", "std_level": None}}
    masked = {"kl_ctl": 0.0, "mask_no_eos_with_zero": True}

    def paid(**settings: Any) -> list[float]:
        return advantages_of(behavior, [1.0, 0.0], seen, **settings)["tot_rewards"].sum(-1).tolist()

    assert paid(kl_ctl=0.0) == [1.0, 0.0]
    assert paid(**masked) == [0.0, 0.0]  # both ended, the longer one is taken for cut off
    assert paid(**masked, **norm) == [0.0, -0.5]  # and its 1 is in the mean of the other
    assert is_said(masked, "the longest row of every batch")
    assert is_said({**masked, "reward_norm": {"std_level": None}}, "still vote")
    assert not is_said({**masked, "mask_no_eos_with_zero": False}, "longest row")


@pytest.mark.parametrize(
    ("norm", "tail"),
    [
        # 3 values in groups of 2: the third is divided by eps, or has nothing subtracted
        ({"mean_level": "group", "std_level": "group", "eps": 1e-5}, 3e5),
        ({"mean_level": "group", "std_level": None}, 3.0),
        ({"mean_level": "batch", "std_level": None}, 1.0),
    ],
)
def test_the_tail_of_a_batch_belongs_to_no_group(norm: Settings, tail: float) -> None:
    found = peers.areal_normalise(torch.tensor([1.0, 2.0, 3.0]), **norm, group_size=2)
    assert found[2].item() == pytest.approx(tail, rel=1e-4)
    words = "the tail is divided by eps" if norm["std_level"] else "nothing is subtracted from the tail"
    asked = {"reward_norm": {**norm, "group_size": 2}}
    assert is_said(asked, words) == (norm["mean_level"] == "group")
    assert not is_said(asked, words, version="2.0.0")


def test_groups_of_one_leave_nothing() -> None:
    by_group = {"mean_level": "group", "std_level": "group"}
    assert peers.areal_normalise(torch.tensor([1.0, 2.0]), **by_group, group_size=1).abs().max() == 0
    assert peers.areal_normalise(torch.tensor([1.0, 2.0]), **by_group, group_size=2).abs().max() > 0
    assert is_said({"reward_norm": by_group}, "its own group")
    assert not is_said({"reward_norm": {**by_group, "group_size": 2}}, "its own group")
    assert not is_said({"reward_norm": by_group}, "its own group", version="2.0.0")


def test_a_lone_element_with_leave_one_out_is_divided_by_its_own_size() -> None:
    alone = {"mean_leave1out": True, "std_unbiased": False}
    one, lone = torch.tensor([[5.0, 7.0]]), torch.tensor([[1.0, 0.0]])
    assert peers.areal_normalise(one, lone, **alone)[0, 0].item() == pytest.approx(1.0, rel=1e-4)
    assert peers.areal_normalise(one, lone, mean_leave1out=True)[0, 0].item() == pytest.approx(5.0, rel=1e-4)
    assert is_said({"adv_norm": alone}, "by its own size")
    assert not is_said({"adv_norm": {"mean_leave1out": True}}, "by its own size")


def test_gae_lambda_without_a_critic_only_discounts() -> None:
    found = advantages_of(torch.zeros(1, 4), [1.0], kl_ctl=0.0, gae_lambda=0.5)["advantages"]
    assert found[0, :3].tolist() == [0.25, 0.5, 1.0]
    assert advantages_of(torch.zeros(1, 4), [1.0], kl_ctl=0.0)["advantages"][0, :3].tolist() == [1.0, 1.0, 1.0]
    assert is_said({"gae_lambda": 0.5}, "every value is 0")
    assert not is_said({"actor": {"gae_lambda": 0.5}, "critic": {"path": "model"}}, "every value is 0")
