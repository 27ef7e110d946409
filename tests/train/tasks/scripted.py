"""Reward functions of every kind, chosen by the response."""

import contextlib
import ctypes
import os
import re
import signal
import socket
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
    "not correct": lambda: {"reward": 1, "correct": np.bool_(False)},
    "far": lambda: 1e308,
    "word": lambda: {"reward": 1, "correct": "no"},
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


def parent(response):
    if response == "hang":
        time.sleep(1000)
    return os.getppid()


def known(response):
    return response in os.environ


def needs_key(response):
    return os.environ["TRIMTAB_TEST_API_KEY"]


def connects(response, answer):
    with socket.create_connection(("127.0.0.1", int(answer)), timeout=30):
        return 1


def peeks(response, answer):
    """Look into another process, given by its number."""
    return len(Path(f"/proc/{answer}/environ").read_bytes())


CALLS = []


def counted(response):
    CALLS.append(response)
    return len(CALLS)


def lazy(response):
    """Take its time before it can begin, as a late import does, unless there is nothing to score."""
    if response and not CALLS:
        time.sleep(6)
        CALLS.append(response)
    return 1


def writes(response):
    """Put bytes into every pipe there is, the last one first, as a response that runs may: an answer for the next to come."""
    if response:
        for number in reversed(range(3, 4096)):
            with contextlib.suppress(OSError):
                os.write(number, bytes.fromhex(response))
    return 0


def leaves(response, answer):
    """Begin a process as the response says, write down which, and end as it says."""
    how, _, end = response.partition(" ")
    begun = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=how == "apart")
    Path(answer).write_text(str(begun.pid))
    if end == "crash":
        os._exit(3)
    if end == "kill":
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(1000)
    if end == "hang":
        time.sleep(1000)
    return 1


def forks(response):
    """Fork; the child goes on as if it were the one that was asked."""
    begun = os.fork()
    if begun == 0:
        if response == "exit":
            sys.exit(0)
        if response == "raise":
            raise ValueError
        return 1
    return begun


not_a_function = 3
