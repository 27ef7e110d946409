"""Samplers on a cluster, placed by what each of them needs.

give ──Order──► actor.order ──► actor ──► actor.news ──ray.wait──► arrived
publish ──ray.put, once──► object store of each node ──► actor
"""

from __future__ import annotations

import contextlib
import pickle
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack, cast

from trimtab.config.rollout import Ray
from trimtab.errors import RunError
from trimtab.train.backends.engine_pool import EnginePool, EngineSeat, PoolOptions
from trimtab.train.backends.pool import Inbox, SamplerExit, Seat
from trimtab.train.backends.protocol import Arrived
from trimtab.train.backends.ray.actor import ActorReport, actor_class
from trimtab.train.backends.ray.cluster import Connection
from trimtab.train.backends.sampler import Message, Order
from trimtab.train.engines.table import Engine
from trimtab.train.messages import Job
from trimtab.train.weights.objects import ObjectWeights, StoredVersion
from trimtab.train.weights.protocol import NamedTensors

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

    def reap(self) -> SamplerExit:
        """After its last word: end what is left of it."""
        self.kill()
        self._fetch_rest()
        return self.exit()

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
        said = " ".join((self.broken or "").split())
        if "temporarily unavailable" in said:
            return "does not answer: its node is gone, or cannot be reached"
        because = re.search(r"because (its (?:worker process|node) has died)", said)
        if because is None:
            return f"is gone: {said[:300]}"
        hint = " (ended by somebody, or by the system for want of memory)" if "worker" in because[1] else ""
        return f"is gone: {because[1]}{hint}"


LEAVE = 5.0
"""Seconds actors have to go by themselves."""
UNPLACED = 60.0
"""Seconds after which the user is told of samplers without a place."""


