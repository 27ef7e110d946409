"""What to try: every alarm and warning ends with one setting that can be typed, and says where to look."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report import made
from tests.report.test_findings import gated, run, titled
from trimtab.config.advantages import Grpo
from trimtab.config.files import plain_settings, to_yaml
from trimtab.config.presets import preset_names
from trimtab.config.training import Rollout, Train
from trimtab.report import Run, RunFinding, findings_of, report_html

GRAVE = ("alarm", "warning")


@cache
def metrics_of(fate: str) -> list[dict[str, Any]]:
    return made.lines(160, made.curves(np.random.default_rng(0), 160, fate), {"eval/accuracy": 20})


def typed(found: list[RunFinding], settings: dict[str, Any], folder: Path) -> None:
    """Each setting is one that `trimtab train config.yaml SETTING` takes, and changes something."""
    before = Train.from_settings(settings)
    path = folder / "config.yaml"
    path.write_text(to_yaml(before))
    for one in found:
        if one.level in GRAVE:
            assert one.advice is not None, one
            assert one.advice.look
        if one.advice is not None and not one.advice.setting.startswith("--"):
            assert Train.from_settings(plain_settings(path, [one.advice.setting])) != before, one


@pytest.mark.filterwarnings("ignore")  # a few presets are probably not meant with these losses, and say so
@pytest.mark.parametrize("fate", ["collapsed", "starved"])
@pytest.mark.parametrize("correction", preset_names())
def test_what_is_offered_can_be_typed_whatever_the_correction(correction: str, fate: str, tmp_path: Path) -> None:
    for staleness, precision in ((4, "fp32"), (0, "int4"), (0, "fp32")):
        rollout = Rollout(max_staleness=staleness, precision=precision, head="top-k")
        settings = made.settings(correction=correction, rollout=rollout)
        gates = settings["correction"]["gates"]
        curves: dict[str, Any] = {}
        for place, gate in enumerate(gates):
            name = f"{place}-{gate['metric']}-{gate['level']}"
            curves |= gated(name, rejected_tokens=0.9, high_tokens=0.6, low_tokens=0.3, p01=0.2, p50=1.0, p99=4.0)
        found = findings_of(Run(settings=settings, metrics=[line | curves for line in metrics_of(fate)]))
        assert any(one.level in GRAVE for one in found)
        typed(found, settings, tmp_path)


TROUBLES: list[tuple[dict[str, Any], str, str]] = [
    ({"eval__accuracy": 0.3, "advantage__groups": 16.0, "advantage__zero_variance_groups": 12.0}, "Flat", "rollout.samples=16"),
    ({"eval__accuracy": 0.3, "advantage__groups": 16.0, "advantage__zero_variance_groups": 2.0}, "Flat", "learner.lr=0.0006"),
    ({"weight__ess": 0.1, "kept_fraction": 0.95}, "Few tokens own", "correction.weight.upper=2"),
    ({"train__grad_norm": lambda s: float("nan") if s == 5 else 1.0}, "Gradients not finite", "learner.lr=0.00015"),
    ({"rollout__truncated": 0.3, "rollout__length": 100.0}, "Responses hit", "rollout.max_tokens=200"),
    ({"rollout__failed": 0.1}, "A verifier failed", "task.timeout=20"),
    ({"staleness__coverage": 0.5}, "Tokens without a version", "rollout.in_flight=finish"),
    ({"drift__k3": 0.2}, "far apart", "rollout.max_staleness=2"),
    ({"train__skipped": 1.0}, "Updates skipped", "learner.lr=0.00015"),
    ({"kept_fraction": 0.5, "train__skipped": 1.0}, "Updates skipped", "correction.gates.0.upper=0.04"),
    ({"missing_fraction": 0.1}, "Log-probs missing", "rollout.max_staleness=0"),
]  # fmt: skip


@pytest.mark.parametrize(("curves", "title", "setting"), TROUBLES)
def test_each_trouble_has_its_own_remedy(curves: dict[str, Any], title: str, setting: str, tmp_path: Path) -> None:
    made_run = run(200, **curves)
    found = titled(findings_of(made_run), title)
    assert found is not None
    assert found.advice is not None
    assert found.advice.setting == setting
    typed(findings_of(made_run), dict(made_run.settings), tmp_path)


def test_nothing_corrects_so_a_correction_is_offered_and_where_one_does_votes_for_all_or_younger_data() -> None:
    for correction, baseline, setting in (
        ("off", "all", "correction=k3-rs"),
        ("off", "kept", "correction=seq-mis"),
        ("seq-tis", "kept", "rollout.max_staleness=4"),
        ("k3-rs", "kept", "advantage.baseline=all"),
        ("k3-rs", "all", "rollout.max_staleness=4"),
    ):
        settings = made.settings(
            correction=correction, rollout=Rollout(max_staleness=8), advantage=Grpo(baseline=baseline)
        )
        found = findings_of(Run(settings, metrics_of("collapsed")))[0]
        assert found.title == "Collapsed"
        assert found.advice is not None
        assert found.advice.setting == setting


def test_a_gate_that_rejects_most_is_offered_the_bound_where_its_statistic_lies() -> None:
    band = {"metric": "ratio", "level": "sequence", "lower": 0.99, "upper": 1.01, "action": "reject"}
    settings = made.settings() | {"correction": {"gates": [band]}}
    curves = gated(
        "0-ratio-sequence", rejected_tokens=0.9, high_tokens=0.2, low_tokens=0.7, p01=0.9, p50=0.98, p99=1.05
    )
    found = titled(findings_of(run(50, settings=settings, **curves)), "A gate that rejects most")
    assert found is not None
    assert found.advice is not None
    assert found.advice.setting == "correction.gates.0.lower=0.94"  # 0.98 · (0.9 / 0.98)^0.55 = 0.935
    apart = findings_of(run(50, settings=settings | {"rollout": {"max_staleness": 8}}, drift__k3=0.8, **curves))
    far = titled(apart, "A gate that rejects most")
    assert far is not None
    assert far.advice is not None
    assert far.advice.setting == "rollout.max_staleness=4"  # a gate that is opened there lets the worst in


def test_an_idle_gate_is_offered_a_bound_that_its_statistic_reaches() -> None:
    wide = {"metric": "ratio", "level": "sequence", "upper": 2.0, "lower": None, "action": "reject"}
    settings = made.settings() | {"correction": {"gates": [wide]}}
    curves = gated("0-ratio-sequence", rejected_tokens=0.0, p01=0.98, p99=1.03)
    found = titled(findings_of(run(50, settings=settings, **curves)), "never fires")
    assert found is not None
    assert found.advice is not None
    assert found.advice.setting == "correction.gates.0.upper=1.03"


def test_a_page_ends_each_warning_with_what_to_try_and_a_good_run_has_nothing_to_try() -> None:
    poor = made.run("collapsed", steps=120)
    page = report_html(poor)
    grave = sum(one.advice is not None for one in findings_of(poor))
    assert grave >= 2
    assert page.count("<i>try:</i> <code>") == grave
    assert "<i>try:</i>" not in report_html(made.run("healthy", steps=400))


def test_settings_of_any_shape_leave_the_advice_standing() -> None:
    for odd in ({}, {"rollout": 3}, {"rollout": {"max_staleness": "8", "precision": 4}, "learner": {"lr": None}}):
        found = findings_of(Run(settings=odd, metrics=metrics_of("collapsed")))
        assert all(one.advice is not None for one in found if one.level in GRAVE)
