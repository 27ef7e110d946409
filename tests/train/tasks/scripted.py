"""Reward functions of every kind, chosen by the response."""

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def _hang_in_c():
    re.match("(a+)+$", "a" * 60 + "b")  # never lets go of the interpreter


def _print_a_lot():
    print("x" * 10_000_000)  # noqa: T201
    os.write(1, b"y" * 1_000_000)
    return 1


def _recurse():
    return _recurse()


BEHAVIOR = {
    "right": lambda: 1,
    "half": lambda: 0.5,
    "true": lambda: True,
    "numpy": lambda: np.float32(0.75),
    "dict": lambda: {"reward": 0.2, "correct": True},
    "raise": lambda: 1 / 0,
    "hang": lambda: time.sleep(1000),
    "hang in C": _hang_in_c,
    "nan": lambda: float("nan"),
    "inf": lambda: {"reward": float("-inf")},
    "none": lambda: None,
    "text": lambda: "1",
    "empty dict": dict,
    "exit": lambda: sys.exit(0),
    "_exit": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    "print": _print_a_lot,
    "allocate": lambda: bytearray(1 << 60),
    "recurse": _recurse,
    "close": lambda: os.closerange(3, 100),
}


def scripted(response):
    return BEHAVIOR[response]()


def every_field(**fields):
    return {"reward": len(fields["note"]), "correct": sorted(fields) == ["answer", "note", "prompt", "response"]}


def length(response):
    return len(response)


def needs_more(response, ground_truth):
    return 1


def optional(response, ground_truth="unset"):
    return ground_truth == "unset"


async def later(response):
    return 1


def here(response, answer):
    """Write down which process this is, then hang in it."""
    Path(answer).write_text(str(os.getpid()))
    _hang_in_c()


def child(response, answer):
    """Begin a process, write down which, then hang."""
    begun = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    Path(answer).write_text(str(begun.pid))
    time.sleep(1000)


def pid(response):
    return os.getpid()


not_a_function = 3