class RayBackend(EnginePool):
    """Sampler actors. One that dies, or whose node does, is replaced wherever there is room for it.

    Jobs go to samplers that are ready: one for which the cluster has no place waits for it, and nothing waits for that one.
    """

    def __init__(self, factory: Callable[[], Engine], settings: Ray, **options: Unpack[PoolOptions]) -> None:
        """As a local back-end; `start_patience` is also how long the first sampler may wait for a place."""
        self._settings = settings
        self._weights = ObjectWeights()
        self._connection: Connection | None = None
        self._actor: Any = None
        self._stored: Any = None
        self._backlog: deque[Job] = deque()
        self._told_of_places, self._ever_placed = False, False
        super().__init__(factory, self._weights, end=end_actors, **options)

    @property
    def pids(self) -> list[int]:
        """Process ids of the samplers that have said something, each on its own machine."""
        return [seat.report.pid for seat in self._own_present if seat.report is not None]

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Find or start the cluster, publish the weights and ask for the samplers, without waiting for them."""
        if self._connection is not None:
            raise RunError("A back-end needs to begin once, got a second begin(). Make a new one.")
        self._directory.mkdir(parents=True, exist_ok=True)
        self._connection = Connection(self._settings, samplers=len(self._assignments), log=self._directory / "ray.log")
        self._actor = actor_class(self._connection.ray)
        self._stored = self._connection.ray.put(self._factory)  # once: a tokenizer may be large, and actors many
        super().begin(weights, version)

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Into the object store, once; samplers take it over between two steps."""
        super().publish(weights, version)
        for seat in self._own_present:
            seat.offer(self._weights.newest)

    def room(self) -> int:
        """Groups that samplers that are ready would still hold."""
        ready = self._ready
        return max(0, self._assignments.room(None if len(ready) == len(self.seats) else ready) - len(self._backlog))

    def give(self, jobs: Sequence[Job]) -> None:
        """Deal whole groups among those that are ready; while none is, they wait here."""
        self._check_begun()
        ready = self._ready
        if ready and not self._backlog:
            self._deal(jobs, ready)
        else:
            self._backlog.extend(jobs)

    def arrived(self, timeout: float, stop: Callable[[], bool] = lambda: False) -> Arrived:
        """As every back-end; also a word about samplers for which there is no place."""
        news = super().arrived(timeout, stop)
        note = self._places()
        return news if note is None else replace(news, notes=(*news.notes, note))

    def close(self) -> None:
        """Let actors go, then end them, and the cluster if it is our own."""
        try:
            super().close()
        finally:
            if self._connection is not None:
                self._connection.close()

    @property
    def _own_seats(self) -> list[RaySeat]:
        return cast("list[RaySeat]", self.seats)

    @property
    def _own_present(self) -> list[RaySeat]:
        return cast("list[RaySeat]", self.present)

    @property
    def _ready(self) -> list[int]:
        return [seat.number for seat in self.present if seat.ready]

    def _deal(self, jobs: Sequence[Job], ready: Sequence[int]) -> None:
        among = None if len(ready) == len(self.seats) else ready
        for number, share in self._assignments.deal(jobs, among).items():
            self.seats[number].send(Order(tuple(share), self._publisher.version))

    def _take_seat(self, number: int, inbox: Inbox) -> None:
        assert self._connection is not None
        settings, folder = self._settings, self._connection.folder
        actor = self._actor.options(
            num_cpus=settings.cpus,
            num_gpus=settings.gpus,
            resources=dict(settings.resources) or None,
            scheduling_strategy="SPREAD",
        ).remote(
            self._stored,
            self._weights.reader(),
            number=number,
            threads=self._threads,
            folder=None if folder is None else str(folder),
        )
        seat = RaySeat(
            number=number,
            log=self._log(number),
            patience=self._patience,
            start_patience=self._start_patience,
            since=self._clock(),
            ray=self._connection.ray,
            actor=actor,
        )
        self._own_seats[number : number + 1] = [seat]

    def _messages(self, wait: float) -> Iterator[tuple[Seat, Message | None]]:
        """What has arrived from any of them; waits for the first, then takes all there are in one go."""
        assert self._connection is not None
        self._connection.check()
        self._share_backlog()
        ray, awaited = self._connection.ray, {seat.news: seat for seat in self._own_present}
        if not awaited:  # all of them rest
            time.sleep(max(0.0, wait))
            return
        news, _ = ray.wait(list(awaited), num_returns=1, timeout=max(0.0, wait))
        if news and len(awaited) > 1:
            news, _ = ray.wait(list(awaited), num_returns=len(awaited), timeout=0)
        for reference in news:
            seat = awaited[reference]
            for message in seat.collect():
                yield seat, message

    def _share_backlog(self) -> None:
        """An even share of what waits to each that is ready and has nothing to do; those that still start get theirs later."""
        idle = [number for number in self._ready if not self._assignments.is_working(number)]
        starting = len(self.seats) - len(self._ready)
        for place, number in enumerate(idle):
            if not self._backlog:
                return
            share = -(-len(self._backlog) // (len(idle) - place + starting))
            self._deal([self._backlog.popleft() for _ in range(share)], [number])

    def _places(self) -> str | None:
        """A word about samplers that have waited long for a place. Raises where none ever had one."""
        now = self._clock()
        missing = [seat for seat in self._own_present if seat.report is None]
        self._ever_placed = self._ever_placed or any(seat.report is not None for seat in self._own_seats)
        waited = max((now - seat.since for seat in missing), default=0.0)
        if not missing or waited < UNPLACED or self._connection is None:
            return None
        needs = {"CPU": self._settings.cpus, "GPU": self._settings.gpus, **self._settings.resources}
        has = self._connection.ray.cluster_resources()
        known = {name: has.get(name, 0.0) for name in needs}
        if not self._ever_placed and waited > self._start_patience:
            raise RunError(
                f"Sampling needs a place with {needs} for a sampler, got none for {waited:.0f} s in a cluster of {known}. "
                "Lower ray.cpus, ray.gpus or ray.resources, or add nodes."
            )
        if self._told_of_places:
            return None
        self._told_of_places = True
        return f"{len(missing)} of {len(self.seats)} samplers wait for a place with {needs}; the cluster has {known} in all."


def end_actors(seats: Sequence[Seat]) -> None:
    """End actors: by asking them to go, then by force."""
    own = cast("Sequence[RaySeat]", seats)
    placed = [seat for seat in own if seat.report is not None]
    if placed and placed[0].ray.is_initialized():
        ray = placed[0].ray
        left = [seat.actor.leave.remote() for seat in placed]
        ray.wait(left, num_returns=len(left), timeout=LEAVE)
    for seat in own:
        if seat.ray.is_initialized():
            seat.kill()
