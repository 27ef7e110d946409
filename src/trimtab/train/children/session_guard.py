"""Stands between a run and a command, and ends all of its processes with either. Runs alone: python session_guard.py STATUS COMMAND…

Its standard input is a pipe from the run that nobody writes to: its end is the end of the run. vLLM's own processes notice such an
end late, and not at all while they start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from threading import Thread


def guard(status: str, command: list[str]) -> None:
    """Run the command in this process's own group until it or the run ends; its exit code goes to the file `status`."""
    signal.signal(signal.SIGTERM, lambda number, frame: None)  # meant for the server, which gets it too
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL)
    Thread(target=_end_with_run, daemon=True).start()
    code = server.wait()
    with open(f"{status}.part", "w") as file:
        file.write(str(code))
    os.replace(f"{status}.part", status)
    os.killpg(0, signal.SIGKILL)


def _end_with_run() -> None:
    sys.stdin.buffer.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    guard(sys.argv[1], sys.argv[2:])
