from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.train.started import Launcher, forks
from tests.waiting import LIMIT
from trimtab.train.devices import bf16_product


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


@pytest.fixture(scope="session")
def bf16() -> None:
    """Skips where the processor ends a bf16 product with a signal, which `trimtab doctor` explains."""
    if bf16_product() != 0:
        pytest.skip("bf16 does not work on this processor: see trimtab doctor")
