"""Thresholds: what a gate keeps of right and of wrong answers."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.lab.mini import OVERRIDES
from trimtab.cli.app import app
from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.presets import preset
from trimtab.explain.thresholds import gates_of
from trimtab.lab.thresholds import scan_gate, scan_texts, scans_json, units
from trimtab.records.schema import RolloutRow


def row(log_r: list[float], *, correct: bool) -> RolloutRow:
    count = len(log_r)
    behavior = np.full(count, -1.0, np.float32)
    return RolloutRow(
        step=0,
        version=0,
        group=0,
        sample=0,
        problem="p",
        prompt="",
        response="",
        prompt_tokens=np.zeros(1, np.int32),
        tokens=np.zeros(count, np.int32),
        behavior=behavior,
        proximal=behavior + np.array(log_r, np.float32),
        mask=np.ones(count, bool),
        versions=np.zeros(count, np.int32),
        kept=np.ones(count, bool),
        weight=np.ones(count, np.float32),
        advantage=np.full(count, 1.0 if correct else -1.0, np.float32),
        reward=float(correct),
        correct=correct,
        finish="stop",
        staleness=0,
    )


# Two right answers whose geometric means lie 3 % and 20 % off, two wrong ones at 0.1 % and 0.5 %.
ROWS = [
    row([math.log(1.03)] * 2, correct=True),
    row([math.log(0.8)] * 2, correct=True),
    row([math.log(1.001), math.log(1.001)], correct=False),
    row([math.log(1.005), math.log(1.005)], correct=False),
]


def gate(name: str, **numbers: float | None) -> Gate:
    return gates_of(preset(name, **numbers))[0]


def test_a_band_that_keeps_only_wrong_answers_is_called_out():
    found = scan_gate("geo-rs", gate("geo-rs"), [ROWS])
    (seed,) = found.seeds
    assert (seed.kept, seed.right, seed.wrong, seed.net_advantage) == (0.5, 0.0, 1.0, -1.0)
    assert found.remark == "keeps wrong answers more often than right ones"


@pytest.mark.filterwarnings("ignore:Gate on the geometric mean")
def test_an_upper_bound_of_two_on_a_geometric_mean_never_fires():
    found = scan_gate("wide", gate("geo-rs", lower=None, upper=2.0), [ROWS])
    assert found.seeds[0].kept == 1.0
    assert found.remark == "never fires"


def test_the_thresholds_are_the_least_that_keep_a_share():
    found = scan_gate("geo-rs", gate("geo-rs"), [ROWS])
    # sorted distances as factors: 1.001, 1.005, 1.03, 1.25; each row holds a quarter of the tokens
    assert found.keeping == pytest.approx({"99%": 1.25, "90%": 1.25, "50%": 1.005}, rel=1e-5)
    half = next(each for each in found.curve if each.threshold == pytest.approx(1.005, rel=1e-5))
    assert (half.kept, half.right, half.wrong) == (0.5, 0.0, 1.0)


def test_the_share_kept_never_falls_as_the_threshold_rises():
    for name in ("geo-rs", "k2-rs", "k3-rs", "seq-max-k3", "token-mis", "seq-mis", "kpop", "veto"):
        found = scan_gate(name, gate(name), [ROWS, ROWS[:2]])
        by_threshold = sorted(found.curve, key=lambda each: each.threshold or 0.0)
        kept = [each.kept for each in by_threshold]
        assert kept == sorted(kept)
        assert kept[-1] == 1.0


def test_at_the_gate_s_own_bound_the_curve_and_the_gate_agree():
    own = gate("k2-rs", upper=0.0005)
    found = units(own, ROWS)
    assert ((found.statistic <= 0.0005) == found.stays).all()
    assert 0 < found.stays.sum() < len(ROWS)


def test_tokens_are_counted_where_tokens_are_judged():
    # log-ratios 0, log 3 in a right answer, 0, 0 in a wrong one: one token of four leaves
    rows = [row([0.0, math.log(3)], correct=True), row([0.0, 0.0], correct=False)]
    (seed,) = scan_gate("token-mis", gate("token-mis"), [rows]).seeds
    assert (seed.kept, seed.right, seed.wrong) == (0.75, 0.5, 1.0)
    assert seed.net_advantage == pytest.approx(-1 / 3)


def test_gates_that_look_at_the_advantage_or_share_a_budget_have_no_curve_and_zero_weights_have_one():
    assert gates_of(preset("opsm")) == gates_of(preset("m2po")) == []
    assert gates_of(preset("icepop")) == [Gate(metric="ratio", lower=0.5, upper=5.0)]
    assert gates_of(Correction(weight=Weight(level="token", upper=2.0))) == []
    assert len(gates_of(preset("geo-rs+token-mis"))) == 2


def test_a_scan_is_a_row_of_text_and_strict_json():
    only_right = [ROWS[0]]
    found = scan_gate("geo-rs", gate("geo-rs"), [only_right])
    assert math.isnan(found.seeds[0].wrong)
    assert json.loads(json.dumps(scans_json([found]), allow_nan=False))[0]["seeds"][0]["wrong"] is None
    assert len(scan_texts(found)) == 10


def test_the_command_samples_the_scenario_and_prints_every_gate_once(tmp_path: Path):
    asked = [
        "lab",
        "thresholds",
        "--scenario",
        "quantized",
        "--scenario",
        "stale",
        "--seeds",
        "2",
        "-o",
        str(tmp_path / "t.json"),
    ]
    asked += [part for name in ("geo-rs", "geo-rs+token-tis", "k2-rs(upper=0.02)") for part in ("--correction", name)]
    result = CliRunner().invoke(app, [*asked, *OVERRIDES])
    assert result.exit_code == 0, result.output
    found = json.loads((tmp_path / "t.json").read_text())
    assert [each["gate"] for each in found["quantized"]] == [
        "0.99 ≤ sequence geometric mean ratio ≤ 1.01",
        "sequence mean k2 ≤ 0.02",
    ]
    assert all(len(each["seeds"]) == 2 for each in found["quantized"])
    assert found["quantized"][0]["keeping"]["99%"] > 1.0001
    assert found["stale"][0]["keeping"]["99%"] > 1.0001
    assert "T KEEPS 99 %" in result.output
