"""A command in a process of its own, as a user types it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

TREE = Path(__file__).parents[3]
HOUR = 3600
RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""It calls nobody, and its workers are not the last to be served on a busy machine."""
TRIES, NOT_STARTED = 5, "The current node timed out during startup"
"""Ray gives itself 30 seconds to start, on a busy machine too, and cannot be told otherwise: it is started again."""


def environment(**more: str) -> dict[str, str]:
    """This process's, with the stand-ins of this folder where an import finds them."""
    return os.environ | {"PYTHONPATH": str(TREE), "OMP_NUM_THREADS": "1"} | RAY | more


def finish(framework: str, name: str, command: Sequence[str], folder: Path, more: Mapping[str, str]) -> str:
    """What it printed, kept in `folder`; where it fails, the end of that, and the end of this process."""
    log = folder / f"{name}.log"
    for _ in range(TRIES):
        with log.open("w") as out:
            code = subprocess.run(
                command,
                env=environment(**more),
                cwd=folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=HOUR,  # a driver waits for ever where its workers have failed
            ).returncode
        said = log.read_text()
        if not (code and NOT_STARTED in said):
            break
    if code:
        sys.exit(f"{said[-6000:]}\n{framework}: the run {name} ended with {code}; see {log}")
    return said


def numbers(said: str, name: str) -> list[float]:
    """What was printed after a metric's name, step by step."""
    return [float(each) for each in re.findall(rf"{re.escape(name)}\W+([0-9][0-9.e+-]*)", said)]


@contextmanager
def served(model: Path, **more: str) -> Iterator[str]:
    """The stand-in of an inference server, listening; its address."""
    command = [sys.executable, "-m", "tests.plugins.commands.server", str(model)]
    process = subprocess.Popen(command, env=environment(**more), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()
