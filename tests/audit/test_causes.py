"""The causes: verdicts on batches made by hand, missing data named, and shares that add up."""

from dataclasses import replace

import numpy as np
import pytest

from tests.audit import made
from trimtab.audit.causes import numerics
from trimtab.audit.causes.evidence import mean_with_error, rank_correlation
from trimtab.audit.causes.numerics import SURE, bias_measure
from trimtab.audit.causes.sampling import temperature_shift
from trimtab.audit.causes.sources import versions
from trimtab.audit.diagnose import CAUSES, diagnose
from trimtab.audit.gap import gap_of
from trimtab.errors import InputError
from trimtab.records.saved import SavedBatch


def moved(batch: SavedBatch, by: np.ndarray) -> SavedBatch:
    """The batch with the trainer's logits moved: confident tokens hardly feel it."""
    scale = 1 - np.exp(np.nan_to_num(batch.behavior))
    return replace(batch, proximal=np.minimum(batch.proximal + by * scale, 0.0).astype(np.float32))


def found(batch: SavedBatch, second: np.ndarray | None = None) -> list[str]:
    return [step.cause.name for step in diagnose(batch, second) if step.verdict == "found"]


def verdict(batch: SavedBatch, name: str) -> str:
    return next(step.verdict for step in diagnose(batch) if step.cause.name == name)


def test_nothing_is_found_where_both_sides_agree():
    assert found(made.batch()) == []
    assert found(made.batch(noise=1e-6)) == []


def test_noise_on_fresh_tokens_is_low_precision_and_suspected_only_where_versions_are_not_known():
    batch = made.batch(noise=0.02)
    assert found(batch) == ["precision"]
    assert verdict(replace(batch, versions=None), "precision") == "suspected"


def test_values_outside_the_mask_change_no_word():
    batch = made.batch(noise=0.02)
    spoilt = {
        name: np.where(batch.trained, getattr(batch, name), value).astype(np.float32)
        for name, value in (("behavior", 1e9), ("proximal", -np.inf), ("advantage", np.nan))
    }
    assert [step.statistic for step in diagnose(replace(batch, **spoilt))] == [
        step.statistic for step in diagnose(batch)
    ]


@pytest.mark.parametrize("by", [-2, -1, 1, 2])
def test_a_shift_is_found_with_its_size_and_what_is_under_it_is_still_seen(by: int):
    batch = made.batch(noise=0.02)
    late = batch.behavior.copy().reshape(64, -1)
    late[:, 5:] = np.roll(late[:, 5:], by, axis=1)
    steps = diagnose(replace(batch, behavior=late.ravel()))
    assert [step.cause.name for step in steps if step.verdict == "found"] == ["shift", "precision"]
    assert f"{by:+d}" in steps[0].remedy
    shares = [step.share for step in steps if step.verdict == "found"]
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] > 0.99


def test_zeros_for_missing_values_are_found_and_counted_and_true_zeros_are_not():
    batch = made.batch()
    lost = np.random.default_rng(1).random(len(batch.trained)) < 0.05
    spoilt = replace(batch, behavior=np.where(lost & batch.trained, np.float32(0), batch.behavior))
    assert found(spoilt) == ["missing"]
    sure = replace(
        batch,
        behavior=np.where(lost & batch.trained, np.float32(0), batch.behavior),
        proximal=np.where(lost & batch.trained, np.float32(0), batch.proximal),
    )
    assert found(sure) == []


def test_missing_values_that_are_marked_as_such_are_found_without_a_share_of_the_gap():
    batch = made.batch(noise=0.02)
    spoilt = replace(
        batch, behavior=np.where(np.arange(len(batch.trained)) % 50 == 49, np.nan, batch.behavior).astype(np.float32)
    )
    step = next(each for each in diagnose(spoilt) if each.cause.name == "missing")
    assert (step.verdict, step.share) == ("found", 0.0)


def test_a_log_prob_above_zero_is_no_log_prob():
    batch = made.batch()
    spoilt = batch.behavior.copy()
    spoilt[np.flatnonzero(batch.trained)[:40]] = 1.0
    assert found(replace(batch, behavior=spoilt)) == ["missing"]


def test_a_prompt_in_the_mask_is_found_by_what_the_samples_of_a_group_share():
    batch = made.batch(noise=0.01)
    tokens, whole = batch.tokens.reshape(64, -1).copy(), np.ones_like(batch.trained)
    tokens[:, :5] = np.repeat(tokens[::4, :5], 4, axis=0)
    log_probs = np.where(batch.trained, batch.behavior, -2.0).astype(np.float32)
    shared = replace(batch, tokens=tokens.ravel(), behavior=log_probs, proximal=log_probs)
    assert found(shared) == []
    assert found(replace(shared, trained=whole)) == ["mask"]
    unknown = np.where(batch.trained, shared.behavior, np.nan).astype(np.float32)
    assert found(replace(shared, trained=whole, behavior=unknown))[0] == "mask"
    assert verdict(replace(shared, trained=whole, group=None), "mask") == "inconclusive"
    assert verdict(replace(shared, trained=whole, tokens=None), "mask") == "inconclusive"


