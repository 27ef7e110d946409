"""What can be asked of a lab: scenarios, corrections, settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.lab import curves
from tests.lab.curves import book, entry
from trimtab.cli.app import app
from trimtab.config.presets import preset
from trimtab.dialects.candidate import parse_candidate
from trimtab.errors import ConfigError, UnknownNameError
from trimtab.lab.candidate import DEFAULTS, parse_candidates
from trimtab.lab.cell import cells
from trimtab.lab.lab import LabPlan
from trimtab.lab.results import write_results
from trimtab.lab.scenario import Scenario, base_settings, check_needs, scenario, scenario_names


def test_every_default_is_another_correction():
    found = parse_candidates()
    assert len(found) == len(DEFAULTS) >= 16
    assert len({each.correction.model_dump_json() for each in found}) == len(found)


def test_a_correction_by_name_by_numbers_and_by_file(tmp_path: Path):
    assert parse_candidate("icepop").correction == preset("icepop")
    found = parse_candidate("geo-rs(lower=0.9, upper=1.1)")
    assert found.label == "geo-rs(lower=0.9,upper=1.1)"
    assert found.correction == preset("geo-rs", lower=0.9, upper=1.1)
    (tmp_path / "mine.yaml").write_text("weight: {level: token, upper: 3.0}\n")
    assert parse_candidate(str(tmp_path / "mine.yaml")) == parse_candidate(str(tmp_path / "mine.yaml"))
    assert parse_candidate(str(tmp_path / "mine.yaml")).correction == preset("token-tis", upper=3.0)


def test_a_correction_from_a_framework_s_file(tmp_path: Path):
    (tmp_path / "run.yaml").write_text(
        "algorithm:\n  rollout_correction: {rollout_is: token, rollout_is_threshold: 3.0}\n"
    )
    found = parse_candidate(f"verl:{tmp_path / 'run.yaml'}")
    assert found.label == "verl:run"
    assert found.correction.weight is not None
    assert found.correction.weight.upper == 3.0


def test_an_unknown_correction_or_scenario_names_the_nearest():
    with pytest.raises(UnknownNameError, match="geo-rs"):
        parse_candidate("geo-sr")
    with pytest.raises(UnknownNameError, match="quantized"):
        scenario("quantised")


def test_the_shipped_scenarios_are_what_they_say():
    found = {name: scenario(name).train["rollout"] for name in scenario_names()}
    assert {name: (each["max_staleness"], each["precision"]) for name, each in found.items()} == {
        "control": (0, "fp32"),
        "stale": (8, "fp32"),
        "quantized": (0, "int4"),
        "both": (8, "int4"),
        "stale-1": (1, "fp32"),
        "stale-4": (4, "fp32"),
        "fp8": (0, "fp8"),
        "fp8-kv": (0, "fp8"),
        "vllm-bf16": (0, "bf16"),
    }
    assert {name for name, each in found.items() if "kv_cache" in each} == {"fp8-kv"}


def test_a_scenario_whose_module_is_missing_is_refused_before_anything_runs():
    check_needs([scenario("stale")])
    with pytest.raises(ConfigError, match=r"Scenario odd needs the module no_such_module, got none\. Install"):
        check_needs([Scenario(name="odd", needs="no_such_module")])
    assert scenario("vllm-bf16").needs == "vllm"


def test_a_scenario_of_the_user_s_own(tmp_path: Path):
    file = tmp_path / "older.yaml"
    file.write_text("meaning: Older.\ntrain:\n  rollout: {max_staleness: 16}\n")
    found = scenario(str(file))
    assert found == Scenario(name="older", meaning="Older.", train={"rollout": {"max_staleness": 16}})
    file.write_text("name: control\n")
    with pytest.raises(ConfigError, match="a name of its own"):
        scenario(str(file))


def test_the_control_is_always_run_once_per_seed():
    plan = LabPlan([scenario("stale")], parse_candidates(["off", "geo-rs"]), range(3), 10, base_settings())
    found = plan.cells()
    assert [(each.scenario, each.correction, each.seed) for each in found[:3]] == [
        ("control", "off", s) for s in range(3)
    ]
    assert len(found) == 3 + 2 * 3
    control, stale = found[0].config, found[3].config
    assert (control.learner, control.loss, control.evaluate) == (stale.learner, stale.loss, stale.evaluate)
    assert control.threads == 1


def test_a_control_asked_for_by_name_is_run_with_every_correction_and_always_uncorrected():
    plan = LabPlan(
        [scenario("control"), scenario("stale")], parse_candidates(["geo-rs"]), range(2), 10, base_settings()
    )
    found = [(each.scenario, each.correction, each.seed) for each in plan.cells()]
    assert found[:2] == [("control", "off", 0), ("control", "off", 1)]
    assert found[2:] == [(name, "geo-rs", seed) for seed in range(2) for name in ("control", "stale")]


def test_overrides_reach_every_cell_and_a_scenario_stands_above_them():
    base = base_settings(["learner.lr=3e-4", "rollout.max_staleness=3", "advantage.baseline=all"])
    (found,) = cells([scenario("stale")], parse_candidates(["off"]), [0], base, 10)
    assert found.config.learner.lr == 3e-4
    assert found.config.rollout.max_staleness == 8
    assert found.config.advantage.baseline == "all"  # pyright: ignore[reportAttributeAccessIssue]


def test_a_wrong_setting_is_refused_with_its_scenario():
    wrong = Scenario(name="mine", train={"rollout": {"max_stalenes": 8}})
    with pytest.raises(ConfigError, match=r"Scenario mine: rollout: Rollout has no field 'max_stalenes'"):
        cells([wrong], parse_candidates(["off"]), [0], base_settings(), 10)


def test_two_files_of_one_name_are_refused(tmp_path: Path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.yaml").write_text("weight: {level: token, upper: 3.0}\n")
    given = parse_candidates([str(tmp_path / folder / "mine.yaml") for folder in ("a", "b")])
    with pytest.raises(ConfigError, match="different names"):
        cells([scenario("stale")], given, [0], base_settings(), 10)


def test_a_warm_start_is_shared_by_the_cells_of_a_seed():
    found = LabPlan([scenario("stale")], parse_candidates(["off", "geo-rs"]), range(2), 10, base_settings()).cells()
    assert len({each.warm_start for each in found}) == 2
    assert len({each.fingerprint for each in found}) == len(found)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--quick", "--full"], "one of --quick and --full"),
        (["--scenario", "stail"], "Did you mean 'stale'?"),
        (["--correction", "geo-rs(uper=2)"], "Preset 'geo-rs' has no parameter 'uper'"),
        (["learner.learning_rate=1"], "has no field 'learning_rate'"),
        (["report", "nowhere"], "cannot be read"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_made(
    asked: list[str], said: str, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["lab", *asked])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
    assert list(tmp_path.iterdir()) == []


def test_a_report_writes_into_a_lab_s_folder_and_not_beside_a_file_that_was_copied(tmp_path: Path):
    cells = [entry(name, "off", 0, curves.CONTROL) for name in ("control", "stale")]
    write_results(tmp_path, book(*cells))
    (tmp_path / "lab.md").write_text("mine")

    def told(*asked: str) -> str:
        result = CliRunner().invoke(app, ["lab", "report", *asked])
        assert result.exit_code == 0, result.output
        return result.output

    assert "0.95" in told(str(tmp_path / "lab.json"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lab.json", "lab.md"]
    assert (tmp_path / "lab.md").read_text() == "mine"
    told(str(tmp_path))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["lab.html", "lab.json", "lab.md"]
    assert (tmp_path / "lab.md").read_text() != "mine"
    told(str(tmp_path / "lab.json"), "--markdown", str(tmp_path / "page.md"))
    assert (tmp_path / "page.md").read_text().startswith("<!-- Written by")
