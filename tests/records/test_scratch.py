import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from trimtab.records.scratch import PREFIX, clear_scratch

CLAIM = """
import os, sys
from multiprocessing import util
from trimtab.records.scratch import claim_scratch
claim_scratch()
claim_scratch()
print(util.get_temp_dir(), flush=True)
sys.stdin.readline()
"""


def started(folder: Path) -> subprocess.Popen[str]:
    environment = os.environ | {"TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", CLAIM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )


def told(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


@pytest.mark.skipif(sys.platform != "linux", reason="locks")
def test_what_a_killed_process_left_is_cleared_by_the_next_start_and_a_live_one_keeps_its_own(tmp_path: Path) -> None:
    with started(tmp_path) as killed, started(tmp_path) as alive:
        places = told(killed), told(alive)
        assert all(place.parent.name.startswith(PREFIX) and place.parent.parent == tmp_path for place in places)
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert places[0].is_dir()
        with started(tmp_path) as later:
            own = told(later)
            assert not places[0].parent.exists()
            assert places[1].is_dir()
            later.communicate("\n")
        assert not own.parent.exists()
        alive.communicate("\n")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_being_made_and_those_of_others_stay(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}young").mkdir()
    (tmp_path / f"{PREFIX}young/making").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/lock").touch()
    clear_scratch(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", f"{PREFIX}young"]
    assert tempfile.gettempdir() != str(tmp_path)