def test_ratios_on_a_plateau_below_one_are_truncated_sampling():
    batch = made.batch(noise=1e-3)
    kept = np.where(batch.trained, np.log(0.9) + batch.proximal, np.nan).astype(np.float32)
    assert found(replace(batch, proximal=kept)) == ["truncation"]
    assert found(replace(batch, behavior=kept)) != ["truncation"]  # above one is none


def test_a_temperature_on_two_alternatives_is_the_power_of_a_logit():
    # p = 0.9, T = 2: 0.81 / (0.81 + 0.01) = 0.98780; log(0.98780 / 0.9) = 0.09309
    assert temperature_shift(np.log([0.9]), 2.0, 1.0)[0] == pytest.approx(np.log(0.81 / 0.82 / 0.9))
    assert temperature_shift(np.log([0.5]), 2.0, 1.0)[0] == pytest.approx(0.0)
    assert temperature_shift(np.log([0.3]), 1.0, 7.0)[0] == pytest.approx(0.0, abs=1e-12)


def test_one_engine_of_four_is_found_and_named_and_needs_engines():
    batch = made.batch(noise=1e-3)
    bad = np.repeat(np.array([name == "engine-2" for name in batch.source]), 45)
    noise = np.random.default_rng(3).normal(size=len(bad)) * 0.2
    spoilt = moved(batch, np.where(bad, noise, 0.0))
    step = next(each for each in diagnose(spoilt) if each.cause.name == "source")
    assert step.verdict == "found"
    assert "engine-2" in step.statistic
    assert step.share > 0.99
    assert verdict(replace(spoilt, source=None), "source") == "inconclusive"


def test_a_gap_that_grows_with_age_is_staleness_and_one_that_does_not_is_none():
    batch = made.batch()
    age = np.arange(64) % 4
    noise = np.random.default_rng(4).normal(size=len(batch.trained)) * np.repeat(0.05 * age, 45)
    stale = replace(moved(batch, noise), versions=np.repeat(7 - age, 45), source=None)
    assert found(stale) == ["stale"]
    assert verdict(made.batch(noise=0.02, versions=np.repeat(7 - age, 45)), "stale") == "ruled out"
    assert verdict(replace(stale, versions=None), "stale") == "inconclusive"
    assert verdict(replace(stale, versions=np.full_like(stale.versions, 5)), "stale") == "suspected"


def test_a_gap_that_grows_over_steps_at_one_age_is_versions_that_lie():
    batch = made.batch()
    step = np.arange(64) // 11
    noise = np.random.default_rng(5).normal(size=len(batch.trained)) * np.repeat(0.05 * step, 45)
    lying = replace(moved(batch, noise), step=step, learner_version=step, versions=np.repeat(step, 45))
    assert found(lying) == ["versions"]


def test_tokens_that_are_further_apart_for_being_older_are_no_versions_that_lie():
    """Age 0 throughout, and in the last steps many of age 3 that are far apart: at one age the gap stays flat."""
    batch = made.batch(noise=0.02)
    step = np.arange(64) // 11
    old = (step >= 4) & (np.arange(64) % 4 != 0)
    noise = np.random.default_rng(5).normal(size=len(batch.trained)) * np.repeat(0.5 * old, 45)
    honest = replace(
        moved(batch, noise), step=step, learner_version=step, versions=np.repeat(np.where(old, step - 3, step), 45)
    )
    assert versions(gap_of(honest)).verdict == "ruled out"
    mixed = replace(honest, versions=np.repeat(step, 45))  # the same, said to be fresh
    assert versions(gap_of(mixed)).verdict == "found"


@pytest.mark.parametrize(("slope", "word"), [(1, "length"), (-1, "prefix cache")])
def test_a_gap_that_grows_or_fades_along_the_response_is_the_cache(slope: int, word: str):
    batch = made.batch()
    place = np.tile(np.maximum(np.arange(45) - 5, 0), 64)
    size = place if slope > 0 else 40 - place
    noise = np.random.default_rng(6).normal(size=len(place)) * 0.002 * size
    step = next(each for each in diagnose(moved(batch, noise)) if each.cause.name == "cache")
    assert step.verdict == "found"
    assert word in step.remedy


def test_a_second_scoring_that_is_as_far_off_is_the_trainers_own_noise():
    batch = made.batch(noise=0.02)
    again = made.batch(noise=0.02, seed=0).behavior + 0.02 * np.random.default_rng(9).normal(size=len(batch.trained))
    assert found(batch, again) == ["trainer"]
    assert found(batch, batch.proximal) == ["precision"]


