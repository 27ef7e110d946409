from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.started import Launcher, forks
from tests.waiting import LIMIT


@pytest.fixture(scope="session")
def forking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    with forks(tmp_path_factory.mktemp("forks")) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
        process.wait(LIMIT)


@pytest.fixture
def launcher(tmp_path: Path, forking: subprocess.Popen[str]) -> Iterator[Launcher]:
    """Starts runs in a folder of the test's own, and leaves none behind."""
    made = Launcher(tmp_path, forking)
    yield made
    made.stop()
