"""Plug-ins inside the real frameworks, where those are installed (`make plugins`); elsewhere only what needs none is collected."""

from __future__ import annotations

import importlib.util
import sys
from importlib import metadata
from pathlib import Path

import pytest

sys.path.append(
    str(Path(__file__).parents[2] / "benchmarks")
)  # peers.py: importing a framework without what it only mentions
FRAMEWORKS = {
    "verl": "verl",
    "trl": "trl",
    "trl_async": "trl",
    "skyrl": "skyrl",
    "areal": "areal",
    "openrlhf": "openrlhf",
    "swift": "ms-swift",
}


def _is_here(distribution: str) -> bool:
    try:
        metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return False
    return True


collect_ignore = [f"test_{name}.py" for name, distribution in FRAMEWORKS.items() if not _is_here(distribution)]
if importlib.util.find_spec("torch") is None:  # pragma: no cover
    collect_ignore.append("test_recorded.py")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How near ours came to theirs, and how far the uncorrected step was."""
    from tests.plugins.comparison import FIGURES

    if not FIGURES:
        return
    terminalreporter.section("one step, relative to the framework's own: with trimtab plugged in, and uncorrected")
    for framework, case, difference, control in FIGURES:
        terminalreporter.write_line(f"{framework}: {case}: {difference:.1e}, uncorrected {control:.1e}")
