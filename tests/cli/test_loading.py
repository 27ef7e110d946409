"""Commands are known by name before they are loaded, and what is said of them is what they say themselves."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli import briefly
from trimtab.cli.app import COMMANDS, app, load_command
from trimtab.dialects.registry import DIALECTS, SIGNATURES


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_page_says_of_a_command_what_it_says_of_itself(name: str) -> None:
    assert load_command(name).help.splitlines()[0] == COMMANDS[name].summary


@pytest.mark.parametrize(
    ("arguments", "absent", "present"),
    [
        (["--help"], {"pydantic", "trimtab.config.correction", "trimtab.explain.words"}, {"trimtab.cli.app"}),
        (["explain", "icepop"], {"trimtab.dialects", "trimtab.config.training"}, {"trimtab.explain.words", "pydantic"}),
    ],
)
def test_a_command_loads_what_it_needs_and_no_other(arguments: list[str], absent: set[str], present: set[str]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trimtab", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    loaded = {line.rpartition("|")[2].strip() for line in ran.stderr.splitlines()}
    assert present <= loaded
    assert not absent & loaded


SCRIPT = """
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo algorithm.rollout_correction.rollout_is=token \\
    algorithm.rollout_correction.rollout_is_threshold=2.0
"""
KEYS_ONLY = "algorithm:\n  rollout_is_threshold: 2.0\n  norm_adv_by_std_in_grpo: false\n"
WHOLE = "actor_rollout_ref:\n  actor:\n    clip_ratio_low: 0.2\n"


@pytest.mark.parametrize(
    ("name", "text", "counts_keys"),
    [
        ("whole.yaml", WHOLE, False),  # shows whose it is
        ("keys.yaml", KEYS_ONLY, True),  # shows nothing: the keys of every framework are counted
        ("run.sh", SCRIPT, True),
    ],
)
def test_explaining_a_file_imports_the_dialect_of_its_own_framework_and_others_only_to_count_keys(
    tmp_path: Path, name: str, text: str, counts_keys: bool
) -> None:
    (tmp_path / name).write_text(text)
    loaded = _modules_after(["explain", str(tmp_path / name)])
    assert "trimtab.dialects.frameworks.verl" in loaded
    assert not any(each.startswith("trimtab.dialects.writing.") for each in loaded)
    for other in SIGNATURES.keys() - {"verl"}:
        modules = {DIALECTS[other].correction_of.__module__, DIALECTS[other].remarks[0].when.__module__}
        assert modules <= loaded if counts_keys else not modules & loaded, other


def _modules_after(arguments: list[str]) -> set[str]:
    program = "import sys; from trimtab.cli import main\ntry: main(sys.argv[1:])\nfinally: print('\\n', *sys.modules, sep='\\n')"
    ran = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(ran.stdout.splitlines())


def test_a_brief_command_leaves_the_collector_and_the_plug_ins_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYDANTIC_DISABLE_PLUGINS", raising=False)
    seen: list[tuple[bool, str | None]] = []
    monkeypatch.setattr("trimtab.cli.presets.presets", lambda: seen.append(_state()))
    assert CliRunner().invoke(app, ["presets"]).exit_code == 0
    assert seen == [(False, "__all__")]
    assert _state() == (True, None)


def test_what_the_user_says_of_plug_ins_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYDANTIC_DISABLE_PLUGINS", "logfire-plugin")
    gc.disable()
    try:
        with briefly():
            assert _state() == (False, "logfire-plugin")
        assert _state() == (False, "logfire-plugin")
    finally:
        gc.enable()


def _state() -> tuple[bool, str | None]:
    return gc.isenabled(), os.environ.get("PYDANTIC_DISABLE_PLUGINS")


@pytest.mark.parametrize("name", DIALECTS)
def test_a_file_is_recognised_by_the_signature_that_its_dialect_has(name: str) -> None:
    assert SIGNATURES[name] is DIALECTS[name].signature
