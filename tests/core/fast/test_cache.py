"""Machine code on disk is that of the files that stand there."""

from __future__ import annotations

import pytest

pytest.importorskip("numba", reason="the extra [fast] is not installed")

from trimtab.core.fast import loops, stages


def test_compiled_code_goes_by_every_file_of_the_folder() -> None:
    """Of `decide_rows` most parts stand in other files: a change in one of them must not leave the old code in use."""
    stamp = stages.decide_rows._cache._cache_file._source_stamp
    assert stamp[1] == loops.FOLDER
    assert {"ratio.py", "gate.py", "stages.py"} <= {name for name, _ in loops.FOLDER}
