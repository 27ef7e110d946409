"""What each rule would do: counted by hand on a few tokens, and the advice that follows."""

from dataclasses import replace

import numpy as np
import pytest

from tests.audit import made
from trimtab.audit.audit import audit_batch
from trimtab.audit.whatif import what_if
from trimtab.config.presets import PRESETS
from trimtab.dialects.candidate import parse_candidate
from trimtab.records.saved import Origin, SavedBatch


def small() -> SavedBatch:
    """Two right tokens at ratio 1, and a wrong answer of four, one of them at ratio 4 and the rest at 1."""
    behavior = np.full(6, -3.0, np.float32)
    proximal = behavior + np.log(np.array([1, 1, 1, 1, 1, 4], np.float32))
    return SavedBatch(
        origin=Origin(framework="columns", files=()), offsets=np.array([0, 2, 6]), trained=np.ones(6, bool), behavior=behavior,
        proximal=proximal.astype(np.float32), advantage=np.array([1, 1, -1, -1, -1, -1], np.float32), reward=np.array([1.0, 0.0]),
    )  # fmt: skip


def outcome(name: str, batch: SavedBatch | None = None):
    found = what_if(batch or small(), [parse_candidate(name)])
    return found.outcomes[-1]


def test_a_token_rule_is_counted_by_hand():
    # Ratios 1 1 | 1 1 1 4 under token-mis with [0.5, 2]: five of six stay, three of the four wrong ones.
    each = outcome("token-mis(upper=2)")
    assert each.kept == pytest.approx(5 / 6)
    assert (each.right, each.wrong) == (1.0, pytest.approx(3 / 4))
    assert each.sequences == 1.0
    assert each.net_advantage == pytest.approx((2 - 3) / 5)
    assert (each.weight, each.step) == (pytest.approx(1.0), pytest.approx(5 / 6))
    assert (each.short, each.long) == (1.0, pytest.approx(3 / 4))


def test_a_row_without_a_reward_is_neither_right_nor_wrong():
    # The third row has no reward, and its one token, at ratio 4, goes: of the wrong ones three of four still stay.
    batch = small()
    proximal = np.append(batch.proximal, np.float32(-3 + np.log(4)))
    more = replace(
        batch, offsets=np.array([0, 2, 6, 7]), trained=np.ones(7, bool), behavior=np.full(7, -3.0, np.float32),
        proximal=proximal, advantage=np.append(batch.advantage, np.float32(0)), reward=np.array([1.0, 0.0, np.nan]),
    )  # fmt: skip
    each = outcome("token-mis(upper=2)", more)
    assert (each.right, each.wrong) == (1.0, pytest.approx(3 / 4))
    assert each.curves[0].points[-1][3] == outcome("token-mis(upper=2)").curves[0].points[-1][3]


def test_the_step_is_what_the_weights_leave_of_it():
    # seq-tis at 2: the product of the second is 4, cut to 2; (1 + 1 + 4 · 2) / 6 = 10/6, and its sample (10)² / (2 + 16) / 6.
    each = outcome("seq-tis(upper=2)")
    assert each.step == pytest.approx(10 / 6)
    assert each.ess == pytest.approx(100 / 18 / 6)


def test_the_length_trap_and_a_step_that_starves_are_seen():
    """A drift of −0.03 per token is a product of e^−0.6 over 20 tokens and of e^−6 over 200: long answers go."""
    lengths = np.array([20] * 8 + [200] * 8)
    total = int(lengths.sum())
    behavior = np.full(total, -1.0, np.float32)
    batch = SavedBatch(
        origin=Origin(framework="columns", files=()), offsets=np.concatenate([[0], np.cumsum(lengths)]),
        trained=np.ones(total, bool), behavior=behavior, proximal=behavior - np.float32(0.03),
    )  # fmt: skip
    trapped = outcome("seq-mis(lower=0.5,upper=2)", batch)
    assert (trapped.short, trapped.long) == (1.0, 0.0)
    starved = outcome("seq-tis(upper=2)", batch)
    assert starved.step == pytest.approx((160 * np.exp(-0.6) + 1600 * np.exp(-6)) / 1760, rel=1e-3)
    assert starved.step < 0.06


def test_thresholds_keep_what_they_say():
    batch = made.batch(noise=0.3)
    each = outcome("token-mis(upper=2)", batch)
    assert each.curves[0].form == "token ratio ≤ t"
    ratio = np.exp(batch.proximal.astype(np.float64) - batch.behavior)[batch.trained]
    for share, bound in zip((0.99, 0.9, 0.5), each.curves[0].keeping.values(), strict=True):
        assert np.mean(ratio <= bound * (1 + 1e-6)) == pytest.approx(share, abs=0.001)


def test_a_threshold_of_sequences_keeps_whole_right_and_wrong_answers():
    # Four right tokens at ratio 1; two wrong ones, 1 and 4, with the geometric mean 2: half of the tokens are the first answer's.
    curve = outcome("geo-rs", replace(small(), offsets=np.array([0, 4, 6]))).curves[0]
    whole, half = curve.points[0], next(each for each in curve.points if each[1] < 1)
    assert whole[1:] == (1.0, 1.0, 1.0)
    assert half[1:] == (pytest.approx(4 / 6), 1.0, 0.0)


def test_every_preset_is_there_and_what_cannot_be_worked_out_says_why():
    found = what_if(made.batch(noise=0.1))
    assert {each.label for each in found.outcomes} == set(PRESETS)
    assert found.agreement.shape == (len(PRESETS), len(PRESETS))
    np.testing.assert_array_equal(found.agreement, found.agreement.T)
    assert (np.diag(found.agreement) == 1).all()
    lacking = what_if(replace(made.batch(noise=0.1), advantage=None))
    assert any(each.startswith("opsm: ") for each in lacking.left_out)


def test_with_current_only_presets_take_their_bypass_form():
    batch = made.batch(noise=0.1)
    labels = {each.label for each in what_if(replace(batch, current=batch.proximal, proximal=None)).outcomes}
    assert "bypass-geo-rs" in labels
    assert "geo-rs" not in labels


def test_a_rule_whose_log_probs_are_partly_missing_says_on_how_many_tokens_it_was_worked_out():
    batch = made.batch(noise=0.1)
    known = np.arange(len(batch.trained)) < 10 * 45  # ten sequences of 45
    found = what_if(replace(batch, current=np.where(known, batch.proximal, np.nan).astype(np.float32)))
    by_name = {each.label: each.tokens for each in found.outcomes}
    assert (by_name["token-tis"], by_name["opsm"]) == (64 * 40, 10 * 40)
    assert found.agreement.shape == (len(found.outcomes),) * 2
    assert any("opsm" in each and "on 400 of 2,560 tokens" in each for each in found.left_out)
    assert what_if(batch).left_out == ()


def test_a_bug_is_mended_first_a_small_gap_is_left_alone_and_a_real_one_is_corrected():
    batch = made.batch(noise=0.2)
    assert audit_batch(made.batch(noise=1e-3)).advice.title == "No correction needed"
    assert audit_batch(batch).advice.rule is not None
    late = np.roll(batch.behavior.reshape(64, -1)[:, 5:], 1, axis=1)
    spoilt = batch.behavior.reshape(64, -1).copy()
    spoilt[:, 5:] = late
    advice = audit_batch(replace(batch, behavior=spoilt.ravel())).advice
    assert advice.title.startswith("Fix first: shift")
    assert advice.rule is None
