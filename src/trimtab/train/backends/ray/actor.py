"""A sampler as an actor: the same work as in a process of its own, with calls in place of a pipe.

order, offer ──► mailbox, reader ──► serve, on a thread ──► mailbox ──► news, asked for again and again
"""

from __future__ import annotations

import faulthandler
import os
import pickle
import socket
import sys
import tempfile
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Condition, Thread
from typing import Any

from trimtab.train.backends.sampler import Message, Order, live
from trimtab.train.children.children import print_to
from trimtab.train.weights.objects import ObjectReader, StoredVersion

BEAT = 2.0
"""Seconds after which an actor that has nothing to say says so."""
LARGEST = 1 << 20
"""Bytes of its log that an actor sends at once."""


@dataclass(frozen=True)
class ActorReport:
    """What an actor has to say: pickled by itself, so that its arrays are the reader's own, as those from a pipe are."""

    messages: tuple[Message, ...]
    pulse: int
    log: bytes
    """What it printed since the last one."""
    host: str
    pid: int
    log_file: str
    """Where it prints, on its own machine."""
    ended: bool
    """Whether nothing will follow."""


@dataclass
class Beats:
    """Steps of the sampler."""

    value: int = 0


class Mailbox:
    """A sampler's end of the way to its learner."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._orders: deque[Order] = deque()
        self._said: deque[Message] = deque()
        self._is_closed = False

    def send(self, obj: Message, /) -> None:
        """To the learner."""
        with self._changed:
            if self._is_closed:
                raise OSError("the learner is gone")
            self._said.append(obj)
            self._changed.notify_all()

    def poll(self, timeout: float | None = 0.0, /) -> bool:
        """Whether there is an order, or the end; waits for it."""
        with self._changed:
            return self._changed.wait_for(lambda: bool(self._orders) or self._is_closed, timeout)

    def recv(self) -> Order:
        """The next order."""
        with self._changed:
            if not self._orders:
                raise EOFError
            return self._orders.popleft()

    def fileno(self) -> int:
        """It has none."""
        raise OSError("a mailbox is no file")

    def close(self) -> None:
        """The learner is gone."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def post(self, order: Order) -> None:
        """From the learner."""
        with self._changed:
            self._orders.append(order)
            self._changed.notify_all()

    def collect(self, wait: float) -> tuple[Message, ...]:
        """All that was said; waits for the first."""
        with self._changed:
            self._changed.wait_for(lambda: bool(self._said) or self._is_closed, wait)
            said = tuple(self._said)
            self._said.clear()
            return said


class SamplerActor:
    """A sampler's whole life. Calls that bring something come in the order they were made; `news` has a thread of its own."""

    def __init__(self, factory: bytes, reader: ObjectReader, *, number: int, threads: int, folder: str | None) -> None:
        """`folder`: where it prints; None: where this machine keeps temporary files."""
        handle, self._log_file = tempfile.mkstemp(prefix=f"trimtab-sampler-{number}-", suffix=".log", dir=folder)
        print_to(handle)
        sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115 - Ray had put its own there
        sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
        self._log = open(self._log_file, "rb")  # noqa: SIM115 - as long as it lives
        self._mailbox, self._reader, self._beats = Mailbox(), reader, Beats()
        self._threads, self._ended = threads, False
        Thread(target=self._live, args=(factory,), name="trimtab-sampler", daemon=True).start()

    def order(self, order: Order) -> None:
        """Jobs to be begun."""
        self._mailbox.post(order)

    def offer(self, newest: StoredVersion) -> None:
        """There are newer weights."""
        self._reader.take(newest)

    def dump(self) -> None:
        """Write where every thread is to the log."""
        faulthandler.dump_traceback(file=2, all_threads=True)

    def leave(self) -> None:
        """There is nothing more to do; what it printed was sent."""
        self._mailbox.close()
        Path(self._log_file).unlink(missing_ok=True)

    def news(self) -> bytes:
        """What happened since the last call; waits for something, but not for long."""
        ended = self._ended  # before the messages: of one that has ended none can follow
        messages = self._mailbox.collect(0.0 if ended else BEAT)
        report = ActorReport(
            messages,
            self._beats.value,
            self._log.read(LARGEST),
            socket.gethostname(),
            os.getpid(),
            self._log_file,
            ended,
        )
        return pickle.dumps(report, protocol=pickle.HIGHEST_PROTOCOL)

    def _live(self, factory: bytes) -> None:
        try:
            live(factory, self._mailbox, self._reader, self._beats, threads=self._threads)
        finally:
            self._ended = True


METHODS: dict[str, dict[str, Any]] = {
    "order": {"concurrency_group": "inward", "num_returns": 0},
    "offer": {"concurrency_group": "inward", "num_returns": 0},
    "dump": {"concurrency_group": "inward"},
    "leave": {"concurrency_group": "inward"},
    "news": {"concurrency_group": "outward"},
}
"""Which calls keep their order: one thread each way."""


def actor_class(ray: Any) -> Any:
    """The class as Ray wants it; made here, so that nothing of Ray is needed to import this module.

    Ray sends its methods by value: these say no more than where the real ones are.
    """
    marked = {name: ray.method(**options)(_method(name)) for name, options in METHODS.items()}
    own = type("RaySampler", (SamplerActor,), marked)
    return ray.remote(concurrency_groups={"inward": 1, "outward": 1}, max_restarts=0)(own)


def _method(name: str) -> Callable[..., Any]:
    made: Any = lambda self, *given: getattr(SamplerActor, name)(self, *given)  # noqa: E731, PLW0108  # pyright: ignore[reportUnknownLambdaType]
    return made
