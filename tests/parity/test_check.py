"""`trimtab check` of the real frameworks: what is known to break still does, nothing else does, and every counterexample runs.

A release that mends one of them fails here: take its sentence out of the adapter's `known` and write docs/laws.md anew.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trimtab.check.load import ADAPTERS

RUN_ALL = """
import contextlib, io, json, runpy, sys
found = {}
for name in sys.argv[1:]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        runpy.run_path(name, run_name="__main__")
    found[name] = out.getvalue().splitlines()[-2:]
print(json.dumps(found))
"""
OTHERS = [name for name in ADAPTERS if name != "trimtab"]
ENVIRONMENT = {**os.environ, "AREAL_CACHE_DIR": "/tmp/areal"}


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: some frameworks change others as they are imported."""
    return subprocess.run([sys.executable, *words], check=False, capture_output=True, text=True, env=ENVIRONMENT)


@pytest.fixture(scope="module", params=OTHERS)
def asked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("counterexamples")
    ran = python("-m", "trimtab.cli", "check", request.param, "--json", "--cases", "8", "--scripts", str(folder))
    assert ran.returncode == 1, ran.stderr
    return request.param, json.loads(ran.stdout), folder


def test_what_is_known_to_break_breaks_and_nothing_else(asked: tuple[str, dict[str, Any], Path]) -> None:
    name, found, _ = asked
    broken = {each["question"] for law in found["laws"] for each in law["answers"] if each["ruling"] == "broken"}
    assert broken == set(ADAPTERS[name].known)
    assert found["version"] in ADAPTERS[name].tried


def test_every_counterexample_runs_and_shows_two_numbers(asked: tuple[str, dict[str, Any], Path]) -> None:
    _, found, folder = asked
    scripts = sorted(folder.iterdir())
    answers = [each for law in found["laws"] for each in law["answers"] if each["ruling"] == "broken"]
    assert len(scripts) == len(answers)
    ran = python("-c", RUN_ALL, *map(str, scripts))
    assert ran.returncode == 0, ran.stderr
    for name, lines in json.loads(ran.stdout.splitlines()[-1]).items():
        first, other = (line.rpartition(": ")[2] for line in lines)
        assert first != other, name
        assert "trimtab import" not in Path(name).read_text()


def test_a_function_with_a_frameworks_signature_is_called_as_the_framework_calls_its_own() -> None:
    target = "verl.trainer.ppo.core_algos:compute_policy_loss_gspo"
    words = ("check", target, "--like", "verl", "--law", "splits", "--json", "--cases", "4")
    ran = python("-m", "trimtab.cli", *words, "--set", "loss_agg_mode=seq-mean-token-mean")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(ran.stdout)["laws"][0]["ruling"] == "holds"
