"""One machine: samplers as processes beside the learner, each with a pipe of its own.

A queue shared by several could be left half written by the one that is killed. A thread per sampler listens, so that no sampler
waits for a learner that is busy with a step, and no half-sent message stops the learner.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from multiprocessing import get_context, resource_tracker
from multiprocessing.context import SpawnProcess
from threading import Thread
from typing import Unpack, cast

from trimtab.errors import RunError
from trimtab.records.scratch import claim_scratch
from trimtab.train.backends.engine_pool import EnginePool, EngineSeat, PoolOptions
from trimtab.train.backends.pool import TICK, Inbox, SamplerExit, Seat
from trimtab.train.backends.sampler import Failed, Order, Pipe, Pulse, Ready, run_process
from trimtab.train.children.children import ending_of, is_from_outside
from trimtab.train.devices import sampler_gpu
from trimtab.train.engines.table import Engine
from trimtab.train.weights.files import FileWeights

LEAVE, TERMINATE, KILL = 5.0, 2.0, 5.0
"""Seconds a sampler has to go by itself, after SIGTERM, after SIGKILL."""


@dataclass(eq=False, kw_only=True)
class ProcessSeat(EngineSeat):
    """One sampler process from its start to its death, as the learner sees it."""

    process: SpawnProcess
    pipe: Pipe
    pulse: Pulse
    inbox: Inbox
    orders: list[Order] = field(default_factory=list[Order])
    """Not sent yet: while it starts it would not read them."""

    def __post_init__(self) -> None:
        super().__post_init__()
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
        """What it said about itself; one that is ready gets what was kept for it."""
        super().hear(message)
        if self.ready:
            for order in self.orders:
                self.send(order)
            self.orders.clear()

    def look(self, now: float, *, working: bool) -> None:
        """Kill a sampler that has work and shows no life; see to it that a death is noticed."""
        if not self.process.is_alive():
            # Its last words come first; then the pipe ends by itself, unless a child of its own inherited it, or an
            # interrupt hit the learner just as it took note.
            if self.heartbeat.look(-2, now) > 2 * TICK:
                self.shut()
                if not self.listener.is_alive():
                    self.inbox.put((self, None))
            return
        if self.is_stuck(self.pulse.value, now, working=working):
            self._kill()
        elif self.hung is not None and self.heartbeat.seconds > self.hung + self.patience:
            raise RunError(
                f"Sampler {self.number} needs to end when it is killed, got process {self.process.pid} alive."
            )

    def reap(self) -> SamplerExit:
        """After its last word: give back what is kept of it."""
        self.process.kill()
        self.process.join(KILL)
        self.release()
        return self.exit()

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

    def _ending(self) -> str:
        code = self.process.exitcode
        hint = " (by somebody, or by the system for want of memory: see dmesg, lower rollout.slots or rollout.samplers)"
        return f"{ending_of(code)}{hint if code == -signal.SIGKILL else ''}"

    def _is_from_outside(self) -> bool:
        return is_from_outside(self.process.exitcode)


class LocalBackend(EnginePool):
    """Sampler processes beside the learner.

    To be used from one thread, which outlives it: the kernel ends samplers with the thread that started them.
    """

    def __init__(self, factory: Callable[[], Engine], **options: Unpack[PoolOptions]) -> None:
        claim_scratch()
        self._context = get_context("spawn")
        self._weights = FileWeights()
        super().__init__(factory, self._weights, end=end_processes, **options)

    @property
    def pids(self) -> list[int]:
        """Process ids of the samplers."""
        return [cast("ProcessSeat", seat).process.pid or -1 for seat in self.present]

    def _take_seat(self, number: int, inbox: Inbox) -> None:
        ours, theirs = self._context.Pipe()
        # A sampler that does not read (stopped, hung) must not stop the learner for good.
        with socket.socket(fileno=os.dup(ours.fileno())) as end:
            limit = struct.pack("ll", int(self._patience) + 1, 0)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        pulse = self._context.RawValue(ctypes.c_longlong, 0)
        log = self._log(number)
        process = self._context.Process(
            target=run_process,
            args=(theirs, self._factory, self._weights.reader(), pulse),
            kwargs={"log": str(log), "learner": os.getpid(), "threads": self._threads, "gpu": sampler_gpu(number)},
            name=f"trimtab-sampler-{number}",
            daemon=True,
        )
        seat = ProcessSeat(
            number=number,
            log=log,
            patience=self._patience,
            start_patience=self._start_patience,
            process=process,
            pipe=ours,
            pulse=pulse,
            inbox=inbox,
        )
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
