"""`trimtab check`: laws asked of a function, with an exit code, a table and counterexamples."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trimtab.check.laws import LAWS
from trimtab.cli.app import app

LOSS = """
touched = []

def loss(current, proximal, behavior, mask, advantages, scale=1.0):
    value = -(current - proximal).exp() * advantages * scale
    return (value * mask).sum() / mask.sum().clamp(min=1)

def estimator(rewards, mask, group):
    return rewards - rewards.mean()

not_callable = 3
"""
FEW = ("--cases", "6")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of a user's, which no other test has imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "checked_module", raising=False)
    (tmp_path / "checked_module.py").write_text(LOSS)
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["check", *arguments], prog_name="trimtab")


def test_list_names_every_law_and_question_and_asks_nothing() -> None:
    ran = run("--list")
    assert ran.exit_code == 0
    for law in LAWS.values():
        assert law.name in ran.stdout
        assert law.sentence in ran.stdout
        assert law.breaks in ran.stdout
        assert all(question.sentence in ran.stdout for question in law.questions)


def test_a_broken_law_is_exit_code_1_with_its_numbers_and_a_script(folder: Path) -> None:
    ran = run("checked_module:loss", "--law", "splits", *FEW, "--scripts", "found")
    assert ran.exit_code == 1
    assert "splits  broken  even split (defaults): loss" in ran.stdout
    assert "from checked_module import loss as function" in ran.stdout
    scripts = sorted((folder / "found").iterdir())
    assert [file.name for file in scripts] == ["splits-even-split-defaults.py", "splits-uneven-split-defaults.py"]
    done = subprocess.run(
        [sys.executable, str(scripts[0])],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"},
    )
    first, other = (line.rpartition(":")[2] for line in done.stdout.splitlines())
    assert float(first) != pytest.approx(float(other), rel=1e-3)


def test_laws_that_hold_are_exit_code_0() -> None:
    ran = run("checked_module:loss", "--law", "weight", *FEW, "--set", "scale=2")
    assert ran.exit_code == 0
    assert "weight  holds" in ran.stdout


def test_settings_reach_the_function() -> None:
    ran = run("checked_module:loss", "--law", "weight", *FEW, "--set", "scale=-1")  # descent becomes ascent
    assert ran.exit_code == 1
    assert "sign (scale=-1): sign at" in ran.stdout


def test_a_rule_is_asked_about_once_it_is_named() -> None:
    ran = run("checked_module:loss", "--law", "weight", *FEW, "--rule", "token-tis upper=2.0")
    assert ran.exit_code == 1
    assert "named weight" in ran.stdout


def test_an_estimator_alone_is_asked_what_is_asked_of_estimators() -> None:
    ran = run("--advantages", "checked_module:estimator", "--markdown", *FEW)
    assert ran.exit_code == 1
    rows = {line.split("**")[1]: line for line in ran.stdout.splitlines() if line.startswith("| **")}
    assert set(rows) == set(LAWS)
    assert "| broken |" in rows["groups"]
    assert "| broken |" in rows["votes"]
    assert "| does not apply |" in rows["masked"]


def test_json_holds_everything_with_scripts() -> None:
    ran = run("checked_module:loss", "--law", "splits", "--law", "empty", *FEW, "--json", "--seed", "3")
    found = json.loads(ran.stdout)
    assert (found["seed"], found["cases"]) == (3, 6)
    assert {law["law"]: law["ruling"] for law in found["laws"]} == {"splits": "broken", "empty": "holds"}
    assert "import torch" in found["laws"][0]["answers"][0]["script"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "check needs a framework or MODULE:NAME, got neither."),
        (["verll"], "Did you mean 'verl'?"),
        (["checked_module:loss", "--like", "veri"], "Did you mean 'verl'?"),
        (["checked_module:loss", "--law", "split"], "Did you mean 'splits'?"),
        (["checked_module:"], "check needs MODULE:NAME, got 'checked_module:'."),
        (["../x:loss"], "check needs MODULE:NAME"),
        (["no_such_module:loss"], "ModuleNotFoundError"),
        (["checked_module:lost"], "AttributeError"),
        (["checked_module:not_callable"], "got TypeError"),
        (["checked_module:loss", "--set", "shape=1"], "unexpected keyword argument 'shape'"),
        (["checked_module:loss", "--set", "scale"], "--set needs KEY=VALUE, got 'scale'."),
        (["checked_module:loss", "--rule", "token-tos"], "token-tis"),
        (["trimtab", "--rule", "token-tis"], "Those belong to a function of yours"),
        (["checked_module:loss", "--json", "--markdown"], "got both"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_code_2(words: list[str], said: str) -> None:
    ran = run(*words, *FEW)
    assert ran.exit_code == 2
    assert ran.stderr.startswith("error: ")
    assert said in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


def test_nothing_but_the_named_module_is_imported_from_the_folder(folder: Path) -> None:
    (folder / "bystander.py").write_text("raise SystemExit('imported')")
    before = list(sys.path)
    run("checked_module:loss", "--law", "weight", *FEW)
    assert "bystander" not in sys.modules
    assert sys.path == before


def test_a_module_that_fails_is_told_in_one_sentence(folder: Path) -> None:
    (folder / "failing_module.py").write_text("raise ValueError('on import')")
    ran = run("failing_module:loss")
    assert ran.exit_code == 2
    assert "ValueError: on import" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.parametrize("code", ["'on import'", "0", ""])
def test_a_module_that_ends_the_program_is_told_in_one_sentence(folder: Path, code: str) -> None:
    (folder / "ending_module.py").write_text(f"raise SystemExit({code})")
    sys.modules.pop("ending_module", None)
    ran = run("ending_module:loss")
    assert ran.exit_code == 2
    assert "check needs to import ending_module:loss, got SystemExit" in " ".join(ran.stderr.split())
    assert "Traceback" not in ran.stderr


def test_a_function_that_ends_the_program_is_told_in_one_sentence(folder: Path) -> None:
    (folder / "checked_module.py").write_text(LOSS + "\n\ndef ends(**_):\n    raise SystemExit(3)\n")
    ran = run("checked_module:ends")
    assert ran.exit_code == 2
    assert "it ended the program with 3" in " ".join(ran.stderr.split())


def test_a_framework_that_is_not_installed_is_answered_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimtab.check.ask.version_named", lambda _: None)
    ran = CliRunner().invoke(app, ["check", "verl"])
    assert ran.exit_code == 2
    assert (
        "check verl needs the package verl, got an environment without it. Install it: pip install verl==0.9.1"
        in " ".join(ran.output.split())
    )
