"""Numbers that are not there: counted, reported, and the same in the whole and in parts."""

from __future__ import annotations

import math

import pytest
import torch

from trimtab import preset
from trimtab.config import losses as config
from trimtab.config.losses import KlPenalty
from trimtab.core.correct import correct
from trimtab.core.reduce import Denominator
from trimtab.errors import InputError
from trimtab.losses.policy import policy_loss

NAME = "advantage/missing_fraction"
MASK = torch.tensor([[True, True, True, False], [True, False, False, False]])
LOG_PROBS = torch.full((2, 4), -1.0)
BOUNDS = torch.tensor([0, 4, 8])


def per_token(*bad: float, kind: torch.dtype = torch.float32) -> torch.Tensor:
    """Ones; bad numbers on the first tokens of row 0 and, where the mask is False, on its last."""
    found = torch.ones(2, 4, dtype=kind)
    found[0, : len(bad)] = torch.tensor(bad, dtype=kind)
    found[0, 3] = math.nan
    return found


ADVANTAGES = {
    "none of four tokens": (per_token(), 0.0),
    "one NaN": (per_token(math.nan), 1 / 4),
    "two infinite": (per_token(math.inf, -math.inf), 2 / 4),
    "a sequence of three": (torch.tensor([math.nan, 1.0]), 3 / 4),
    "beyond float32": (per_token(1e300, kind=torch.float64), 1 / 4),
}


@pytest.mark.parametrize("case", ADVANTAGES)
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_an_advantage_that_is_no_number_is_counted(case: str, packed: bool) -> None:
    given, share = ADVANTAGES[case]
    laid = {"behavior": LOG_PROBS, "proximal": LOG_PROBS, "mask": MASK, "advantages": given}
    if packed:
        laid = {name: each if each.ndim == 1 else each.flatten() for name, each in laid.items()} | {
            "cu_seqlens": BOUNDS
        }
    rule = preset("token-tis")
    out = correct(rule, **laid)
    assert float(out.metrics[NAME]) == pytest.approx(share)
    for correction in (None, rule, out):
        current = laid["proximal"].clone().requires_grad_()
        tokens = laid if correction is not None else {name: each for name, each in laid.items() if name != "behavior"}
        found = policy_loss(config.Clip(), **tokens, current=current, correction=correction)
        assert float(found.metrics[NAME]) == pytest.approx(share)
        assert len(found.metrics) == len(list(found.metrics)) == len(set(found.metrics))
        found.loss.backward()
        # it stays trained and counted, and pushes nowhere: −1 of each other token, over four
        assert found.loss.item() == pytest.approx(share - 1.0)
        assert current.grad is not None
        assert current.grad.count_nonzero() == 4 * (1 - share)


def test_the_advantages_reported_missing_are_those_of_the_call_and_not_of_the_whole_correction() -> None:
    out = correct(
        preset("token-tis"), behavior=LOG_PROBS, proximal=LOG_PROBS, mask=MASK, advantages=per_token(math.nan)
    )
    found = policy_loss(
        config.Clip(),
        current=LOG_PROBS[1:],
        proximal=LOG_PROBS[1:],
        mask=MASK[1:],
        advantages=torch.ones(1),
        correction=out.part(slice(1, 2)),
    )
    assert float(found.metrics[NAME]) == 0.0


def test_no_advantages_no_share_of_them() -> None:
    out = correct(preset("token-tis"), behavior=LOG_PROBS, proximal=LOG_PROBS, mask=MASK)
    assert NAME not in out.metrics


def missing_at(row: int, column: int) -> torch.Tensor:
    found = LOG_PROBS.clone()
    found[row, column] = math.nan
    return found


@pytest.mark.parametrize("reduction", ["token-mean", "seq-mean-token-mean", "seq-mean-token-sum"])
@pytest.mark.parametrize("policy", ["behavior", "proximal", "current", "reference"])
@pytest.mark.parametrize("corrected", [True, False])
def test_a_token_without_a_log_prob_is_counted_neither_in_the_whole_nor_in_parts(
    policy: str, reduction: str, corrected: bool
) -> None:
    """Row 1 has one token: without it, sequences are one fewer too. Row 0 loses one of three."""
    for place in ((0, 1), (1, 0)):
        policies = dict.fromkeys(("behavior", "proximal", "current", "reference"), LOG_PROBS) | {
            policy: missing_at(*place)
        }
        data = policies | {"mask": MASK, "advantages": torch.tensor([[1.0, 2.0, 3.0, 0.0], [4.0, 0.0, 0.0, 0.0]])}
        settings = {
            "correction": preset("token-tis") if corrected else None,
            "kl": KlPenalty(coefficient=0.1),
            "reduction": reduction,
        }
        if not corrected:
            data.pop("behavior")
            policies.pop("behavior")
        whole = policy_loss(config.Clip(), **data, **settings).loss
        rows = (slice(0, 1), slice(1, 2))
        step = Denominator.of(
            [MASK[each] for each in rows],
            **{name: [log_probs[each] for each in rows] for name, log_probs in policies.items()},
        )
        parts = [
            policy_loss(
                config.Clip(), **{name: each[row] for name, each in data.items()}, **settings, denominator=step
            ).loss
            for row in rows
        ]
        torch.testing.assert_close(torch.stack(parts).sum(), whole)


def test_a_reference_that_misses_a_token_is_told_to_a_denominator_of_what_a_correction_trained() -> None:
    # four tokens, one without a reference: three are left, each −1. Counted with it: −3/4
    rule = preset("token-tis")
    policies = {"behavior": LOG_PROBS, "proximal": LOG_PROBS, "mask": MASK}
    out, reference = correct(rule, **policies), missing_at(0, 1)
    data = policies | {"current": LOG_PROBS, "reference": reference, "advantages": torch.ones(2)}
    penalty = KlPenalty(coefficient=0.1)
    for step, wanted in (
        (Denominator.of(out.trained, reference=reference), -1.0),
        (Denominator.of(out.trained), -0.75),
    ):
        found = policy_loss(config.Clip(), **data, correction=out, kl=penalty, denominator=step)
        assert found.loss.item() == pytest.approx(wanted)


def test_log_probs_of_another_shape_than_their_mask_are_refused() -> None:
    with pytest.raises(InputError, match=r"shape of their mask \(2, 4\), got \(2, 3\)"):
        Denominator.of(MASK, reference=LOG_PROBS[:, :3])
