"""The demo: two runs that differ in the correction alone, side by side, and one page."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.lab.mini import OVERRIDES
from trimtab.cli.app import app
from trimtab.config.files import plain_settings
from trimtab.config.presets import preset
from trimtab.config.training import Train
from trimtab.errors import ConfigError
from trimtab.lab import demo


def mini(seed: int = 0, steps: int = 2) -> dict[str, Train]:
    base = plain_settings(None, [*OVERRIDES, "backend=lockstep"]) | {"seed": seed, "steps": steps}
    return {
        name: Train.from_settings(base | {"correction": rule})
        for name, rule in (("uncorrected", "off"), ("k3-rs",) * 2)
    }


def test_the_runs_differ_in_the_correction_and_in_nothing_else():
    first, second = demo.demo_pair(seed=3)
    runs = demo.demo_pair(seed=3)
    assert (first, second) == ("uncorrected", "k3-rs")
    assert runs[first].correction == preset("off")
    assert runs[second] == runs[first].but(correction=preset("k3-rs"))
    assert runs[first].rollout.max_staleness == 8
    assert runs[first].backend == "lockstep"


def test_both_runs_are_made_once_and_each_step_is_seen(tmp_path: Path):
    seen: list[tuple[str, int]] = []
    runs = mini(seed=77)  # a start that no other test has made
    found = demo.run_demo(runs, tmp_path, lambda name, step, accuracy: seen.append((name, step)))
    assert [each.name for each in found] == ["uncorrected", "k3-rs"]
    assert {("uncorrected", 2), ("k3-rs", 2)} <= set(seen)
    assert any(name == demo.WARM_START for name, _ in seen)
    assert all(0 <= each.after <= each.best <= 1 for each in found)
    assert found[0].before == found[1].before  # the same start
    seen.clear()
    assert demo.run_demo(runs, tmp_path, lambda name, step, accuracy: seen.append((name, step))) == found
    assert seen == []


def test_a_folder_that_is_no_run_is_not_removed(tmp_path: Path):
    mine = tmp_path / "uncorrected" / "thesis.tex"
    mine.parent.mkdir()
    mine.touch()
    with pytest.raises(ConfigError, match="got a folder that holds none"):
        demo.run_demo(mini(), tmp_path, lambda name, step, accuracy: None)
    assert mine.exists()


def test_the_command_prints_both_accuracies_and_writes_one_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(demo, "demo_pair", mini)
    ran = CliRunner().invoke(app, ["demo", "--steps", "2", "--out", str(tmp_path)])
    assert ran.exit_code == 0, ran.output
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert ["start", "best", "end"] in rows
    assert {row[0] for row in rows if len(row) == 4} == {"uncorrected", "k3-rs"}
    assert ["page", str(tmp_path / "compare.html")] in rows
    page = (tmp_path / "compare.html").read_text(encoding="utf-8")
    assert "Settings that differ" in page
    assert "cannot say" not in page  # one setting differs
