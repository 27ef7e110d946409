"""A sampler process as the learner sees it: what it holds, whether it lives, why it died."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from dataclasses import dataclass, field
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

from trimtab.train.backends.serve import Failed, Line, Message, Order, Pulse
from trimtab.train.messages import Job


class Silence:
    """For how long a counter has stood still, as far as somebody was looking.

    A long gap between two looks counts for `most` only: then it was the looker that was away (busy, or stopped together
    with the sampler), and the counter deserves a second look.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._pulse = -1
        self._looked: float | None = None
        self.seconds = 0.0

    def look(self, pulse: int, now: float) -> float:
        """The counter at this time; returns the silence so far."""
        gap = 0.0 if self._looked is None else min(now - self._looked, self._most)
        self.seconds = self.seconds + gap if pulse == self._pulse else 0.0
        self._pulse, self._looked = pulse, now
        return self.seconds


@dataclass(eq=False)
class Worker:
    """One sampler process from its start to its death, as the learner sees it."""

    seat: int
    process: SpawnProcess
    line: Line
    pulse: Pulse
    log: Path
    silence: Silence
    strikes: int
    """Deaths in this seat since its last finished group."""
    ready: bool = False
    held: dict[int, Job] = field(default_factory=dict[int, Job])
    orders: list[Order] = field(default_factory=list[Order])
    """Not sent yet: while it starts it would not read them."""
    listener: Thread | None = None
    failure: Failed | None = None
    hung: float | None = None
    """Seconds of silence for which it was killed."""

    @property
    def load(self) -> int:
        """Responses it is to sample."""
        return sum(job.samples for job in self.held.values())

    def send(self, order: Order) -> None:
        """Now, or when it is ready. To a dead one, nothing: its end is seen elsewhere."""
        if not self.ready:
            self.orders.append(order)
            return
        with contextlib.suppress(OSError):
            self.line.send(order)

    def shut(self) -> None:
        """Close the pipe for both sides, also under a thread that is reading it."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.line.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Have it write where it is to its log, then kill it."""
        pid = self.process.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
            self.process.join(0.2)
        self.process.kill()

    def released(self) -> None:
        """What the learner keeps of a dead one is given back; a listener that still reads keeps its pipe."""
        if self.listener is not None and self.listener.ident is not None:
            self.listener.join(1.0)
            if not self.listener.is_alive():
                self.line.close()

    def cause(self) -> str:
        """Why it died."""
        if self.failure is not None:
            return f"raised {self.failure.error}"
        if self.hung is not None:
            return f"gave no sign of life for {self.hung:.0f} s and was killed; where it hung is in {self.log}"
        code = self.process.exitcode
        if code is None or code >= 0:
            return f"ended with exit code {code}"
        name = _signal_name(-code)
        hint = " (by somebody, or by the system for want of memory: see dmesg, lower rollout.slots or rollout.samplers)"
        return f"was ended by {name}{hint if name == 'SIGKILL' else ''}"

    def tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


Inbox = SimpleQueue[tuple[Worker, Message | None]]
"""What samplers said; None is the last from each."""


def listen(worker: Worker, inbox: Inbox) -> None:
    """Pass on what a sampler says until it can say no more."""
    try:
        while True:
            inbox.put((worker, worker.line.recv()))
    except Exception:  # end of file; or a message that was cut off by a kill
        inbox.put((worker, None))


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
