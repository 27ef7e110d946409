"""Samplers with an engine that is built where they run, in processes or actors: when they are ready, when hung, and how they ended."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Required, TypedDict, Unpack

from trimtab.train.backends.assignments import Assignments
from trimtab.train.backends.pool import TICK, SamplerExit, SamplerPool, Seat
from trimtab.train.backends.sampler import Failed, Ready
from trimtab.train.engines.table import Engine
from trimtab.train.weights.protocol import NamedTensors, Publisher


class Heartbeat:
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


@dataclass(eq=False, kw_only=True)
class EngineSeat:
    """A sampler from its start to its death. Ways to it are subclasses, which say by `_ending` how they saw it go."""

    number: int
    log: Path
    patience: float
    """Seconds of silence after which it counts as hung, if it has work."""
    start_patience: float
    """The same while it starts."""
    ready: bool = False
    failure: Failed | None = None
    hung: float | None = None
    """Seconds of silence for which it was killed."""

    def __post_init__(self) -> None:
        self.heartbeat = Heartbeat(self.patience / 4)

    def hear(self, message: Ready | Failed) -> None:
        """What it said about itself."""
        if isinstance(message, Failed):
            self.failure = message
            return
        self.ready = True
        self.heartbeat = Heartbeat(self.patience / 4)  # starting was judged by another limit

    def is_stuck(self, pulse: int, now: float, *, working: bool) -> bool:
        """Whether it has just been silent for too long; said once."""
        silence = self.heartbeat.look(pulse, now)
        limit = self.patience if self.ready else self.start_patience
        if (working or not self.ready) and self.hung is None and silence > limit:
            self.hung = silence
            return True
        return False

    def exit(self) -> SamplerExit:
        """How it ended."""
        trace = self.failure.traceback if self.failure else None
        outside = self.failure is None and self.hung is None and self._is_from_outside()
        return SamplerExit(self._cause(), str(self.log), self._tail(), trace, outside)

    def _ending(self) -> str:
        """How it ended where it did not say so itself, and was not killed for its silence."""
        raise NotImplementedError

    def _is_from_outside(self) -> bool:
        """Whether that is how one ends that somebody else ends."""
        raise NotImplementedError

    def _place(self) -> str:
        """Where it ran, where that is not here; ends with a blank."""
        return ""

    def _cause(self) -> str:
        if self.failure is not None:
            return f"{self._place()}raised {self.failure.error}"
        if self.hung is not None:
            where = f"was killed; where it hung is in {self.log}"
            return f"{self._place()}gave no sign of life for {self.hung:.0f} s and {where}"
        return f"{self._place()}{self._ending()}"

    def _tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


class PoolOptions(TypedDict, total=False):
    """What a pool can be asked for."""

    hold: Required[int]
    """Groups per sampler at a time; with at least a step's, one sampler gets them in one piece."""
    samplers: int
    """How many; 1 if not said."""
    directory: Path
    """Where samplers write their logs. If not said: nobody keeps them."""
    restarts: int
    """Deaths before the run stops, of one sampler without a finished group between, or with one group; 3 if not said."""
    patience: float
    """Seconds without a decode step after which a sampler with work counts as hung; 120 if not said."""
    start_patience: float
    """The same while it starts; 600 if not said."""
    threads: int
    """Of each sampler; 1 if not said."""
    clock: Callable[[], float]


class EnginePool(SamplerPool):
    """A pool whose samplers have logs in one folder and limits to how long they may say nothing."""

    def __init__(
        self,
        factory: Callable[[], Engine],
        publisher: Publisher,
        *,
        end: Callable[[Sequence[Seat]], None],
        **options: Unpack[PoolOptions],
    ) -> None:
        """Engines are built by `factory`, which is pickled; `end` ends samplers, as in every pool."""
        self._factory, self._threads = pickle.dumps(factory), options.get("threads", 1)
        self._patience, self._start_patience = options.get("patience", 120.0), options.get("start_patience", 600.0)
        directory = options.get("directory")
        self._temporary = None if directory else tempfile.TemporaryDirectory(prefix="trimtab-")
        # Whole, because a spawned process starts where its parent started, not where it is.
        self._directory = (directory or Path(self._temporary.name if self._temporary else ".")).resolve()
        super().__init__(
            Assignments(options.get("samplers", 1), hold=options["hold"], restarts=options.get("restarts", 3)),
            publisher,
            end=end,
            tick=min(TICK, self._patience / 4),
            clock=options.get("clock", time.monotonic),
        )

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Publish the weights and start the samplers, without waiting for them."""
        self._directory.mkdir(parents=True, exist_ok=True)
        super().begin(weights, version)

    def close(self) -> None:
        """Let samplers go, then end them."""
        try:
            super().close()
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()

    def _log(self, number: int) -> Path:
        """Where the sampler in a seat prints."""
        return self._directory / f"sampler-{number}.log"
