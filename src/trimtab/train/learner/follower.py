"""`python -m trimtab.train.learner.follower RANK SIZE FOLDER PID`: a rank of a learner, started by the run of that process."""

from __future__ import annotations

import sys
from pathlib import Path

from trimtab.errors import RunError
from trimtab.train.learner.launch import run_follower

if __name__ == "__main__":
    rank, size, meeting, learner = sys.argv[1:]
    try:
        run_follower(int(rank), int(size), Path(meeting), int(learner))
    except RunError as error:
        sys.exit(str(error))
