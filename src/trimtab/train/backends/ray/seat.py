"""One sampler actor, as the learner sees it."""

from __future__ import annotations

import contextlib
import pickle
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.train.backends.engine_seat import EngineSeat
from trimtab.train.backends.ray.actor import ActorReport
from trimtab.train.backends.seat import Fate
from trimtab.train.backends.serve import Message, Order
from trimtab.train.weights.objects import StoredVersion

LAST_WORDS = 0.5
"""Seconds a hung actor has to write where it hangs."""


@dataclass(eq=False, kw_only=True)
class RaySeat(EngineSeat):
    """An actor from its creation to its death. Until it has a place and an engine it is not ready, and gets nothing to do."""

    since: float
    """When it was asked for."""
    ray: Any
    actor: Any
    report: ActorReport | None = None
    """The last one; None: it has no place yet."""
    broken: str | None = None
    """What Ray said of its end."""
    received: int = 0
    """Bytes of what it printed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.news = self.actor.news.remote()

    def send(self, order: Order) -> None:
        """To a dead one, nothing: its end is seen elsewhere."""
        self.actor.order.remote(order)

    def offer(self, newest: StoredVersion) -> None:
        """Tell it of new weights."""
        self.actor.offer.remote(newest)

    def collect(self) -> list[Message | None]:
        """What it said, which has arrived; None at the end: it will say no more."""
        try:
            report: ActorReport = pickle.loads(self.ray.get(self.news))
        except self.ray.exceptions.RayError as error:
            self.broken = str(error)
            return [None]
        self.report = report
        self._keep(report.log)
        if report.ended:
            return [*report.messages, None]
        self.news = self.actor.news.remote()
        return list(report.messages)

    def look(self, now: float, *, working: bool) -> None:
        """Kill an actor that has work, or a place and no engine, and shows no life."""
        if self.report is not None and self.is_stuck(self.report.pulse, now, working=working):
            self.ray.wait([self.actor.dump.remote()], timeout=LAST_WORDS)
            self.ray.kill(self.actor)

    def bury(self) -> Fate:
        """After its last word: end what is left of it."""
        self.kill()
        self._fetch_rest()
        return self.fate()

    def kill(self) -> None:
        """End it, wherever it is."""
        with contextlib.suppress(self.ray.exceptions.RayError, ValueError):  # ValueError: no such actor any more
            self.ray.kill(self.actor)

    def _fetch_rest(self) -> None:
        """What it printed and could not send, if it ran on this machine; elsewhere it stays where it is."""
        if self.report is None or self.report.host != socket.gethostname():
            return
        source = Path(self.report.log_file)
        with contextlib.suppress(OSError), source.open("rb") as rest:
            rest.seek(self.received)
            self._keep(rest.read())
            source.unlink()

    def _keep(self, printed: bytes) -> None:
        self.received += len(printed)
        with self.log.open("ab") as file:
            file.write(printed)

    def _place(self) -> str:
        return "" if self.report is None else f"on {self.report.host} (process {self.report.pid}) "

    def _is_from_outside(self) -> bool:
        """Ray does not say whose doing it was."""
        return True

    def _ending(self) -> str:
        told = " ".join((self.broken or "").split())
        if "temporarily unavailable" in told:
            return "does not answer: its node is gone, or cannot be reached"
        because = re.search(r"because (its (?:worker process|node) has died)", told)
        if because is None:
            return f"is gone: {told[:300]}"
        hint = " (ended by somebody, or by the system for want of memory)" if "worker" in because[1] else ""
        return f"is gone: {because[1]}{hint}"
