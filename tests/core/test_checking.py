"""Log-probs above 0 and masks of neither 0 nor 1: errors while checking, counted otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trimtab
from trimtab.core.inputs import is_checking, rounding
from trimtab.errors import InputError

MASK = torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]])
LOG_PROBS = torch.full((2, 3), -1.0)
ABOVE = torch.tensor([[-1.0, 0.5, 9.0], [-1.0, -1.0, -1.0]])  # of five masked in, one above 0; the 9 is not
HALF = torch.tensor([[1.0, 0.5, 0.0], [1.0, 1.0, 1.0]])


def loss(**given: Any) -> trimtab.PolicyLoss:
    policies = {"current": LOG_PROBS, "proximal": LOG_PROBS, "mask": MASK, "advantages": torch.ones(2)} | given
    return trimtab.policy_loss("clip", **policies)


def corrected(**given: Any) -> trimtab.Corrected:
    return trimtab.correct("token-tis", **{"behavior": LOG_PROBS, "proximal": LOG_PROBS, "mask": MASK} | given)


CALLS: dict[str, Callable[[torch.Tensor], Any]] = {
    "correct": lambda mask: corrected(mask=mask),
    "policy_loss": lambda mask: loss(mask=mask),
    "advantages": lambda mask: trimtab.advantages("reinforce++", rewards=torch.ones(2), mask=mask),
    "shaped": lambda mask: trimtab.shaped(trimtab.Shaping(), torch.ones(2), mask=mask),
    "ended": lambda mask: trimtab.ended(torch.ones(2, 3).long(), mask, 1),
    "staleness": lambda mask: trimtab.staleness(torch.ones(2, 3).long(), mask, learner=1),
    "kl_penalty": lambda mask: trimtab.kl_penalty(0.1, policy=LOG_PROBS, reference=LOG_PROBS, mask=mask),
    "Denominator.of": lambda mask: trimtab.Denominator.of(mask),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_mask_of_a_half_is_refused_while_checking(name: str) -> None:
    CALLS[name](HALF)
    with trimtab.checking():
        CALLS[name](MASK)
        with pytest.raises(InputError, match=r"^mask needs 0 or 1, got 0\.5 at \[0, 1\]\."):
            CALLS[name](HALF)
    CALLS[name](HALF)


@pytest.mark.parametrize("name", ["behavior", "proximal"])
def test_a_log_prob_above_zero_is_refused_while_checking(name: str) -> None:
    corrected(**{name: ABOVE})
    with trimtab.checking():
        corrected()
        with pytest.raises(InputError, match=rf"^{name} needs log-probs of at most 0, got 0\.5 at \[0, 1\]\."):
            corrected(**{name: ABOVE})


@pytest.mark.parametrize("name", ["current", "proximal"])
def test_so_is_one_of_a_loss_and_of_a_penalty(name: str) -> None:
    with trimtab.checking():
        with pytest.raises(InputError, match=rf"^{name} needs log-probs of at most 0"):
            loss(**{name: ABOVE})
        with pytest.raises(InputError, match=r"^reference needs log-probs of at most 0"):
            trimtab.kl_penalty(0.1, policy=LOG_PROBS, reference=ABOVE, mask=MASK)


def test_what_is_not_refused_is_counted() -> None:
    for metrics in (corrected(behavior=ABOVE).metrics, loss(current=ABOVE).metrics):
        assert metrics["positive_fraction"] == pytest.approx(1 / 5)
        assert metrics["partial_fraction"] == 0
    for metrics in (corrected(mask=HALF).metrics, loss(mask=HALF).metrics):
        assert metrics["positive_fraction"] == 0
        assert metrics["partial_fraction"] == pytest.approx(1 / 5)
    handed = loss(mask=HALF, correction=corrected(), current=ABOVE).metrics  # the loss counts its own
    assert (handed["positive_fraction"], handed["partial_fraction"]) == (pytest.approx(1 / 5), pytest.approx(1 / 5))
    both = corrected(behavior=ABOVE, proximal=ABOVE).metrics  # a token counts once
    assert both["positive_fraction"] == pytest.approx(1 / 5)
    packed = {"behavior": ABOVE.flatten(), "proximal": LOG_PROBS.flatten(), "mask": HALF.flatten()}
    found = trimtab.correct("token-tis", **packed, cu_seqlens=torch.tensor([0, 3, 6])).metrics
    assert (found["positive_fraction"], found["partial_fraction"]) == (pytest.approx(1 / 5), pytest.approx(1 / 5))


@given(st.sampled_from([torch.bfloat16, torch.float16, torch.float32, torch.float64]), st.integers(1, 2**16))
def test_a_certain_token_that_was_rounded_is_no_fault(kind: torch.dtype, seed: int) -> None:
    # logit − logsumexp of a token of probability 1, each rounded by itself: within a step of the logit's size
    logit = 15 * torch.rand(1, 8, generator=torch.Generator().manual_seed(seed))
    log_probs = (logit.to(kind) - (logit * (1 - 1e-4 * torch.finfo(kind).eps)).to(kind)).abs()
    with trimtab.checking():
        out = trimtab.correct("token-tis", behavior=log_probs, proximal=log_probs, mask=torch.ones(1, 8))
    assert out.metrics["positive_fraction"] == 0
    assert rounding(kind) < 0.2


@pytest.mark.parametrize("harm", [float("nan"), float("inf"), -float("inf")])
def test_a_missing_log_prob_is_neither_counted_nor_refused(harm: float) -> None:
    broken = torch.where(ABOVE > 0, harm, ABOVE)
    with trimtab.checking():
        out = corrected(behavior=broken)
    assert out.metrics["positive_fraction"] == 0
    assert out.metrics["missing_fraction"] == pytest.approx(1 / 5)


def test_checking_ends_with_its_block_also_by_an_error() -> None:
    assert not is_checking()
    with pytest.raises(InputError), trimtab.checking():
        corrected(mask=HALF)
    assert not is_checking()


def test_counting_waits_for_no_device() -> None:
    # a meta tensor has no data: whatever read a number on the host would raise
    on = {name: torch.zeros(2, 3, device="meta") for name in ("behavior", "proximal", "mask")}
    tokens = trimtab.correct("token-tis", **on)
    assert tokens.metrics["positive_fraction"].is_meta
    assert tokens.metrics["partial_fraction"].is_meta
