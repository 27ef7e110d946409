"""Samplers with an engine that is built where they run: processes beside the learner, or actors elsewhere."""

from __future__ import annotations

import pickle
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Required, TypedDict, Unpack

from trimtab.train.backends.fleet import Fleet
from trimtab.train.backends.pool import TICK, SamplerPool
from trimtab.train.backends.seat import Seat
from trimtab.train.engines.protocol import Engine
from trimtab.train.weights.protocol import NamedTensors, Publisher


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
            Fleet(options.get("samplers", 1), hold=options["hold"], restarts=options.get("restarts", 3)),
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
