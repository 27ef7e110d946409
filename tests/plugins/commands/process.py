"""A command in a process of its own, as a user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

TREE = Path(__file__).parents[3]


def environment(**more: str) -> dict[str, str]:
    """This process's, with the stand-ins of this folder where an import finds them."""
    return os.environ | {"PYTHONPATH": str(TREE), "OMP_NUM_THREADS": "1"} | more


def finish(framework: str, name: str, command: Sequence[str], folder: Path, more: Mapping[str, str]) -> str:
    """What it printed, kept in `folder`; where it fails, the end of that, and the end of this process."""
    log = folder / f"{name}.log"
    with log.open("w") as out:
        ended = subprocess.run(
            command, env=environment(**more), cwd=folder, stdout=out, stderr=subprocess.STDOUT, check=False
        )
    said = log.read_text()
    if ended.returncode:
        sys.exit(f"{said[-6000:]}\n{framework}: the run {name} ended with {ended.returncode}; see {log}")
    return said


@contextmanager
def served(model: Path, kept: Path) -> Iterator[str]:
    """The stand-in of an inference server, listening; its address."""
    command = [sys.executable, "-m", "tests.plugins.commands.server", str(model), str(kept)]
    process = subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.terminate()
        process.wait()
