"""One machine: samplers as processes beside the learner, each with a pipe of its own.

A queue shared by several could be left half written by the one that is killed. A thread per sampler listens, so that no sampler
waits for a learner that is busy with a step, and no half-sent message stops the learner.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context, resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from typing import cast

from trimtab.errors import RunError
from trimtab.records.scratch import claim_scratch
from trimtab.train.backends.fleet import Fleet
from trimtab.train.backends.pool import TICK, SamplerPool
from trimtab.train.backends.sampler import sample
from trimtab.train.backends.seat import Fate, Inbox, Seat
from trimtab.train.backends.serve import Failed, Order, Pipe, Pulse, Ready
from trimtab.train.backends.silence import Silence
from trimtab.train.devices import sampler_gpu
from trimtab.train.engines.protocol import Engine
from trimtab.train.weights.files import FileWeights
from trimtab.train.weights.protocol import NamedTensors

LEAVE, TERMINATE, KILL = 5.0, 2.0, 5.0
"""Seconds a sampler has to go by itself, after SIGTERM, after SIGKILL."""


@dataclass(eq=False)
class ProcessSeat:
    """One sampler process from its start to its death, as the learner sees it."""

    number: int
    process: SpawnProcess
    pipe: Pipe
    pulse: Pulse
    log: Path
    inbox: Inbox
    patience: float
    """Seconds of silence after which it counts as hung, if it has work."""
    start_patience: float
    """The same while it starts."""
    ready: bool = False
    orders: list[Order] = field(default_factory=list[Order])
    """Not sent yet: while it starts it would not read them."""
    failure: Failed | None = None
    hung: float | None = None
    """Seconds of silence for which it was killed."""

    def __post_init__(self) -> None:
        self.silence = Silence(self.patience / 4)
        self.listener = Thread(target=self._listen, name=f"{self.process.name}-listener", daemon=True)

    def start(self) -> None:
        """Start the process, deaf to interrupts from its first moment, and the thread that listens to it."""
        with _interrupts_held():
            self.process.start()
            self.listener.start()

    def send(self, order: Order) -> None:
        """Now, or when it is ready. To a dead one, nothing: its end is seen elsewhere."""
        if not self.ready:
            self.orders.append(order)
            return
        with contextlib.suppress(OSError):
            self.pipe.send(order)

    def hear(self, message: Ready | Failed) -> None:
        """What it said about itself."""
        if isinstance(message, Failed):
            self.failure = message
            return
        self.ready = True
        self.silence = Silence(self.patience / 4)  # starting was judged by another limit
        for order in self.orders:
            self.send(order)
        self.orders.clear()

    def look(self, now: float, *, working: bool) -> None:
        """Kill a sampler that has work and shows no life; see to it that a death is noticed."""
        if not self.process.is_alive():
            # Its last words come first; then the pipe ends by itself, unless a child of its own inherited it, or an
            # interrupt hit the learner just as it took note.
            if self.silence.look(-2, now) > 2 * TICK:
                self.shut()
                if not self.listener.is_alive():
                    self.inbox.put((self, None))
            return
        silence = self.silence.look(self.pulse.value, now)
        limit = self.patience if self.ready else self.start_patience
        if (working or not self.ready) and self.hung is None and silence > limit:
            self.hung = silence
            self._kill()
        elif self.hung is not None and silence > self.hung + self.patience:
            raise RunError(
                f"Sampler {self.number} needs to end when it is killed, got process {self.process.pid} alive."
            )

    def bury(self) -> Fate:
        """After its last word: give back what is kept of it."""
        self.process.kill()
        self.process.join(KILL)
        cause = self._cause()
        self.release()
        return Fate(cause, str(self.log), self._tail(), self.failure.traceback if self.failure else None)

    def shut(self) -> None:
        """Close the pipe for both sides, also under a thread that is reading it."""
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        """What the learner keeps of a dead one is given back; a listener that still reads keeps its pipe."""
        if self.listener.ident is not None:
            self.listener.join(1.0)
            if not self.listener.is_alive():
                self.pipe.close()

    def _listen(self) -> None:
        """Pass on what the sampler says until it can say no more."""
        try:
            while True:
                self.inbox.put((self, self.pipe.recv()))
        except Exception:  # end of file; or a message that was cut off by a kill
            self.inbox.put((self, None))

    def _kill(self) -> None:
        """Have it write where it is to its log, then kill it."""
        pid = self.process.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
            self.process.join(0.2)
        self.process.kill()

    def _cause(self) -> str:
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

    def _tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


class LocalBackend(SamplerPool):
    """Sampler processes beside the learner.

    To be used from one thread, which outlives it: the kernel ends samplers with the thread that started them.
    """

    def __init__(
        self,
        factory: Callable[[], Engine],
        *,
        hold: int,
        samplers: int = 1,
        directory: Path | None = None,
        restarts: int = 3,
        patience: float = 120.0,
        start_patience: float = 600.0,
        threads: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Samplers are built by `factory`, which is pickled, and write their logs to `directory`.

        `hold`: groups per sampler at a time; with at least a step's, one sampler gets them in one piece.
        `restarts`: deaths before the run stops, of one sampler without a finished group between, or with one group.
        `patience`: seconds without a decode step after which a sampler with work counts as hung.
        `start_patience`: the same while it starts.
        """
        self._factory, self._threads = pickle.dumps(factory), threads
        self._patience, self._start_patience = patience, start_patience
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="trimtab-")
        # Whole, because a spawned process starts where its parent started, not where it is.
        self._directory = (directory or Path(self._temporary.name if self._temporary else ".")).resolve()
        claim_scratch()
        self._context = get_context("spawn")
        self._weights = FileWeights()
        super().__init__(
            Fleet(samplers, hold=hold, restarts=restarts),
            self._weights,
            end=end_processes,
            tick=min(TICK, patience / 4),
            clock=clock,
        )

    @property
    def pids(self) -> list[int]:
        """Process ids of the samplers."""
        return [cast("ProcessSeat", seat).process.pid or -1 for seat in self.seats]

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Publish the weights and start the samplers, without waiting for them."""
        self._directory.mkdir(parents=True, exist_ok=True)
        super().begin(weights, version)

    def close(self) -> None:
        """Let samplers go, then end them."""
        super().close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _take_seat(self, number: int, inbox: Inbox) -> None:
        ours, theirs = self._context.Pipe()
        # A sampler that does not read (stopped, hung) must not stop the learner for good.
        with socket.socket(fileno=os.dup(ours.fileno())) as end:
            limit = struct.pack("ll", int(self._patience) + 1, 0)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        pulse = self._context.RawValue(ctypes.c_longlong, 0)
        log = self._directory / f"sampler-{number}.log"
        process = self._context.Process(
            target=sample,
            args=(theirs, self._factory, self._weights.reader(), pulse),
            kwargs={"log": str(log), "learner": os.getpid(), "threads": self._threads, "gpu": sampler_gpu(number)},
            name=f"trimtab-sampler-{number}",
            daemon=True,
        )
        seat = ProcessSeat(number, process, ours, pulse, log, inbox, self._patience, self._start_patience)
        self.seats[number : number + 1] = [seat]
        seat.start()
        theirs.close()


@contextlib.contextmanager
def _interrupts_held() -> Generator[None]:
    """Children started here are deaf to Ctrl-C and a closed terminal from their first moment; the learner hears it afterwards."""
    resource_tracker.ensure_running()  # it would let interrupts through again at its own start
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_processes(seats: Sequence[Seat]) -> None:
    """End samplers: by closing their pipes, then by force."""
    started = [seat for seat in cast("Sequence[ProcessSeat]", seats) if seat.process.pid is not None]
    for seat in started:
        seat.shut()
        if not seat.ready:
            seat.process.terminate()
    for limit, force in ((LEAVE, SpawnProcess.terminate), (TERMINATE, SpawnProcess.kill), (KILL, SpawnProcess.kill)):
        deadline = time.monotonic() + limit
        for seat in started:
            seat.process.join(max(0.0, deadline - time.monotonic()))
            if seat.process.is_alive():
                force(seat.process)
    for seat in started:
        seat.release()


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
