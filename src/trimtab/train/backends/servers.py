"""vLLM servers as samplers: started by the run, or running at given addresses.

give ──► a seat's queue ──no more than its slots──► POST generate ──► inbox ──► arrived
publish ──► a file that seats and servers see ──► pause, start, update, finish, resume, probe ──► the next requests

A server owns its own time, so it is a back-end and not an engine. One thread per seat decides what its server does next; while
that thread updates weights it sends no request, so none begins between two versions.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from safetensors.torch import save_file
from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.errors import ConfigError, RunError
from trimtab.train.backends.protocol import Arrived
from trimtab.train.backends.seat import Fallen, Hopeless, News, Sampled, Seat, Version
from trimtab.train.engines.probe import TOLERANCES, Probe
from trimtab.train.engines.skeleton import Skeleton
from trimtab.train.engines.vllm import limits, request
from trimtab.train.engines.vllm.client import ServerClient
from trimtab.train.engines.vllm.server import VllmServer
from trimtab.train.engines.vllm.transfer import sender_of
from trimtab.train.messages import Group, Job
from trimtab.train.weights.protocol import NamedTensors

SHARED = Path("/dev/shm")


class ServersBackend:
    """Samplers that are vLLM servers. One that dies is started again, or awaited at its address; its groups are reported lost."""

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
        """Logs go to `directory`, and for servers at given addresses the weights too: they must see it under the same path.

        `hold`: groups per server at a time. `restarts`: deaths of a server without a finished group between, or with one group,
        before the run stops. `start_patience`: seconds until a server has to answer.
        """
        if rollout.samples > rollout.slots:
            raise ConfigError(
                f"rollout.engine vllm-server needs rollout.slots of rollout.samples or more, got {rollout.slots} for {rollout.samples}."
            )
        limits.check_run(architecture, rollout)
        self._rollout, self._hold, self._restarts = rollout, hold, restarts
        self._vocabulary = int(architecture.get_text_config().vocab_size)
        self._longest = limits.longest_of(architecture, rollout)
        self._skeleton = Skeleton(architecture)
        tolerance = rollout.vllm.tolerance or TOLERANCES[rollout.precision]
        self._probe = Probe(self._skeleton, vocabulary=self._vocabulary, longest=self._longest, tolerance=tolerance)
        self._directory = directory.resolve()
        self._private = Path(tempfile.mkdtemp(prefix="trimtab-", dir=SHARED if SHARED.is_dir() else None))
        self._files = self._directory / "weights" if rollout.servers else self._private
        self._inbox: SimpleQueue[News] = SimpleQueue()
        self._losses: Counter[int] = Counter()
        self._strikes: Counter[int] = Counter()
        self._target: Version | None = None
        self._seats: list[Seat] = []
        self._begun = False
        self._stop = weakref.finalize(self, _close, self._seats, self._private, self._files, os.getpid())
        self._plan: dict[str, Any] = {
            "rollout": rollout,
            "stop": tuple(stop),
            "longest": self._longest,
            "inbox": self._inbox,
            "patience": start_patience,
        }
        self._architecture, self._threads = architecture, threads

    @property
    def pids(self) -> list[int]:
        """Process ids of the servers that this run started."""
        return [seat.server.process.pid for seat in self._seats if seat.server is not None]

    @property
    def differences(self) -> list[float]:
        """Mean difference of log-probs of each probe so far."""
        return [each for seat in self._seats for each in seat.differences]

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Publish the weights and start the servers, without waiting for them."""
        if self._begun:
            raise RunError("A back-end needs to begin once, got a second begin(). Make a new one.")
        self._begun = True
        self._directory.mkdir(parents=True, exist_ok=True)
        self._files.mkdir(parents=True, exist_ok=True)
        self._target = self._published(weights, version)
        addresses = self._rollout.servers
        for number in range(len(addresses) or self._rollout.samplers):
            client = ServerClient(addresses[number]) if addresses else None
            seat = Seat(number, client, self._target, sender_of(self._rollout), **self._plan)
            self._seats.append(seat)
            if not addresses:
                seat.server = self._started(number)
            seat.start()

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Servers take it over between two decode steps; those that get it from a GPU, before this returns."""
        target = self._target = self._published(weights, version)
        for seat in self._seats:
            seat.aim(target)
        if self._rollout.vllm.transfer != "host":
            for seat in self._seats:
                seat.wait_for(version)
        needed = {target.path, *(seat.target.path for seat in self._seats), *(seat.reading for seat in self._seats)}
        for file in self._files.glob("version-*.safetensors"):
            if file not in needed:
                file.unlink(missing_ok=True)

    def room(self) -> int:
        """Groups that servers would still hold."""
        return max(0, len(self._seats) * self._hold - sum(len(seat.held) for seat in self._seats))

    def give(self, jobs: Sequence[Job]) -> None:
        """Deal whole groups, each to the server with the least to do."""
        if not self._seats:
            raise RunError("A back-end needs begin() before work and none after close(), got no servers.")
        for job in jobs:
            request.check_job(job, vocabulary=self._vocabulary, longest=self._longest)
            min(self._seats, key=lambda seat: (seat.load, seat.number)).give(job)

    def arrived(self, timeout: float, stop: Callable[[], bool] = lambda: False) -> Arrived:
        """Finished groups; groups of dead servers, which are started again here; what to say about it."""
        groups: list[Group] = []
        lost: list[int] = []
        notes: list[str] = []
        with contextlib.suppress(Empty):
            news = self._inbox.get(timeout=max(0.0, timeout))
            while True:
                match news:
                    case Sampled(seat, group):
                        self._losses.pop(group.job.group, None)
                        self._strikes.pop(seat.number, None)
                        groups.append(group)
                    case Hopeless(error):
                        raise error
                    case Fallen():
                        lost += news.held
                        notes.append(self._replaced(news))
                news = self._inbox.get_nowait()
        return Arrived(tuple(groups), tuple(lost), tuple(notes))

    def close(self) -> None:
        """End every server that this run started, and every request."""
        self._stop()
        self._seats.clear()

    def _published(self, weights: NamedTensors, version: int) -> Version:
        """The weights where seats find them, and what they must make of the probe."""
        whole = self._skeleton.with_ties(dict(weights))
        expected = self._probe.expect(whole, version)
        if self._rollout.vllm.transfer != "host":
            return Version(version, expected, None, whole)
        path = self._files / f"version-{version}.safetensors"
        partial = path.with_suffix(".partial")
        # One tensor under two names is written twice: a file cannot say that they are the same.
        save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in whole.items()}, partial)
        os.replace(partial, path)
        return Version(version, expected, path, {})

    def _started(self, number: int) -> VllmServer:
        folder = self._private / str(number)
        folder.mkdir(exist_ok=True)
        log = self._directory / f"server-{number}.log"
        return VllmServer(self._architecture, self._rollout, folder=folder, log=log, threads=self._threads)

    def _replaced(self, fell: Fallen) -> str:
        """Put a new server in a dead one's seat; returns what to tell the user. Raises where that has no prospect."""
        seat = fell.seat
        self._losses.update(fell.held)
        self._strikes[seat.number] += 1
        cause = fell.cause
        if seat.server is not None:
            ended = seat.server.ended
            seat.server.kill()
            cause = f"{ended or 'was killed, since it did not answer'} ({cause})"
        fate = f"Server {seat.number} at {seat.client.address} {cause}."
        hopeless = [number for number in fell.held if self._losses[number] > self._restarts]
        if self._strikes[seat.number] > self._restarts or hopeless:
            got = (
                f"groups {hopeless[:5]} in hand at {self._restarts + 1} deaths" if hopeless else "none in several lives"
            )
            raise RunError(
                f"Sampling needs servers that live to finish a group, got {got}. {fate}"
                + (f" Look at {seat.server.log}, which ends:\n{seat.server.tail()}" if seat.server else "")
            )
        if seat.server is not None:
            seat.revive(self._started(seat.number))
            return f"{fate} Started again; {len(fell.held)} groups are sampled again."
        seat.revive(None)
        return f"{fate} It is awaited; {len(fell.held)} groups are sampled again."


def _close(seats: list[Seat], private: Path, files: Path, owner: int) -> None:
    if os.getpid() != owner:  # a fork of the learner that ends owns no servers
        return
    for seat in seats:
        seat.leave()
    for seat in seats:
        if seat.server is not None:
            seat.server.close()
    for seat in seats:
        seat.join(5.0)
    shutil.rmtree(private, ignore_errors=True)
    for file in files.glob("version-*.safetensors"):
        file.unlink(missing_ok=True)
