"""Today's losses of prime-rl against the same written out once more, in float64 and from its source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from trimtab import Head, HeadLogProbs, log_probs_of, policy_loss
from trimtab.dialects import read, write

Formula = Callable[[Tensor, Tensor, Tensor], Tensor]


def _ipo(current: Tensor, behavior: Tensor, advantages: Tensor) -> Tensor:
    kept = (current.exp() - behavior.exp()).abs() <= 0.3
    return -torch.where(kept, advantages * (current - behavior).exp(), 0.0)


def _icepop(current: Tensor, behavior: Tensor, advantages: Tensor) -> Tensor:
    ratio = (current - behavior).exp()
    return -torch.where((ratio >= 0.2) & (ratio <= 5.0), advantages * ratio, 0.0)


def _ppo(current: Tensor, behavior: Tensor, advantages: Tensor) -> Tensor:
    ratio = (current - behavior).exp()
    return -torch.minimum(advantages * ratio, advantages * ratio.clamp(0.8, 1.2))


def _cispo(current: Tensor, behavior: Tensor, advantages: Tensor) -> Tensor:
    return -(current - behavior).exp().clamp(max=5.0).detach() * advantages * current


ORACLES: dict[str, Formula] = {"ipo": _ipo, "icepop": _icepop, "ppo": _ppo, "cispo": _cispo}


def _batch() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Log-probs near and far from each other, so that each bound is met and crossed; every advantage differs from 0."""
    made = torch.Generator().manual_seed(3)
    behavior = -torch.rand(6, 40, generator=made, dtype=torch.float64) * 4
    current = (behavior + torch.randn(6, 40, generator=made, dtype=torch.float64)).clamp(max=-1e-3)
    sign = torch.where(torch.rand(6, 40, generator=made) < 0.5, -1.0, 1.0).double()
    return current, behavior, sign * (0.2 + torch.rand(6, 40, generator=made)), torch.rand(6, 40, generator=made) < 0.8


def _ours(settings: dict[str, Any]) -> tuple[Tensor, Tensor]:
    current, behavior, advantages, mask = _batch()
    reading = read("prime-rl", settings)
    assert reading.loss is not None
    current = current.float().requires_grad_()
    found = policy_loss(
        reading.loss,
        current=current,
        behavior=behavior.float(),
        advantages=(advantages * reading.advantage_scale).float(),
        mask=mask,
        correction=reading.correction,
        reduction=reading.reduction or "token-mean",
    )
    found.loss.backward()
    assert current.grad is not None
    return found.loss.detach(), current.grad


