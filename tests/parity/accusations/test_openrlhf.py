"""What trimtab says of OpenRLHF 0.11.2 beside what its PolicyLoss, its estimators and its actor's mean do."""

from __future__ import annotations

import math
from typing import Any

import peers
import pytest
import torch
from torch import Tensor

from trimtab.dialects import read

Settings = dict[str, Any]


def is_said(settings: Settings, words: str) -> bool:
    return any(words in each.text and each.source for each in read("openrlhf", settings).findings)


def loss(behavior: Tensor, **settings: Any) -> Tensor:
    current = torch.tensor([[-1.0, -0.7, -1.3, -0.4], [-0.9, -1.1, -0.6, -0.8]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]], dtype=torch.bool)
    advantages = torch.tensor([[1.0], [-2.0]], dtype=torch.float64).expand(2, 4)
    counts = {"batch_num_tokens": 6.0, "global_batch_size": 2.0}
    return peers.openrlhf_loss(current, current - 0.1, advantages, mask, behavior, **counts, **settings)[0]


NEAR = torch.tensor([[-1.2, -0.5, -1.4, -0.9], [-0.7, -1.6, -0.6, -0.8]], dtype=torch.float64)


@pytest.mark.parametrize(
    "other",
    [
        {"is_correction_mode": "clip", "is_correction_level": "token", "is_correction_threshold": [0.9, 1.1]},
        {"is_correction_gating": "tv", "is_correction_threshold": [0.0, 1e-6]},
        {"is_correction_threshold": [0.999, 1.001]},
    ],
)
def test_gspo_reads_on_or_off_and_nothing_else(other: Settings) -> None:
    said = {"is_correction_level": "seq"}
    assert torch.equal(loss(NEAR, policy_loss_type="gspo", **said), loss(NEAR, policy_loss_type="gspo", **said | other))
    assert not torch.equal(loss(NEAR, policy_loss_type="gspo"), loss(NEAR, policy_loss_type="gspo", **said))
    assert not torch.equal(
        loss(NEAR, policy_loss_type="ppo", **said), loss(NEAR, policy_loss_type="ppo", **said | other)
    )
    assert is_said(said | {"policy_loss_type": "gspo"}, "only on or off is read")
    assert not is_said(said | {"policy_loss_type": "ppo"}, "only on or off is read")


def test_gspo_forces_a_mean_per_sequence() -> None:
    token, row = (loss(NEAR, policy_loss_type="gspo", token_level_loss=flag) for flag in (True, False))
    assert torch.equal(token, row)
    assert not torch.equal(loss(NEAR, token_level_loss=True), loss(NEAR, token_level_loss=False))
    assert is_said({"policy_loss_type": "gspo", "loss_agg_mode": "token-mean"}, "loss_agg_mode token-mean is ignored")
    assert not is_said({"policy_loss_type": "gspo", "loss_agg_mode": "seq-mean-token-mean"}, "is ignored")


def weights(log_ratios: list[float], **settings: Any) -> list[float]:
    proximal = torch.full((1, len(log_ratios)), -8.0)
    behavior = proximal - torch.tensor([log_ratios])
    found, *_ = peers.openrlhf_correction(proximal, behavior, torch.ones_like(proximal, dtype=torch.bool), **settings)
    assert found is not None
    return [round(value, 3) for value in found[0].tolist()]


def test_survivors_at_level_seq_keep_their_own_ratios_and_clip_at_level_token_bounds_them() -> None:
    ratios = [4.0, -1.0, -1.0, -1.0]  # geometric mean e^¼ = 1.28
    assert weights(ratios, is_correction_level="seq")[0] == pytest.approx(math.exp(4), rel=1e-4)
    assert weights(ratios, is_correction_level="token", is_correction_mode="clip")[0] == 5.0
    assert is_said({"is_correction_level": "seq"}, "unbounded")
    assert not is_said({"is_correction_level": "token", "is_correction_mode": "clip"}, "unbounded")


def test_binary_kl_is_from_behavior_to_proximal_and_rounding_rejects_tokens_next_to_it() -> None:
    def kept(p: Tensor, q: Tensor, **settings: Any) -> Tensor:
        given = {"is_correction_level": "token", "is_correction_threshold": [0.0, 0.1], **settings}
        mask = torch.ones_like(p, dtype=torch.bool)
        found, *_ = peers.openrlhf_correction(q.log(), p.log(), mask, **given)
        assert found is not None
        return found != 0

    def kl(p: float, q: float) -> float:
        return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))

    one, other = 0.02, 0.2  # 0.117 one way, 0.296 the other
    limit = (kl(one, other) + kl(other, one)) / 2
    few, many = torch.full((1, 2), one), torch.full((1, 2), other)
    assert kept(few, many, is_correction_gating="binary_kl", is_correction_threshold=[0.0, limit]).all()
    assert not kept(many, few, is_correction_gating="binary_kl", is_correction_threshold=[0.0, limit]).any()
    make = torch.Generator().manual_seed(0)
    p = torch.rand(1, 4096, generator=make) * 0.98 + 0.01
    near = p * (1 + 1e-6 * torch.randn(1, 4096, generator=make))
    lost = 1 - kept(p, near, is_correction_gating="binary_kl").float().mean()
    assert lost > 0.1
    assert kept(p, near, is_correction_gating="tv").all()
    assert kept(p, p, is_correction_gating="binary_kl").all()
    said = {"is_correction_level": "token", "is_correction_gating": "binary_kl", "is_correction_threshold": [0.1]}
    assert is_said(said, "all but on policy")
    assert not is_said(said | {"is_correction_gating": "tv"}, "all but on policy")


@pytest.mark.parametrize(("name", "reads"), [("reinforce", True), ("rloo", False), ("group_norm", False)])
def test_gamma_is_read_by_gae_and_reinforce_only(name: str, reads: bool) -> None:
    rewards, mask = torch.tensor([1.0, -1.0, 0.5, 2.0]), torch.ones(4, 5, dtype=torch.bool)
    found = [peers.openrlhf_advantage(name, rewards, mask, 2, gamma=gamma)[0] for gamma in (1.0, 0.5)]
    assert torch.equal(*found) != reads
    assert is_said({"estimator": name, "gamma": 0.5, "n_samples_per_prompt": 2}, "is set to 1") != reads


def test_the_kl_loss_is_a_token_mean_whatever_the_reduction() -> None:
    counts = {"batch_num_tokens": 6.0, "global_batch_size": 2.0}  # what the actor hands on: no word of the mode
    kl, mask = torch.tensor([[1.0, 2, 3, 4], [5, 6, 0, 0]]), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).float()
    aggregate = peers.openrlhf().loss.aggregate_loss
    assert float(aggregate(kl, mask, **counts)) == pytest.approx(21 / 6)
    assert float(aggregate(kl, mask, token_level_loss=False, **counts)) == pytest.approx((2.5 + 5.5) / 2)
    said = {"use_loss": True, "init_coef": 0.1, "loss_agg_mode": "seq-mean-token-mean"}
    assert is_said(said, "a token mean whatever")
    assert not is_said(said | {"loss_agg_mode": "token-mean"}, "a token mean whatever")
