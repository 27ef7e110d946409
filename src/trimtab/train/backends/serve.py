"""The sampler's side of the local back-end: a process that decodes, and looks up between two decode steps.

Orders come through its own pipe, weights through their own way; it beats a counter in shared memory so that the learner
can tell slow from hung. It ends with the learner, whatever ended that.
"""

from __future__ import annotations

import ctypes
import faulthandler
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch

from trimtab.errors import RunError
from trimtab.train.engines.protocol import Engine
from trimtab.train.messages import Group, Job
from trimtab.train.weights.protocol import Reader

IDLE = 1.0
"""Seconds between two beats of a sampler without work."""
SET_PARENT_DEATH_SIGNAL = 1


@dataclass(frozen=True)
class Order:
    """Jobs to be begun together, with weights of `least` or newer."""

    jobs: tuple[Job, ...]
    least: int


@dataclass(frozen=True)
class Ready:
    """The engine is built and waits for orders."""


@dataclass(frozen=True)
class Done:
    """Groups that finished in the same decode step."""

    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Failed:
    """The engine raised; the sampler is about to end."""

    error: str
    """The last line."""
    traceback: str


Message = Ready | Done | Failed


@runtime_checkable
class Line(Protocol):
    """One end of a pipe."""

    def send(self, obj: Any, /) -> None: ...  # noqa: D102
    def recv(self) -> Any: ...  # noqa: D102
    def poll(self, timeout: float | None = 0.0, /) -> bool: ...  # noqa: D102
    def fileno(self) -> int: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


@runtime_checkable
class Pulse(Protocol):
    """A whole number in shared memory that rises as long as the sampler is alive."""

    value: int


class LearnerGoneError(Exception):
    """The learner's end of the pipe is closed."""


def sample(
    line: Line,
    factory: bytes,
    weights: Reader,
    pulse: Pulse,
    *,
    log: str,
    learner: int,
    threads: int,
) -> None:
    """A sampler's whole life. `factory` comes pickled, so that one that cannot be read is reported like any other error."""
    _settle(log, learner)
    torch.set_num_threads(threads)
    try:
        engine = _built(factory)
        _send(line, Ready())
        _serve(engine, line, weights, pulse)
    except LearnerGoneError:
        return
    except Exception as error:
        text = traceback.format_exc()
        sys.stderr.write(text)
        sys.stderr.flush()
        line.send(Failed("".join(traceback.format_exception_only(error)).strip(), text))
        raise SystemExit(1) from None


def _settle(log: str, learner: int) -> None:
    """Die with the learner, leave interrupts to it, write to the log."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable(file=2)
    faulthandler.register(signal.SIGUSR1, file=2)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() != learner:  # it died before the line above
        os._exit(1)


def _built(factory: bytes) -> Engine:
    build: Callable[[], Engine] = pickle.loads(factory)
    return build()


def _serve(engine: Engine, line: Line, weights: Reader, pulse: Pulse) -> None:
    """Decode while there is work; between two steps take orders, and weights if there are newer ones."""
    loaded = -1
    while True:
        pulse.value += 1
        orders = _orders(line, 0.0 if engine.pending else IDLE)
        # Orders first, then the version: whatever an order asks for was published before it was sent.
        if weights.version > loaded:
            newest = weights.newest()
            loaded = newest.version
            engine.load(newest.weights, loaded)
        for order in orders:
            if order.least > loaded:
                raise RunError(f"Jobs need weights of version {order.least} or newer, got {loaded}.")
            engine.submit(order.jobs)
        if engine.pending:
            groups = engine.step()
            if groups:
                _send(line, Done(tuple(groups)))


def _orders(line: Line, wait: float) -> list[Order]:
    """All that lie in the pipe; waits for the first."""
    orders: list[Order] = []
    try:
        while line.poll(wait):
            orders.append(line.recv())
            wait = 0.0
    except (EOFError, OSError):
        raise LearnerGoneError from None
    return orders


def _send(line: Line, message: Message) -> None:
    try:
        line.send(message)
    except OSError:
        raise LearnerGoneError from None
