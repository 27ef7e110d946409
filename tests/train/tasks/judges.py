"""Judges with the rewards of `scripted`, and interpreters beside this one."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

from trimtab.config.training import Reward, Task
from trimtab.train.messages import Problem
from trimtab.train.tasks import Judge, source

HERE = "tests.train.tasks.scripted"


def problem(answer="42", **extra):
    return Problem(id="p", prompt="question", answer=answer, extra=extra)


def judge(*rewards, timeout=10.0, **settings):
    config = Task(rewards=rewards, timeout=timeout, **settings)
    return Judge(config, source(config, 0))


def function(of, **settings):
    return Reward(function=f"{HERE}:{of}", **settings)


def python(script, **settings):
    """Another interpreter that sees what this one sees."""
    path = os.pathsep.join(each for each in sys.path if each)
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], env=environment, **settings)


def gone(pid, within=10.0):
    """Whether a process ends in time; a zombie has ended."""
    until = time.monotonic() + within
    while time.monotonic() < until:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.02)
    return False
