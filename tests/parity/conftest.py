"""The real frameworks, where they are installed (`make parity`); elsewhere nothing here is collected."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

PEERS = ("verl", "areal", "skyrl", "trl", "openrlhf", "swift")
HAND_WORKED = "tests/dialects/test_objectives.py"
collect_ignore_glob = [] if all(importlib.util.find_spec(name) for name in PEERS) else ["test_*.py", "accusations/*"]
sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # peers.py: the frameworks' functions on a CPU


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was compared, counted as the tests ran, and what was not."""
    from tests.dialects.scalars import LEFT_OUT
    from tests.dialects.test_vectors import NOT_REPRODUCED
    from tests.parity import not_covered, tally

    if collect_ignore_glob or not tally.COMPARED:
        return
    write = terminalreporter.write_line
    terminalreporter.section("compared with the frameworks, to 1e-5 of each number: live + recorded")
    for line in tally.table():
        write(line)
    failed = sum(len(terminalreporter.getreports(kind)) for kind in ("failed", "error"))
    write("every comparison passed" if not failed else f"{failed} tests failed: their comparisons are not in the table")
    terminalreporter.section("not covered")
    for group, names in not_covered.NOT_RUN.items():
        for name, why in names.items():
            write(f"not run: {group} {name}: {why}")
    for title, rows in (("recorded only", not_covered.RECORDED_ONLY), ("left out", not_covered.OUT_OF_REACH)):
        for name, why in rows.items():
            write(f"{title}: {name}: {why}")
    for name, family in tally.without("loss", "advantage"):
        write(f"read but never compared: {name} {family}: no outputs recorded; worked by hand in {HAND_WORKED}")
    for name, why in NOT_REPRODUCED.items():
        write(f"not reproduced: {name}: {why}")
    for each in LEFT_OUT:
        write(f"scalar not compared: {each.framework} {each.names}: {each.why}")
