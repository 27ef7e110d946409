"""`trimtab doctor`: what works here, and one line where an extra is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli import doctor
from trimtab.cli.app import app
from trimtab.installed import install_command
from trimtab.train import devices

ILLEGAL = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
ILLEGAL_UNLESS_CAPPED = f"import os\nif 'ONEDNN_MAX_CPU_ISA' not in os.environ:\n    exec({ILLEGAL!r})"


def ran() -> tuple[int, str]:
    found = CliRunner().invoke(app, ["doctor"])
    return found.exit_code, " ".join(found.output.split())


def test_a_sound_machine_has_nothing_broken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices, "BF16_PRODUCT", "pass")
    code, text = ran()
    assert code == 0, text
    assert "No problems found." in text
    assert text.count("matches the value worked out by hand") == 3


def test_the_form_in_use_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices, "BF16_PRODUCT", "pass")
    monkeypatch.setenv("TRIMTAB_FAST", "0")
    assert "the plain form: TRIMTAB_FAST=0" in ran()[1]
    monkeypatch.delenv("TRIMTAB_FAST")
    text = ran()[1]
    assert "the plain form: TRIMTAB_FAST=0" not in text
    assert "fast form: cpu" in text
    assert "fast form: cuda" in text


def test_a_processor_that_lies_is_found_and_the_remedy_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)
    monkeypatch.setattr(devices, "BF16_PRODUCT", ILLEGAL_UNLESS_CAPPED)
    code, text = ran()
    assert code == 1
    assert "ended with SIGILL" in text
    assert "Set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16, which works." in text
    assert "Broken: bf16 on the CPU." in text


def test_a_remedy_that_does_not_help_is_not_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices, "BF16_PRODUCT", ILLEGAL)
    code, text = ran()
    assert code == 1
    assert "ONEDNN_MAX_CPU_ISA" not in text
    assert "Stay with fp32 here" in text


def test_a_wrong_number_is_broken(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices, "BF16_PRODUCT", "pass")
    monkeypatch.setenv("TRIMTAB_FAST", "0")  # the form whose weight is broken here
    monkeypatch.setattr("trimtab.core.correct.weighing", lambda *_: 1 / 0)
    code, text = ran()
    assert code == 1
    assert "self-test: correction broken ZeroDivisionError" in text


def test_an_extra_names_what_is_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(devices, "BF16_PRODUCT", "pass")
    present = doctor.version_of
    monkeypatch.setattr(doctor, "version_of", lambda name: None if name == "pyarrow" else present(name))
    code, text = ran()
    assert code == 0
    assert f"[report] note missing pyarrow. For trimtab report: {install_command('report')}" in text


@pytest.mark.parametrize(
    ("command", "module"),
    [("train", "transformers"), ("report", "pyarrow"), ("lab", "safetensors"), ("demo", "safetensors")],
)
def test_a_command_without_its_extra_says_which_in_one_line(
    command: str, module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "run.json").write_text("{}", encoding="utf-8")
    # None in sys.modules is how Python says that a module is not there.
    for name in [name for name in sys.modules if name.startswith(("trimtab.train", "trimtab.re"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    found = CliRunner().invoke(app, [command, *([str(tmp_path)] if command == "report" else [])])
    assert found.exit_code == 2
    assert found.output.startswith(f"error: {command} needs {module}")
    assert install_command("train") in found.output
    assert found.output.count("\n") == 1
