"""What a process that a run started does first: it dies with its parent, leaves interrupts to it, and prints to its own log."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36


def die_with(parent: int, number: signal.Signals = signal.SIGKILL, *, code: int = 1) -> None:
    """Get this signal when the parent ends, however that ends; end with `code` if it has already."""
    set_process_option(PR_SET_PDEATHSIG, int(number))
    if os.getppid() != parent:  # it died before the line above
        os._exit(code)


def ignore_signals(*numbers: signal.Signals) -> None:
    """Leave them to the parent, which decides what is still done."""
    for number in numbers:
        signal.signal(number, signal.SIG_IGN)


def print_to(handle: int) -> None:
    """Have this process print there, whichever language it prints in, and say there where it crashed."""
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    faulthandler.enable(file=2)


def adopt_orphans() -> None:
    """Become the parent of what children leave behind, so that it can be ended."""
    set_process_option(PR_SET_CHILD_SUBREAPER, 1)


def set_process_option(option: int, value: int) -> None:
    """prctl(2), where the system has it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