def test_a_second_scoring_without_a_number_says_nothing_of_noise():
    batch = made.batch(noise=0.02)
    assert found(batch, np.full(len(batch.trained), np.nan)) == found(batch)


def test_a_few_tokens_that_are_out_of_all_bounds_make_no_other_lag_look_better():
    # four of forty tokens 60 to 90 below: squared as they are, they would outweigh what any wrong lag leaves
    batch, rng = made.batch(noise=0.02), np.random.default_rng(3)
    far = np.tile(np.isin(np.arange(45), [12, 17, 30, 38]), 64)
    spoilt = np.where(far, -rng.uniform(60, 90, len(far)), batch.proximal).astype(np.float32)
    assert not {"shift", "retokenised"} & set(found(replace(batch, proximal=spoilt)))


def test_rare_jumps_are_heavy_tails():
    batch = made.batch(noise=1e-3)
    rng = np.random.default_rng(7)
    jumps = (rng.random(len(batch.trained)) < 0.02) * rng.choice([-0.4, 0.4], len(batch.trained))
    assert found(moved(batch, jumps))[0] == "tails"


def test_independent_noise_averages_out_over_a_sequence_and_an_offset_does_not():
    noise, batch = made.batch(noise=0.02), made.batch(noise=0.002)
    offset = np.repeat(0.02 * np.random.default_rng(8).normal(size=64), 45)
    biased = moved(batch, offset)
    assert bias_measure(gap_of(noise)).z < 5
    assert bias_measure(gap_of(biased)).carried > 0.9
    assert verdict(biased, "bias") == "suspected"


@pytest.mark.parametrize(("carried", "said"), [(0.5, "ruled out"), (0.75, "ruled out"), (0.97, "suspected")])
def test_a_bias_is_what_nearly_all_of_a_sequence_carries(carried: float, said: str):
    """Weights rounded to few bits carry up to three quarters of their variance over a sequence: noise, no bias."""
    share = carried / (1 - carried) / 40  # of the variance of a token; of a mean over 40 it is then `carried`
    rng = np.random.default_rng(8)
    own = np.repeat(np.sqrt(share) * rng.normal(size=256), 45) + np.sqrt(1 - share) * rng.normal(size=256 * 45)
    batch = made.batch(sequences=256)
    scale = 0.02 * (1 - np.exp(np.nan_to_num(batch.behavior)))
    apart = replace(batch, proximal=(batch.behavior + scale * own).astype(np.float32))
    found = bias_measure(gap_of(apart))
    assert found.carried == pytest.approx(carried, abs=0.1)
    assert found.z > SURE
    assert verdict(apart, "bias") == said


def test_the_share_that_a_bias_needs_stands_once(monkeypatch: pytest.MonkeyPatch):
    biased = moved(made.batch(noise=0.002), np.repeat(0.02 * np.random.default_rng(8).normal(size=64), 45))
    assert verdict(biased, "bias") == "suspected"
    monkeypatch.setattr(numerics, "CARRIED", 1.0)
    assert verdict(biased, "bias") == "ruled out"


def test_an_error_of_a_mean_counts_sequences_not_tokens():
    # Two sequences with 1, 1 and 3: mean 5/3, summed residuals −4/3 and 4/3, √(2 · 16/9 · 2) / 3 = 0.8889
    mean, error = mean_with_error(np.array([1.0, 1.0, 3.0]), np.array([0, 0, 1]))
    assert mean == pytest.approx(5 / 3)
    assert error == pytest.approx(np.sqrt(2 * 16 / 9 * 2) / 3)


def test_ranks_see_order_only():
    rho, _ = rank_correlation(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.exp(np.array([1.0, 2.0, 3.0, 4.0, 5.0])))
    assert rho == pytest.approx(1.0)
    assert rank_correlation(np.ones(9), np.arange(9.0)) == (0.0, 0.0)


def test_a_batch_with_one_side_only_is_refused_with_the_remedy():
    with pytest.raises(InputError, match=r"needs log-probs of both sides.*--model"):
        gap_of(replace(made.batch(), proximal=None))
    with pytest.raises(InputError, match=r"none of the sampler \(behavior\)"):
        gap_of(replace(made.batch(), behavior=None))


@pytest.mark.parametrize("sequences", [1, 2, 3])
def test_few_sequences_are_judged_without_an_accident(sequences: int):
    for length in (1, 2, 12):
        steps = diagnose(made.batch(sequences=sequences, length=length, noise=0.1))
        assert [step.cause for step in steps] == list(CAUSES)


def test_a_batch_without_trained_tokens_has_no_gap():
    batch = made.batch()
    assert found(replace(batch, trained=np.zeros_like(batch.trained))) == []
