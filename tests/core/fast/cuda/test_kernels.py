"""The kernels for CUDA where there is none: under Triton's interpreter against the plain form, and compiled. None was run on a GPU.

Both need Triton to be imported in a certain way, so each has a process of its own.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[3]
if importlib.util.find_spec("triton") is None:
    pytest.skip("Triton is not installed: the extra [dev] brings it under Linux", allow_module_level=True)


def ran(*files: str, marked: str = "not slow", **variables: str) -> str:
    """What the tests of some files print in a process with these variables, all of them passed."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-m", marked]
    command += ["-W", "ignore::RuntimeWarning"]  # numpy speaks of overflows that a GPU is silent about
    given = {
        name: value for name, value in os.environ.items() if not name.startswith(("TRITON_", "TRIMTAB_", "PYTEST_"))
    }
    found = subprocess.run(
        [*command, *(str(HERE / f"{file}.py") for file in files)],
        cwd=ROOT,
        env=given | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    return found.stdout


def test_under_the_interpreter_they_are_the_plain_form() -> None:
    assert "skipped" not in ran("laws", "parts", "losses", "values", "launches", TRITON_INTERPRET="1")


def test_they_compile_for_a_gpu(tmp_path: Path) -> None:
    assert "1 passed" in ran("compiled", TRITON_CACHE_DIR=str(tmp_path), TARGETS="A100")


@pytest.mark.slow
def test_they_compile_for_two_gpus_in_every_form(tmp_path: Path) -> None:
    assert "4 passed" in ran("compiled", marked="", TRITON_CACHE_DIR=str(tmp_path), TARGETS="A100 H100")
