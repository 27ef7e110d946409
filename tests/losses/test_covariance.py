"""Clip-Cov and KL-Cov: rejected tokens have no part in covariance, mean or order, and the random choice is the generator's."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trimtab.config.losses import ClipCov, KlCov
from trimtab.core.correct import Corrected
from trimtab.losses.policy import policy_loss

# log current −1, −2, −3.6, −4; A = 2, 0, −2 and, on the rejected token, 1000. Over the first three: means −2.2 and 0,
# covariances 2·1.2 = 2.4, 0, (−2)(−1.4) = 2.8. With the fourth the means would be −2.65 and 250 and the order another.
CURRENT = torch.tensor([[-1.0, -2.0, -3.6, -4.0]])
ADVANTAGES = torch.tensor([[2.0, 0.0, -2.0, 1000.0]])
MASK = torch.ones(1, 4, dtype=torch.bool)
KEPT = torch.tensor([[True, True, True, False]])


def slopes(loss: ClipCov | KlCov, anchor: Tensor, generator: torch.Generator | None = None) -> Tensor:
    current = CURRENT.clone().requires_grad_()
    verdict = Corrected(KEPT.float(), KEPT, MASK, torch.zeros(1, 4), {})
    found = policy_loss(
        loss,
        current=current,
        proximal=anchor,
        advantages=ADVANTAGES,
        mask=MASK,
        correction=verdict,
        reduction="token-sum",
        generator=generator,
    )
    found.loss.backward()
    assert current.grad is not None
    return current.grad


def test_a_rejected_token_enters_neither_mean_nor_order() -> None:
    # KL-Cov with two of three tokens: those of covariance 2.4 and 2.8 pay |log ρ| (slope 1 where ρ > 1), beside −Aρ.
    anchor = CURRENT - 0.1
    rho = torch.exp(torch.tensor(0.1))
    want = torch.stack([-2 * rho + 5.0, 0 * rho, 2 * rho + 5.0, 0 * rho])
    torch.testing.assert_close(slopes(KlCov(fraction=0.7, coefficient=5.0), anchor)[0], want)


def test_clip_cov_leaves_out_tokens_between_its_bounds() -> None:
    # on-policy: the tokens of covariance 2.4 and 2.8 lie in (1, 5) and, with fraction 1, are left out; the middle one has A = 0
    assert not slopes(ClipCov(fraction=1.0), CURRENT).any()
    assert slopes(ClipCov(fraction=1.0, lower=2.9), CURRENT)[0].tolist() == [-2.0, 0.0, 2.0, 0.0]


def test_a_clipped_token_is_no_candidate() -> None:
    # ρ = e on the first token with A > 0: the clip already has it, so the choice of one falls on the third
    anchor = CURRENT - torch.tensor([[1.0, 0.0, 0.0, 0.0]])
    for seed in range(10):
        drawn = slopes(ClipCov(fraction=0.34), anchor, torch.Generator().manual_seed(seed))
        assert drawn[0].tolist() == [0.0, 0.0, 0.0, 0.0]


def test_a_clipped_token_is_not_counted_among_the_candidates_either() -> None:
    # Twice the rows of above, with ρ = e on the first token: of the three candidates that are left exactly one is chosen (6 · 0.2 = 1.2)
    current = CURRENT.repeat(2, 1).requires_grad_()
    anchor = CURRENT.repeat(2, 1)
    anchor[0, 0] -= 1.0
    mask = KEPT.repeat(2, 1)
    for seed in range(10):
        found = policy_loss(
            ClipCov(fraction=0.2),
            current=current,
            proximal=anchor,
            advantages=ADVANTAGES.repeat(2, 1),
            mask=mask,
            reduction="token-sum",
            generator=torch.Generator().manual_seed(seed),
        )
        assert float(found.metrics["policy/cov"]) == pytest.approx(1 / 6)


def test_the_random_choice_is_the_generators() -> None:
    found = {
        tuple(slopes(ClipCov(fraction=0.34), CURRENT, torch.Generator().manual_seed(seed))[0].tolist())
        for seed in range(20)
    }
    assert found == {(0.0, 0.0, 2.0, 0.0), (-2.0, 0.0, 0.0, 0.0)}  # one of the two candidates, each at some time
    again = [slopes(ClipCov(fraction=0.34), CURRENT, torch.Generator().manual_seed(7)) for _ in range(2)]
    assert torch.equal(*again)


def penalised(current: Tensor, advantages: Tensor, fraction: float, **layout: Tensor) -> Tensor:
    """1 on the tokens that KL-Cov penalises: on-policy but for ρ > 1, they alone have a slope beside −Aρ."""
    leaf = current.clone().requires_grad_()
    found = policy_loss(
        KlCov(fraction=fraction, coefficient=1e6),
        current=leaf,
        proximal=current - 0.1,
        advantages=advantages,
        mask=torch.ones_like(current, dtype=torch.bool),
        reduction="token-sum",
        **layout,
    )
    found.loss.backward()
    assert leaf.grad is not None
    chosen = leaf.grad > 1e5
    assert float(found.metrics["policy/cov"]) == pytest.approx(float(chosen.float().mean()))
    return chosen


def test_kl_cov_penalises_exactly_its_part_where_every_covariance_is_equal() -> None:
    # one answer per batch: A equals its mean, so that all 512 covariances are 0; ⌊512 · 0.01⌋ = 5, in the order of the tokens
    current = -torch.rand(1, 512, generator=torch.Generator().manual_seed(0))
    for advantage in (1.0, 0.7):
        chosen = penalised(current, torch.tensor([advantage]), 0.01)
        assert chosen.nonzero()[:, 1].tolist() == [0, 1, 2, 3, 4]
    assert penalised(current, torch.tensor([1.0]), 2e-4).sum() == 1  # at least one


def test_kl_cov_penalises_exactly_its_part_of_tokens_with_probability_one() -> None:
    # 99 % of the tokens at log-prob 0 are one covariance each side; ⌊1024 · 0.01⌋ = 10 of those with the larger advantage
    current = torch.zeros(2, 512)
    current[:, ::100] = -3.0
    chosen = penalised(current, torch.tensor([1.0, -1.0]), 0.01)
    assert chosen.sum() == 10
    packed = penalised(current.flatten(), torch.tensor([1.0, -1.0]), 0.01, cu_seqlens=torch.tensor([0, 512, 1024]))
    assert torch.equal(packed.reshape(2, 512), chosen)


def test_kl_cov_orders_by_float64_where_it_is_given() -> None:
    # A = ±1 and log-probs that differ by 1e-12 at the top: in float32 both are one number, and the first would be taken
    current = torch.tensor([[-1.0, -1.0 + 1e-12, -2.0, -2.0]], dtype=torch.float64)
    advantages = torch.tensor([[1.0, 1.0, 1.0, -3.0]], dtype=torch.float64)
    assert penalised(current, advantages, 0.25).tolist() == [[False, False, False, True]]
    assert penalised(current, advantages, 0.5).tolist() == [[False, True, False, True]]
