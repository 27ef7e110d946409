"""A process that has imported all a run needs and forks for each run asked of it: seconds of imports once, not per run.

Asked on stdin, one JSON object per line: `arguments` of the command line, `folder` to start in, `environment`, `output` and
`errors` (files, or closed, or broken: without a reader), `code` (a file that appears when the run has ended, with its exit
code, negative for a signal). Answers each with the number of the process.
What runs there is `python -m trimtab.cli` in a session of its own.
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import select
import sys
from pathlib import Path
from typing import Any

import trimtab.cli.app
import trimtab.report
import trimtab.train.loop  # noqa: F401


def become(asked: dict[str, Any]) -> None:
    """The run itself."""
    os.setsid()
    for number, path in ((0, os.devnull), (1, asked["output"]), (2, asked["errors"])):
        if path == "closed":
            os.close(number)
        elif path == "broken":
            reader, writer = os.pipe()
            os.dup2(writer, number)
            os.close(reader)
        else:
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644), number)
    os.environ.update(asked["environment"])
    os.chdir(asked["folder"])
    sys.path[0] = asked["folder"]
    sys.argv[1:] = asked["arguments"]
    runpy.run_module("trimtab.cli", run_name="__main__", alter_sys=True)


def serve() -> None:
    """Fork for each request; note the exit codes."""
    gc.freeze()  # a fork that collects would copy every page
    running: dict[int, Path] = {}
    while True:
        if select.select([sys.stdin.fileno()], [], [], 0.02)[0]:
            line = sys.stdin.readline()
            if not line:
                return None
            asked = json.loads(line)
            child = os.fork()
            if not child:
                return become(asked)
            running[child] = Path(asked["code"])
            sys.stdout.write(f"{child}\n")
            sys.stdout.flush()
        for child in list(running):
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                path = running.pop(child)
                path.with_suffix(".part").write_text(str(os.waitstatus_to_exitcode(status)))
                path.with_suffix(".part").replace(path)


if __name__ == "__main__":
    serve()
