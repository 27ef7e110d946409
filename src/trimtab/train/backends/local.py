"""One machine: the learner in this process, samplers in processes of their own.

give ──Order──► pipe ──► sampler ──Done──► pipe ──► listener thread ──► inbox ──► arrived
publish ──► weights' file ──► sampler

Each sampler has its own pipe: a queue shared by several can be left half written by the one that is killed. A thread per
sampler listens, so that no sampler waits for a learner that is busy with a step, and no half-sent message stops the learner.
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
import weakref
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from multiprocessing import get_context, resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread

from trimtab.errors import RunError
from trimtab.records.scratch import claim_scratch
from trimtab.train.backends.protocol import Arrived
from trimtab.train.backends.serve import Done, Failed, Message, Order, Ready, sample
from trimtab.train.backends.worker import Inbox, Silence, Worker, listen
from trimtab.train.engines.protocol import Engine
from trimtab.train.messages import Group, Job
from trimtab.train.weights.files import FileWeights
from trimtab.train.weights.protocol import NamedTensors

TICK = 1.0
"""Seconds between two looks at samplers that say nothing."""
LEAVE, TERMINATE, KILL = 5.0, 2.0, 5.0
"""Seconds a sampler has to go by itself, after SIGTERM, after SIGKILL."""


class LocalBackend:
    """Sampler processes beside the learner. A sampler that dies or hangs is replaced; its groups are reported lost.

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
        self._factory = pickle.dumps(factory)
        self._hold, self._samplers, self._restarts, self._threads = hold, samplers, restarts, threads
        self._patience, self._start_patience, self._clock = patience, start_patience, clock
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="trimtab-")
        # Whole, because a spawned process starts where its parent started, not where it is.
        self._directory = (directory or Path(self._temporary.name if self._temporary else ".")).resolve()
        claim_scratch()
        self._context = get_context("spawn")
        self._weights = FileWeights()
        self._workers: list[Worker] = []
        self._inbox: Inbox = SimpleQueue()
        self._losses: Counter[int] = Counter()
        self._stop = weakref.finalize(self, _stopped, self._workers, os.getpid())

    @property
    def pids(self) -> list[int]:
        """Process ids of the samplers."""
        return [worker.process.pid or -1 for worker in self._workers]

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Publish the weights and start the samplers, without waiting for them."""
        if self._workers or not self._stop.alive:
            raise RunError("A back-end needs to begin once, got a second begin(). Make a new one.")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._weights.publish(weights, version)
        for seat in range(self._samplers):
            self._start(seat, 0)

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Samplers take it over between two decode steps."""
        self._weights.publish(weights, version)

    def room(self) -> int:
        """Groups that samplers would still hold."""
        return max(0, self._samplers * self._hold - sum(len(worker.held) for worker in self._workers))

    def give(self, jobs: Sequence[Job]) -> None:
        """Deal whole groups, each to the sampler with the least to do; what one gets, it gets at once."""
        self._begun()
        dealt: dict[int, list[Job]] = {}
        for job in jobs:
            worker = min(self._workers, key=lambda worker: (worker.load, worker.seat))
            worker.held[job.group] = job
            dealt.setdefault(worker.seat, []).append(job)
        for seat, share in dealt.items():
            self._workers[seat].send(Order(tuple(share), self._weights.version))

    def arrived(self, timeout: float, stop: Callable[[], bool] = lambda: False) -> Arrived:
        """Finished groups; groups of dead samplers, which are replaced here; what to say about it."""
        self._begun()
        groups: list[Group] = []
        lost: list[int] = []
        notes: list[str] = []
        deadline = self._clock() + timeout
        while True:
            left = deadline - self._clock()
            for worker, message in self._messages(min(left, TICK, self._patience / 4)):
                if message is not None:
                    groups += self._understood(worker, message)
                elif self._workers[worker.seat] is worker:
                    lost += worker.held
                    notes.append(self._replaced(worker))
            for worker in self._workers:
                self._look(worker)
            if groups or lost or notes or left <= 0 or stop():
                return Arrived(tuple(groups), tuple(lost), tuple(notes))

    def close(self) -> None:
        """Let samplers go, then end them."""
        self._stop()
        self._workers.clear()
        self._weights.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def _begun(self) -> None:
        if not self._workers:
            raise RunError("A back-end needs begin() before work and none after close(), got no samplers.")

    def _start(self, seat: int, strikes: int) -> None:
        """A new sampler in a seat. It is on the list before it runs, so that close() finds it whatever comes between."""
        ours, theirs = self._context.Pipe()
        # A sampler that does not read (stopped, hung) must not stop the learner for good.
        with socket.socket(fileno=os.dup(ours.fileno())) as end:
            limit = struct.pack("ll", int(self._patience) + 1, 0)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        pulse = self._context.RawValue(ctypes.c_longlong, 0)
        log = self._directory / f"sampler-{seat}.log"
        process = self._context.Process(
            target=sample,
            args=(theirs, self._factory, self._weights.reader(), pulse),
            kwargs={"log": str(log), "learner": os.getpid(), "threads": self._threads},
            name=f"trimtab-sampler-{seat}",
            daemon=True,
        )
        worker = Worker(seat, process, ours, pulse, log, Silence(self._patience / 4), strikes)
        worker.listener = Thread(
            target=listen, args=(worker, self._inbox), name=f"{process.name}-listener", daemon=True
        )
        self._workers[seat : seat + 1] = [worker]
        with _interrupts_held():
            process.start()
            worker.listener.start()
        theirs.close()

    def _messages(self, wait: float) -> Iterator[tuple[Worker, Message | None]]:
        """Those that are there; waits for the first. None means that the sampler is gone."""
        try:
            yield self._inbox.get(timeout=max(0.0, wait))
            while True:
                yield self._inbox.get_nowait()
        except Empty:
            return

    def _understood(self, worker: Worker, message: Message) -> tuple[Group, ...]:
        match message:
            case Ready():
                worker.ready = True
                worker.silence = Silence(self._patience / 4)  # starting was judged by another limit
                for order in worker.orders:
                    worker.send(order)
                worker.orders.clear()
            case Failed():
                worker.failure = message
            case Done(groups):
                worker.strikes = 0
                for group in groups:
                    worker.held.pop(group.job.group, None)
                    self._losses.pop(group.job.group, None)
                return groups
        return ()

    def _look(self, worker: Worker) -> None:
        """Kill a sampler that has work and shows no life; see to it that a death is noticed."""
        now = self._clock()
        if not worker.process.is_alive():
            # Its last words come first; then the pipe ends by itself, unless a child of its own inherited it, or an
            # interrupt hit the learner just as it took note.
            if worker.silence.look(-2, now) > 2 * TICK:
                worker.shut()
                if worker.listener is None or not worker.listener.is_alive():
                    self._inbox.put((worker, None))
            return
        working = bool(worker.held) or not worker.ready
        silence = worker.silence.look(worker.pulse.value, now)
        limit = self._patience if worker.ready else self._start_patience
        if working and worker.hung is None and silence > limit:
            worker.hung = silence
            worker.end()
        elif worker.hung is not None and silence > worker.hung + self._patience:
            raise RunError(
                f"Sampler {worker.seat} needs to end when it is killed, got process {worker.process.pid} alive."
            )

    def _replaced(self, worker: Worker) -> str:
        """Put a new sampler in a dead one's seat; returns what to tell the user. Raises where that has no prospect."""
        worker.process.kill()
        worker.process.join(KILL)
        cause = worker.cause()
        worker.released()
        self._losses.update(list(worker.held))
        strikes = worker.strikes + 1
        fate = f"Sampler {worker.seat} {cause}."
        hopeless = [number for number in worker.held if self._losses[number] > self._restarts]
        if strikes > self._restarts:
            got = f"sampler {worker.seat} dead {strikes} times in a row without one"
        elif hopeless:
            named = ", ".join(str(number) for number in hopeless[:5])
            got = f"{self._restarts + 1} deaths with the same groups in hand ({named})"
        else:
            self._start(worker.seat, strikes)
            trace = f"\n{worker.failure.traceback}" if worker.failure else ""
            return f"{fate} Restarted; {len(worker.held)} groups are sampled again.{trace}"
        raise RunError(
            f"Sampling needs samplers that live to finish a group, got {got}. {fate} "
            f"Look at {worker.log}, which ends:\n{worker.tail()}"
        )


@contextlib.contextmanager
def _interrupts_held() -> Generator[None]:
    """Children started here are deaf to Ctrl-C and a closed terminal from their first moment; the learner hears it afterwards."""
    resource_tracker.ensure_running()  # it would let interrupts through again at its own start
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _stopped(workers: list[Worker], owner: int) -> None:
    """End samplers: by closing their pipes, then by force."""
    if os.getpid() != owner:  # a fork of the learner that ends owns no samplers
        return
    started = [worker for worker in workers if worker.process.pid is not None]
    for worker in started:
        worker.shut()
        if not worker.ready:
            worker.process.terminate()
    for limit, force in ((LEAVE, SpawnProcess.terminate), (TERMINATE, SpawnProcess.kill), (KILL, SpawnProcess.kill)):
        deadline = time.monotonic() + limit
        for worker in started:
            worker.process.join(max(0.0, deadline - time.monotonic()))
            if worker.process.is_alive():
                force(worker.process)
    for worker in started:
        worker.released()
