"""One sampler actor, as the learner sees it."""

from __future__ import annotations

import contextlib
import pickle
import re
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trimtab.train.backends.ray.actor import ActorReport
from trimtab.train.backends.seat import Fate
from trimtab.train.backends.serve import Failed, Message, Order, Ready
from trimtab.train.backends.silence import Silence
from trimtab.train.weights.objects import StoredVersion

LAST_WORDS = 0.5
"""Seconds a hung actor has to write where it hangs."""


@dataclass(eq=False)
class RaySeat:
    """An actor from its creation to its death. Until it has a place and an engine it is not ready, and gets nothing to do."""

    number: int
    ray: Any
    actor: Any
    log: Path
    patience: float
    """Seconds of silence after which it counts as hung, if it has work."""
    start_patience: float
    """The same from its place to its being ready."""
    ready: bool = False
    report: ActorReport | None = None
    """The last one; None: it has no place yet."""
    failure: Failed | None = None
    hung: float | None = None
    """Seconds of silence for which it was killed."""
    broken: str | None = None
    """What Ray said of its end."""
    received: int = 0
    """Bytes of what it printed."""

    def __post_init__(self) -> None:
        self.silence = Silence(self.patience / 4)
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

    def hear(self, message: Ready | Failed) -> None:
        """What it said about itself."""
        if isinstance(message, Failed):
            self.failure = message
            return
        self.ready = True
        self.silence = Silence(self.patience / 4)  # starting was judged by another limit

    def look(self, now: float, *, working: bool) -> None:
        """Kill an actor that has work, or a place and no engine, and shows no life."""
        if self.report is None:
            return
        silence = self.silence.look(self.report.pulse, now)
        limit = self.patience if self.ready else self.start_patience
        if (working or not self.ready) and self.hung is None and silence > limit:
            self.hung = silence
            self.ray.wait([self.actor.dump.remote()], timeout=LAST_WORDS)
            self.ray.kill(self.actor)

    def bury(self) -> Fate:
        """After its last word: end what is left of it."""
        self.kill()
        self._fetch_rest()
        return Fate(self._cause(), str(self.log), self._tail(), self.failure.traceback if self.failure else None)

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

    def _cause(self) -> str:
        """Why it died."""
        at = "" if self.report is None else f"on {self.report.host} (process {self.report.pid}) "
        if self.failure is not None:
            return f"{at}raised {self.failure.error}"
        if self.hung is not None:
            return f"{at}gave no sign of life for {self.hung:.0f} s and was killed; where it hung is in {self.log}"
        told = " ".join((self.broken or "").split())
        if "temporarily unavailable" in told:
            return f"{at}does not answer: its node is gone, or cannot be reached"
        because = re.search(r"because (its (?:worker process|node) has died)", told)
        if because is None:
            return f"{at}is gone: {told[:300]}"
        hint = " (ended by somebody, or by the system for want of memory)" if "worker" in because[1] else ""
        return f"{at}is gone: {because[1]}{hint}"

    def _tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])
