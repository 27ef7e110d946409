"""A sampler process: it dies with the learner, leaves interrupts to it, and writes to a log of its own."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable

import torch

from trimtab.train.backends.serve import Failed, LearnerGoneError, Pipe, Pulse, Ready, serve, tell
from trimtab.train.children.conduct import die_with, ignore_signals, print_to
from trimtab.train.engines.protocol import Engine
from trimtab.train.weights.protocol import WeightsReader


def sample(
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
    """A sampler's whole life. `factory` comes pickled, so that one that cannot be read is reported like any other error.

    `gpu`: the one GPU that it sees, as CUDA_VISIBLE_DEVICES names it; None: what the learner sees.
    """
    _settle(log, learner)
    if gpu is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # CUDA reads it at its first use, which is still to come
    torch.set_num_threads(threads)
    try:
        build: Callable[[], Engine] = pickle.loads(factory)
        engine = build()
        tell(pipe, Ready())
        serve(engine, pipe, weights, pulse)
    except LearnerGoneError:
        return
    except Exception as error:
        text = traceback.format_exc()
        sys.stderr.write(text)
        sys.stderr.flush()
        pipe.send(Failed("".join(traceback.format_exception_only(error)).strip(), text))
        raise SystemExit(1) from None


def _settle(log: str, learner: int) -> None:
    """Die with the learner, leave interrupts to it, write to the log, and there on demand where every thread is."""
    ignore_signals(signal.SIGINT, signal.SIGHUP)
    print_to(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666))
    faulthandler.register(signal.SIGUSR1, file=2)
    die_with(learner)
