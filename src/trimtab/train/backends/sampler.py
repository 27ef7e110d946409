"""A sampler's work, the same wherever it runs: orders in, groups out, new weights between two steps; and its life as a process."""

from __future__ import annotations

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
from trimtab.train.children.children import die_with, ignore_signals, print_to
from trimtab.train.engines.table import Engine
from trimtab.train.messages import Group, Job
from trimtab.train.weights.protocol import WeightsReader

IDLE = 1.0
"""Seconds between two beats of a sampler without work."""


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
    """Groups that finished in the same step."""

    groups: tuple[Group, ...]


@dataclass(frozen=True)
class Failed:
    """The engine raised; the sampler is about to end."""

    error: str
    """The last line."""
    traceback: str


Message = Ready | Done | Failed


@runtime_checkable
class Pipe(Protocol):
    """One end of the way between a sampler and its learner."""

    def send(self, obj: Any, /) -> None: ...  # noqa: D102
    def recv(self) -> Any: ...  # noqa: D102
    def poll(self, timeout: float | None = 0.0, /) -> bool: ...  # noqa: D102
    def fileno(self) -> int: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102


@runtime_checkable
class Pulse(Protocol):
    """A whole number that the learner sees rise as long as the sampler is alive."""

    value: int


class LearnerGoneError(Exception):
    """The learner's end of the pipe is closed."""


def serve(engine: Engine, pipe: Pipe, weights: WeightsReader, pulse: Pulse) -> None:
    """Step while there is work; between two steps take orders, and weights if there are newer ones. Ends with LearnerGoneError."""
    loaded = -1
    while True:
        pulse.value += 1
        orders = _orders(pipe, 0.0 if engine.pending else IDLE)
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
                tell(pipe, Done(tuple(groups)))


def tell(pipe: Pipe, message: Message) -> None:
    """Send it to the learner, if that is there."""
    try:
        pipe.send(message)
    except OSError:
        raise LearnerGoneError from None


def _orders(pipe: Pipe, wait: float) -> list[Order]:
    """All that lie in the pipe; waits for the first."""
    orders: list[Order] = []
    try:
        while pipe.poll(wait):
            orders.append(pipe.recv())
            wait = 0.0
    except (EOFError, OSError):
        raise LearnerGoneError from None
    return orders


def live(factory: bytes, pipe: Pipe, weights: WeightsReader, pulse: Pulse, *, threads: int) -> bool:
    """A sampler's life, in a process or an actor: build the engine and serve. Whether it ended because the learner did.

    `factory` comes pickled, so that one that cannot be read is reported like any other error.
    """
    torch.set_num_threads(threads)  # counts for the thread that says it
    try:
        build: Callable[[], Engine] = pickle.loads(factory)
        engine = build()
        tell(pipe, Ready())
        serve(engine, pipe, weights, pulse)
    except LearnerGoneError:
        return True
    except BaseException as error:
        text = traceback.format_exc()
        sys.stderr.write(text)
        sys.stderr.flush()
        pipe.send(Failed("".join(traceback.format_exception_only(error)).strip(), text))
    return False


def run_process(
    pipe: Pipe,
    factory: bytes,
    weights: WeightsReader,
    pulse: Pulse,
    *,
    log: str,
    learner: int,
    threads: int,
    gpu: str | None = None,
) -> None:
    """A sampler as a process: it dies with the learner, leaves interrupts to it, and writes to its log, on demand where every thread is.

    `gpu`: the one GPU that it sees, as CUDA_VISIBLE_DEVICES names it; None: what the learner sees.
    """
    ignore_signals(signal.SIGINT, signal.SIGHUP)
    print_to(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666))
    faulthandler.register(signal.SIGUSR1, file=2)
    die_with(learner)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # CUDA reads it at its first use, which is still to come
    if not live(factory, pipe, weights, pulse, threads=threads):
        raise SystemExit(1)
