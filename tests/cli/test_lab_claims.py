"""`trimtab lab --claims` and `--decide` as commands."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.lab.evidence.test_decide import MadeUp
from trimtab.cli.app import app
from trimtab.lab.evidence import decide

RUN = CliRunner()


def test_claims_are_listed_without_running_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decide, "kept_folder", lambda: None)  # as where the package is installed
    found = RUN.invoke(app, ["lab", "--claims", "--out", str(tmp_path / "none")])
    assert found.exit_code == 0, found.output
    assert "k3-rs-beats-off" in found.output
    assert "centering-beats-tis-stale" in found.output
    assert "cells of 160, 200, 250 or 400 steps" in found.output
    assert "confirmed" not in found.output
    assert not (tmp_path / "none").exists()


def test_in_a_clone_the_cells_of_its_docs_are_known(tmp_path: Path):
    found = RUN.invoke(app, ["lab", "--claims", "--claim", "k3-rs-beats-off", "--out", str(tmp_path / "none")])
    assert found.exit_code == 0, found.output
    assert "8 of 8 / 2 of 8" in found.output
    assert "confirmed: higher than the other arm" in found.output


def test_one_claim_is_shown_with_its_source(tmp_path: Path):
    found = RUN.invoke(app, ["lab", "claims", "--claim", "m2po-matches-on-policy", "--out", str(tmp_path)])
    assert "arXiv 2510.01161" in found.output
    assert "the same as off (control) in late accuracy, within 0.05" in found.output


def test_deciding_prints_the_verdict_and_leaves_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    made = MadeUp()
    monkeypatch.setattr(decide, "run_cells", made.run_cells)
    arguments = ["lab", "--decide", "--claim", "k3-rs-beats-off", "--out", str(tmp_path), "--budget", "2h"]
    found = RUN.invoke(app, arguments)
    assert found.exit_code == 0, found.output
    assert "confirmed: higher than the other arm" in found.output
    assert "task chain-160: 1 open claim, to 8 seeds" in found.output
    assert "same prompts in the same order" in found.output
    assert "Written by trimtab." in (tmp_path / "claims.html").read_text()
    assert "| `k3-rs-beats-off` | confirmed |" in (tmp_path / "claims.md").read_text()
    ran = len(made.ran)
    assert RUN.invoke(app, arguments).exit_code == 0
    assert len(made.ran) == ran


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--claim", "k3-rs-beats-of"], "k3-rs-beats-off"),
        (["--budget", "long"], "Write 2h, 90m or 1h30m"),
    ],
)
def test_what_is_not_understood_is_one_sentence_and_exit_code_2(tmp_path: Path, arguments: list[str], said: str):
    found = RUN.invoke(app, ["lab", "--decide", "--out", str(tmp_path), *arguments])
    assert found.exit_code == 2
    assert said in found.output
