"""Early warning: planted signals are found with their lead, noise is not, and no half sees the other."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.lab.curves import entry
from trimtab.lab.early_warning import (
    distinct_runs,
    early_warnings,
    predictors_of,
    score_at,
    signal_series,
    warning_texts,
    write_predictors,
)
from trimtab.lab.evidence.pairs import first_fall, late_accuracy, lifetime
from trimtab.lab.results import BinnedCurve, CellResult, read_results
from trimtab.lab.statistics.intervals import Lifetime
from trimtab.report.findings.signs import Predictor, predictors
from trimtab.report.series import Series

FALL = 300
DOCS = Path(__file__).parents[2] / "docs"


def accuracy(falls: bool) -> list[tuple[int, float]]:
    steps = range(0, 401, 10)
    return [(step, 0.3 if step == 0 else 0.1 if falls and step >= FALL else 0.9) for step in steps]


def cell(seed: int, falls: bool, mismatch: Sequence[float]) -> CellResult:
    """A run whose mismatch is given in 80 points of five steps; the rest is level noise of its own."""
    rng = np.random.default_rng(seed)
    made = entry("stale", "off", seed, accuracy(falls))
    curves = {
        name: BinnedCurve(every=5, values=tuple(rng.uniform(0.4, 0.6, 80).tolist()))
        for name in ("ess", "entropy", "kept")
    }
    curves["grad_norm"] = BinnedCurve(every=5, values=tuple(rng.uniform(0.4, 0.6, 80).tolist()))
    return made.but(curves=curves | {"mismatch": BinnedCurve(every=5, values=tuple(mismatch))})


def planted(lead: int) -> list[CellResult]:
    """Half of 24 runs fall at 300; their mismatch is up a hundredfold from `lead` steps before."""
    up = [0.01 if 5 * (place + 1) <= FALL - lead else 1.0 for place in range(80)]
    return [cell(seed, seed % 4 < 2, up if seed % 4 < 2 else [0.01] * 79 + [0.01 + 1e-4 * seed]) for seed in range(24)]


@pytest.mark.parametrize("lead", [30, 50])
def test_a_planted_signal_is_found_on_the_held_out_half_with_its_lead(lead: int):
    found = {each.signal.name: each for each in early_warnings(planted(lead))}
    best = found["mismatch KL, level"]
    assert best.rises
    assert (best.falls, best.stood) == (6, 6)
    assert best.caught == 1.0
    assert best.false_share <= 0.5
    assert best.lead == pytest.approx(lead - 10, abs=5)  # the mean over ten steps is up within the first two points
    assert best.area.estimate > 0.9 > found["entropy, level"].area.estimate
    noise = [found[name].area for name in ("effective sample size, level", "entropy, level", "kept, level")]
    assert all(each.lower < 0.5 < each.upper or abs(each.estimate - 0.5) < 0.15 for each in noise)


def test_a_signal_that_is_low_before_a_fall_is_turned_by_the_even_seeds():
    turned = [
        each.but(
            curves=each.curves
            | {"mismatch": BinnedCurve(every=5, values=tuple(1.1 - (v or 0) for v in each.curves["mismatch"].values))}
        )
        for each in planted(50)
    ]
    found = {each.signal.name: each for each in early_warnings(turned)}
    assert not found["mismatch KL, level"].rises
    assert found["mismatch KL, level"].area.estimate > 0.9
    assert warning_texts(found["mismatch KL, level"])[1].startswith("under")


def test_what_only_even_seeds_show_does_not_pass_on_odd_ones():
    flat = [
        each.but(curves=each.curves | {"mismatch": each.curves["ess"]}) if each.seed % 2 else each
        for each in planted(50)
    ]
    found = {each.signal.name: each for each in early_warnings(flat)}
    assert found["mismatch KL, level"].area.upper < 0.8


def test_nothing_is_said_without_falls_on_both_sides():
    assert early_warnings([each for each in planted(50) if each.seed % 2 == 0]) == []
    assert early_warnings([each for each in planted(50) if first_fall(each) is None]) == []


def test_runs_that_are_the_same_count_once():
    runs = planted(50)
    assert len(distinct_runs([*runs, *(each.but(correction="k3-rs", name="again") for each in runs)])) == len(runs)


def test_a_score_uses_nothing_later_than_its_step():
    whole = Series.of((step, float(step)) for step in range(5, 401, 5))
    cut = whole.within(0, 200)
    for growth in (False, True):
        assert score_at(whole, 200, growth) == score_at(cut, 200, growth)
    assert score_at(whole, 200, growth=False) == 197.5  # of 195 and 200
    assert score_at(whole, 200, growth=True) == pytest.approx(math.log(197.5 / np.median(range(145, 191, 5))))
    assert math.isnan(score_at(whole, 2, growth=False))


def test_what_a_gate_prefers_is_the_difference_of_two_curves():
    made = entry("stale", "off", 0, accuracy(False), level={"kept_right": 0.9, "kept_wrong": 0.4})
    assert signal_series(made, "preference").values == pytest.approx(np.full(80, 0.5))


def test_a_fall_is_the_first_evaluation_under_half_of_the_best_or_under_the_start():
    falls, stands = cell(0, True, [0.1] * 80), cell(1, False, [0.1] * 80)
    assert (first_fall(falls), first_fall(stands)) == (FALL, None)
    assert (lifetime(falls), lifetime(stands)) == (Lifetime(FALL, True), Lifetime(400, False))
    assert late_accuracy(stands) == pytest.approx(0.9)
    sunk = entry("stale", "off", 0, [(0, 0.6), (10, 0.5), (20, 0.45), (400, 0.6)])
    # Three standard errors of 0.6 and 0.45 on 256 problems are 0.131: 0.5 is within, 0.45 is not.
    assert first_fall(sunk) == 20
    came_back = entry("stale", "off", 0, [(0, 0.3), (10, 0.9), (20, 0.2), (30, 0.9)])
    assert first_fall(came_back) == 20


def test_the_shipped_predictors_are_those_of_the_kept_cells(tmp_path: Path):
    files = [DOCS / "lab.json", DOCS / "lab-kept.json", *sorted(DOCS.glob("claims-*.json"))]
    entries = [each for file in files for each in read_results(file).entries]
    write_predictors(tmp_path / "made.json", early_warnings(entries))
    shipped = [each.model_dump(mode="json") for each in predictors()]
    assert json.loads((tmp_path / "made.json").read_text()) == shipped
    assert [each.metric for each in predictors()] == ["drift/k3"]


def test_only_what_predicts_goes_into_the_report():
    (found,) = predictors_of(early_warnings(planted(50)))
    assert (found.metric, found.gathered, found.rises) == ("drift/k3", "max", True)


def test_a_predictor_passes_where_the_mean_over_ten_steps_does():
    warns = Predictor(
        metric="m", name="M", panel="p", gathered="max", rises=True, threshold=0.5, area=(0.8, 0.7, 0.9), caught=0.25, falls=8,
        lead=40.0, false_share=0.1, stood=20,
    )  # fmt: skip
    # One step at 2 makes its five steps 2 and the mean of ten 1; at 0.8 it makes 0.4.
    assert warns.first_passing(Series.of((step, 2.0 if step == 102 else 0.0) for step in range(200))) == (105, 1.0)
    assert warns.first_passing(Series.of((step, 0.8 if step == 102 else 0.0) for step in range(200))) is None
    assert warns.first_passing(Series.of(())) is None
    low = warns.but(rises=False, threshold=0.1)
    assert low.first_passing(Series.of((step, 1.0 if step < 100 else 0.0) for step in range(200))) == (110, 0.0)
    assert "before 25 % of 8 falls, 40 steps ahead" in warns.reliability
