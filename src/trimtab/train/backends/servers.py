"""Servers as samplers, vLLM's or SGLang's: started by the run, or running at given addresses.

send ──► queue ──no more than its slots──► POST generate, a thread each ──► inbox
wake ──► newer weights? swap, prove

A server keeps its own time, so it is a seat and not an engine: jobs go to it as requests, weights as a file that it reads. While its
thread updates weights it sends no request, so none is begun between two versions but those that were on their way.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Condition, Thread
from typing import cast

from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.errors import ConfigError, RunError
from trimtab.records.scratch import locked_folder
from trimtab.train.backends.assignments import Assignments
from trimtab.train.backends.pool import Inbox, SamplerExit, SamplerPool, Seat
from trimtab.train.backends.protocol import Arrived
from trimtab.train.backends.sampler import Done, Failed, Order, Ready
from trimtab.train.engines.jobs import check_job, longest_of
from trimtab.train.engines.probe import TOLERANCES, Probe, Skeleton
from trimtab.train.engines.served import (
    GoneError,
    MixedError,
    RefusedError,
    ServerClient,
    ServerKind,
    StartedServer,
    host_and_port,
)
from trimtab.train.messages import Group, Job
from trimtab.train.weights.files import FileWeights
from trimtab.train.weights.protocol import NamedTensors

POLL = 0.5
"""Seconds between two looks at a server that starts."""


class ServerSeat:
    """A server from its start to its end. What its threads share is guarded by one condition."""

    def __init__(
        self,
        number: int,
        inbox: Inbox,
        client: ServerClient,
        server: StartedServer | None,
        probe: Probe,
        rollout: Rollout,
        *,
        patience: float,
    ) -> None:
        """`server`: None where it runs without us. `patience`: seconds until it has to answer."""
        self.number, self.ready, self.client, self.server = number, False, client, server
        self.differences: list[float] = []
        """Of the log-probs of each probe."""
        self._inbox, self._probe, self._rollout, self._patience = inbox, probe, rollout, patience
        self._most = max(1, rollout.slots // rollout.samples)
        self._changed = Condition()
        self._queue: deque[Job] = deque()
        self._running = 0
        self._version, self._updates = -1, 0
        self._broken: str | None = None
        self._wrong: RunError | None = None
        self._leaving = False
        self._calls = ThreadPoolExecutor(self._most, thread_name_prefix=f"trimtab-server-{number}")
        self._thread = Thread(target=self._live, name=f"trimtab-server-{number}", daemon=True)

    def start(self) -> None:
        """Wait for the server, then keep it busy."""
        self._thread.start()

    def send(self, order: Order) -> None:
        """Queue its jobs."""
        with self._changed:
            self._queue.extend(order.jobs)
            self._changed.notify_all()

    def wake(self) -> None:
        """Newer weights may be there."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, version: int) -> None:
        """Until the server has these weights; not for one that starts, or is gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._over() or not 0 <= self._version < version)

    def hear(self, message: Ready | Failed) -> None:
        """It says nothing about itself but that it is ready."""
        self.ready = True

    def look(self, now: float, *, working: bool) -> None:
        """Break off requests to a server whose process is gone. Raises what makes going on wrong."""
        if self._wrong is not None:
            raise self._wrong
        if self.server is not None and self.server.ended:
            self.client.close()

    def reap(self) -> SamplerExit:
        """End what is left of it."""
        cause, log, tail = f"at {self.client.address} broke off ({self._broken})", self.client.address, ""
        outside = False
        if self.server is not None:
            cause = f"{self.server.kill()} ({self._broken})"
            log, tail, outside = str(self.server.log), self.server.tail(), self.server.is_from_outside
        self.release()
        return SamplerExit(cause, log, tail, is_from_outside=outside)

    def leave(self) -> None:
        """Send nothing more, and break off what is under way."""
        with self._changed:
            self._leaving = True
            self._changed.notify_all()
        self.client.close()

    def release(self) -> None:
        """Let its threads and its files go."""
        self.leave()
        self._calls.shutdown(wait=False, cancel_futures=True)
        if self._thread.ident is not None:
            self._thread.join(5.0)
        self.client.release()

    def _live(self) -> None:
        try:
            self._connect()
            while self._next():
                pass
        except (GoneError, RefusedError) as error:
            with self._changed:
                self._broken = self._broken or str(error)
                self._changed.notify_all()
            self._inbox.put((self, None))
        except RunError as error:
            self._wrong = error
            self.wake()
        except Exception as error:  # a thread that ends in silence would stop the run without a word
            self._wrong = RunError(f"Server {self.number} needs an answer that can be read, got {error!r}.")
            self.wake()

    def _connect(self) -> None:
        deadline = time.monotonic() + self._patience
        while not self.client.healthy():
            if self._leaving:
                return
            if self.server is not None and self.server.ended:
                raise GoneError("before it answered")
            if time.monotonic() > deadline:
                raise GoneError(f"no answer for {self._patience:g} s")
            time.sleep(POLL)
        self.client.connect()
        self._inbox.put((self, Ready()))

    def _next(self) -> bool:
        """Do the next thing there is to do; False: leave."""
        with self._changed:
            self._changed.wait_for(self._has_work)
            if self._leaving or self._wrong is not None:
                return False
            if self._broken is not None:
                raise GoneError(self._broken)
            if self.client.newest <= self._version:
                self._running += 1
                self._calls.submit(self._sample, self._queue.popleft(), self._version)
                return True
        self._update()
        return True

    def _has_work(self) -> bool:
        if self._over():
            return True
        if self.client.newest > self._version:
            return self._rollout.in_flight != "finish" or not self._running
        return bool(self._queue) and self._running < self._most

    def _over(self) -> bool:
        return self._leaving or self._broken is not None or self._wrong is not None

    def _update(self) -> None:
        """New weights, proved; what runs is frozen meanwhile and goes on with them."""
        taken = self.client.take()
        expected = self._probe.expect(taken.weights, taken.version) if self._is_due() else None
        self.client.swap(taken, self._rollout.in_flight)
        if expected is not None:
            who = f"Server {self.number} at {self.client.address}"
            self.differences += self.client.prove(expected, taken.weights, who)
        self._updates += 1
        with self._changed:
            self._version = taken.version
            self._changed.notify_all()

    def _is_due(self) -> bool:
        return self._updates % self._rollout.verify == 0

    def _sample(self, job: Job, version: int) -> None:
        """One group, in a thread of its own."""
        try:
            group = self.client.generate(job, version)
        except (GoneError, RefusedError) as error:
            self._finish(broken=str(error))
        except MixedError:
            self._finish(again=job)
        except RunError as error:
            self._wrong = error
            self._finish()
        except Exception as error:
            self._wrong = RunError(f"Group {job.group} needs an answer that can be read, got {error!r}.")
            self._finish()
        else:
            again = self._is_mixed(group, version)
            if not again:
                self._inbox.put((self, Done((group,))))
            self._finish(again=job if again else None)

    def _is_mixed(self, group: Group, version: int) -> bool:
        """Whether it was sent before an update and begun after it: its prompt may have been read with the keys of before."""
        return self._rollout.in_flight == "keep_cache" and any(
            len(sample.versions) and int(sample.versions[0]) != version for sample in group.samples
        )

    def _finish(self, *, again: Job | None = None, broken: str | None = None) -> None:
        with self._changed:
            self._running -= 1
            if again is not None:
                self._queue.appendleft(again)
            self._broken = self._broken or broken
            self._changed.notify_all()


class ServersBackend(SamplerPool):
    """Servers beside the learner. One that dies is started again, or awaited at its address; its groups are reported lost."""

    def __init__(
        self,
        architecture: PretrainedConfig,
        rollout: Rollout,
        *,
        stop: Sequence[int],
        hold: int,
        directory: Path,
        threads: int = 1,
        restarts: int = 3,
        start_patience: float = 900.0,
    ) -> None:
        """Logs go to `directory`; for servers at given addresses the weights too, which they must see under the same path.

        `hold`: groups per server at a time. `restarts`: deaths before the run stops, of one server without a finished group
        between, or with one group. `start_patience`: seconds until a server has to answer.
        """
        if rollout.samples > rollout.slots:
            raise ConfigError(
                f"rollout.engine {rollout.engine} needs rollout.slots of rollout.samples or more, got {rollout.slots} for "
                f"{rollout.samples}."
            )
        self._architecture, self._rollout, self._start_patience = architecture, rollout, start_patience
        self._vocabulary = int(architecture.get_text_config().vocab_size)
        self._longest = longest_of(architecture, rollout)
        self._directory = directory.resolve()
        files = FileWeights(self._directory / "weights" if rollout.servers else None)
        self._kind = _kind_of(rollout.engine)(architecture, rollout, files, stop=tuple(stop), threads=threads)
        for address in rollout.servers:
            host_and_port(address)
        self._private, self._lock = locked_folder(Path(tempfile.gettempdir()))
        self._untold = self._kind.notes
        super().__init__(
            Assignments(len(rollout.servers) or rollout.samplers, hold=hold, restarts=restarts),
            self._kind.publisher,
            end=end_servers,
        )

    @property
    def pids(self) -> list[int]:
        """Process ids of the servers that this run started, each the leader of its group."""
        return [seat.server.pid for seat in self._own_seats if seat.server is not None]

    @property
    def differences(self) -> list[float]:
        """Mean difference of log-probs of each probe, of the servers that are up."""
        return [each for seat in self._own_seats for each in seat.differences]

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Publish the weights and start the servers, without waiting for them."""
        self._directory.mkdir(parents=True, exist_ok=True)
        super().begin(weights, version)

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Servers take it over between two decode steps; where it goes from GPU to GPU, before this returns."""
        super().publish(weights, version)
        for seat in self._own_seats:
            seat.wake()
        if self._kind.is_direct:
            for seat in self._own_seats:
                seat.wait_for(version)

    def give(self, jobs: Sequence[Job]) -> None:
        """Deal whole groups, each to the server with the least to do."""
        for job in jobs:
            check_job(job, vocabulary=self._vocabulary, longest=self._longest)
        super().give(jobs)

    def arrived(self, timeout: float, stop: Callable[[], bool] = lambda: False) -> Arrived:
        """What happened since the last call; the first time, what a user should know of such servers."""
        news = super().arrived(timeout, stop)
        told, self._untold = self._untold, ()
        return replace(news, notes=told + news.notes)

    def close(self) -> None:
        """End every server that this run started, and every request."""
        super().close()
        shutil.rmtree(self._private, ignore_errors=True)
        self._lock.release()
        if self._rollout.servers:
            shutil.rmtree(self._directory / "weights", ignore_errors=True)

    @property
    def _own_seats(self) -> list[ServerSeat]:
        return cast("list[ServerSeat]", self.seats)

    def _take_seat(self, number: int, inbox: Inbox) -> None:
        server = None if self._rollout.servers else self._start(number)
        skeleton = Skeleton(self._architecture)  # one each: weights are lent to it
        client = self._kind.client(
            number, self._rollout.servers[number] if server is None else server.address, skeleton
        )
        tolerance = self._rollout.tolerance or TOLERANCES[self._rollout.precision]
        probe = Probe(skeleton, vocabulary=self._vocabulary, longest=self._longest, tolerance=tolerance)
        seat = ServerSeat(number, inbox, client, server, probe, self._rollout, patience=self._start_patience)
        self._own_seats[number : number + 1] = [seat]
        seat.start()

    def _start(self, number: int) -> StartedServer:
        folder = self._private / str(number)
        folder.mkdir(exist_ok=True)
        return self._kind.start(folder, self._directory / f"server-{number}.log")


def _kind_of(engine: str) -> Callable[..., ServerKind]:
    """The servers of an engine; only those of the one that is asked for are imported."""
    if engine == "sglang-server":
        from trimtab.train.engines.sglang.server import SglangServers

        return SglangServers
    from trimtab.train.engines.vllm.server import VllmServers

    return VllmServers


def end_servers(seats: Sequence[Seat]) -> None:
    """End servers: by asking them to, then by force."""
    own = cast("Sequence[ServerSeat]", seats)
    for seat in own:
        seat.leave()
    for seat in own:
        if seat.server is not None:
            seat.server.close()
        seat.release()