def _theirs(formula: Formula, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    current, behavior, advantages, mask = _batch()
    current.requires_grad_()
    loss = torch.where(mask, formula(current, behavior, advantages * scale), 0.0).sum() / mask.sum()
    loss.backward()
    assert current.grad is not None
    return loss.detach(), current.grad


@pytest.mark.parametrize("kind", ORACLES)
def test_a_loss_of_today_has_the_value_and_the_gradient_of_its_source(kind: str) -> None:
    for ours, theirs in zip(_ours({"type": kind, "adv_tau": 0.7}), _theirs(ORACLES[kind], 0.7), strict=True):
        torch.testing.assert_close(ours.double(), theirs, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ORACLES)
def test_the_batch_tells_the_losses_apart(kind: str) -> None:
    others = [_theirs(formula)[1] for name, formula in ORACLES.items() if name != kind]
    assert all(not torch.allclose(_ours({"type": kind})[1].double(), other, rtol=1e-3) for other in others)


def test_a_small_cap_has_the_gradient_of_its_source() -> None:
    def capped(current: Tensor, behavior: Tensor, advantages: Tensor) -> Tensor:
        kept = (current.exp() - behavior.exp()).abs() <= 0.3
        ratio = (current - behavior).exp()
        held = ratio.clamp(max=2.0).detach() * (ratio / ratio.detach())  # the value is held, its gradient goes on
        return -torch.where(kept, advantages * held, 0.0)

    _, ours = _ours({"type": "ipo", "max_importance_ratio": 2.0})
    torch.testing.assert_close(ours.double(), _theirs(capped)[1], rtol=1e-5, atol=1e-7)


def test_score_centering_is_that_of_its_source_in_float64() -> None:
    """Σ over the mask of q·r where |p − q| ≤ eps, detached, times log p, added with the advantage; masked tokens included."""
    made = torch.Generator().manual_seed(5)
    size, eps = 6, 0.05
    logits = torch.randn(2, 3, size, generator=made, dtype=torch.float64)
    q = logits.log_softmax(-1)
    sampled = torch.randint(size, (2, 3), generator=made)
    leaf = (logits + 0.4 * torch.randn(2, 3, size, generator=made, dtype=torch.float64)).requires_grad_()
    advantages = torch.tensor([[0.7], [-1.2]], dtype=torch.float64).expand(2, 3)

    log_p = leaf.log_softmax(-1)
    own_p, own_q = (each.gather(-1, sampled[..., None]).squeeze(-1) for each in (log_p, q))
    kept = (own_p.exp() - own_q.exp()).abs() <= eps
    assert 0 < int(kept.sum()) < 6
    with torch.no_grad():
        inside = (log_p.exp() - q.exp()).abs() <= eps
        factor = torch.where(inside, q.exp() * (log_p - q).exp(), 0.0)
    policy = -torch.where(kept, advantages * (own_p - own_q).exp(), 0.0)
    written = (policy + advantages * (factor * log_p).sum(-1)).sum() / 6
    (expected,) = torch.autograd.grad(written, leaf)

    reading = read("prime-rl", {"type": "ipo", "eps": eps, "score_centering": True})
    assert reading.loss is not None
    head = Head(torch.arange(size).expand(2, 3, size).contiguous(), q)
    found = log_probs_of(leaf, sampled, head=head)
    result = policy_loss(
        reading.loss,
        current=found.log_probs,
        behavior=own_q,
        advantages=advantages,
        mask=torch.ones(2, 3, dtype=torch.bool),
        correction=reading.correction,
        reduction=reading.reduction,
        head=HeadLogProbs(head, sampled, current=found.head, complete=True),
    )
    assert result.loss.item() == pytest.approx(written.item(), rel=1e-9)
    torch.testing.assert_close(torch.autograd.grad(result.loss, leaf)[0], expected)


@pytest.mark.parametrize("kind", ["icepop", "ppo"])
def test_an_everyday_file_is_said_whole_in_verl_and_read_back_with_the_same_gradient(kind: str) -> None:
    """verl has no plain −A·ρ: it is a clip to [0, 1e12], which no ratio meets."""
    written = write("verl", read("prime-rl", {"type": kind}))
    assert not written.omissions
    current, behavior, advantages, mask = _batch()
    back = read("verl", written.settings)
    assert back.loss is not None
    leaf = current.clone().requires_grad_()
    found = policy_loss(
        back.loss,
        current=leaf,
        behavior=behavior,
        proximal=behavior,
        advantages=advantages,
        mask=mask,
        correction=back.correction,
        reduction=back.reduction,
    )
    loss, gradient = _theirs(ORACLES[kind])
    torch.testing.assert_close(found.loss.detach(), loss)
    torch.testing.assert_close(torch.autograd.grad(found.loss, leaf)[0], gradient)


@pytest.mark.parametrize("framework", ["areal", "trl", "slime", "nemo-rl", "roll", "openrlhf"])
def test_the_gate_of_ipo_is_what_others_cannot_say(framework: str) -> None:
    """Its loss is a clip that never acts; |p − q| of current and sampler is a gate of prime-rl's alone."""
    written = write(framework, read("prime-rl", {"type": "ipo"}), strict=False)
    assert {each.part for each in written.omissions if each.whole} == {"correction"}
