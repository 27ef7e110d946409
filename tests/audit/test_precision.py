"""The fingerprint of a precision: errors of rounded weights repeat, those of rounded activations do not."""

from dataclasses import replace

import numpy as np
import pytest

from tests.audit import made
from trimtab.audit.causes import precision
from trimtab.audit.causes.precision import precision_fingerprint, repeated_share
from trimtab.audit.gap import Gap, gap_of
from trimtab.records.saved import SavedBatch


def apart(repeating: float, size: float = 5e-3, vocabulary: int = 12) -> SavedBatch:
    """Errors of which a share is the same wherever a token follows the same other one."""
    batch = made.batch(sequences=64)
    rng = np.random.default_rng(3)
    tokens = rng.integers(0, vocabulary, len(batch.trained))
    own = rng.normal(size=(vocabulary, vocabulary))[np.roll(tokens, 1), tokens]
    error = np.sqrt(repeating) * own + np.sqrt(1 - repeating) * rng.normal(size=len(tokens))
    return replace(batch, tokens=tokens, proximal=(batch.behavior + size * error).astype(np.float32))


def one_pair(values: list[float]) -> Gap:
    """The same pair of tokens once in each of these sequences, with these ℓ."""
    many = len(values)
    trained = np.tile([False, True], many)
    batch = SavedBatch(
        origin=made.batch(sequences=1).origin,
        offsets=np.arange(0, 2 * many + 1, 2),
        trained=trained,
        tokens=np.tile([3, 4], many),
        behavior=np.where(trained, -1.0, np.nan).astype(np.float32),
        proximal=np.where(trained, -1.0 + np.repeat(values, 2), np.nan).astype(np.float32),
    )
    return gap_of(batch)


def test_the_share_that_repeats_by_hand(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(precision, "LEAST_PAIRS", 1)
    # 1, 1, −1: ordered pairs of two sequences have products 1, −1 and −1, twice each; the mean square is 1.
    assert repeated_share(one_pair([1.0, 1.0, -1.0])) == pytest.approx(-1 / 3, rel=1e-5)
    assert repeated_share(one_pair([0.5, 0.5, 0.5])) == pytest.approx(1.0, rel=1e-5)
    # 2, 1: the product is 2, the mean square 5/2.
    assert repeated_share(one_pair([2.0, 1.0])) == pytest.approx(0.8, rel=1e-5)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.7, 1.0])
def test_the_share_that_was_made_to_repeat_is_found(share: float):
    assert repeated_share(gap_of(apart(share))) == pytest.approx(share, abs=0.12)


def test_the_order_of_sequences_and_the_size_change_nothing():
    batch = apart(0.6)
    flipped = np.arange(len(batch.trained)).reshape(64, -1)[::-1].ravel()
    turned = replace(
        batch, **{name: getattr(batch, name)[flipped] for name in ("tokens", "behavior", "proximal", "trained")}
    )
    share = repeated_share(gap_of(batch))
    assert share == pytest.approx(repeated_share(gap_of(turned)), rel=1e-9)
    assert share == pytest.approx(repeated_share(gap_of(apart(0.6, size=5e-2))), rel=1e-2)


@pytest.mark.parametrize(
    ("repeating", "size", "named"),
    [(0.05, 7e-4, "fp16"), (0.05, 6e-3, "bf16"), (0.8, 1.5e-3, "int8"), (0.8, 6e-3, "fp8"), (0.8, 3e-2, "int4")],
)
def test_a_precision_is_named_by_what_repeats_and_by_size(repeating: float, size: float, named: str):
    found = precision_fingerprint(gap_of(apart(repeating, size)))
    assert found.nearest == named
    assert found.rounded == ("weights" if repeating > 0.5 else "activations")


def test_without_tokens_or_with_few_that_repeat_no_precision_is_named():
    batch = apart(0.8, 6e-3)
    for less in (replace(batch, tokens=None), replace(batch, tokens=np.arange(len(batch.trained)))):
        found = precision_fingerprint(gap_of(less))
        assert (found.repeats, found.rounded, found.nearest) == (None, None, None)
        said = precision.precision(gap_of(less)).statistic
        assert "the size of the gap alone does not, as it grows with the model" in said
        assert not any(name in said for name in ("bf16", "fp16", "fp8", "int8", "int4"))
