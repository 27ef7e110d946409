"""vLLM servers as samplers: started by the run, or running at given addresses.

A server keeps its own time, so it is a seat and not an engine: jobs go to it as requests, weights as a file that it reads.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.errors import ConfigError
from trimtab.train.backends.fleet import Fleet
from trimtab.train.backends.pool import SamplerPool
from trimtab.train.backends.seat import Inbox, Seat
from trimtab.train.backends.server_seat import ServerSeat
from trimtab.train.engines.probe import TOLERANCES, Probe
from trimtab.train.engines.skeleton import Skeleton
from trimtab.train.engines.vllm import limits, request
from trimtab.train.engines.vllm.client import ServerClient
from trimtab.train.engines.vllm.server import VllmServer
from trimtab.train.engines.vllm.transfer import DirectSender, FileSender, LiveWeights, Sender
from trimtab.train.messages import Job
from trimtab.train.weights.files import FileWeights
from trimtab.train.weights.protocol import NamedTensors


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
        limits.check_run(architecture, rollout)
        if rollout.samples > rollout.slots:
            raise ConfigError(
                f"rollout.engine vllm-server needs rollout.slots of rollout.samples or more, got {rollout.slots} for {rollout.samples}."
            )
        self._clients = [ServerClient(address) for address in rollout.servers]
        self._architecture, self._rollout = architecture, rollout
        self._stop, self._threads, self._start_patience = tuple(stop), threads, start_patience
        self._vocabulary = int(architecture.get_text_config().vocab_size)
        self._longest = limits.longest_of(architecture, rollout)
        self._directory = directory.resolve()
        self._private = tempfile.TemporaryDirectory(prefix="trimtab-")
        self._files = FileWeights(self._directory / "weights" if rollout.servers else None)
        self._live = LiveWeights()
        super().__init__(
            Fleet(len(rollout.servers) or rollout.samplers, hold=hold, restarts=restarts),
            self._files if rollout.vllm.transfer == "host" else self._live,
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
        if self._rollout.vllm.transfer != "host":
            for seat in self._own_seats:
                seat.wait_for(version)

    def give(self, jobs: Sequence[Job]) -> None:
        """Deal whole groups, each to the server with the least to do."""
        for job in jobs:
            request.check_job(job, vocabulary=self._vocabulary, longest=self._longest)
        super().give(jobs)

    def close(self) -> None:
        """End every server that this run started, and every request."""
        super().close()
        self._private.cleanup()
        if self._rollout.servers:
            shutil.rmtree(self._directory / "weights", ignore_errors=True)

    @property
    def _own_seats(self) -> list[ServerSeat]:
        return cast("list[ServerSeat]", self.seats)

    def _take_seat(self, number: int, inbox: Inbox) -> None:
        server = None if self._clients else self._start(number)
        client = self._clients[number] if server is None else ServerClient(server.address)
        skeleton = Skeleton(self._architecture)  # one each: weights are lent to it
        tolerance = self._rollout.vllm.tolerance or TOLERANCES[self._rollout.precision]
        probe = Probe(skeleton, vocabulary=self._vocabulary, longest=self._longest, tolerance=tolerance)
        seat = ServerSeat(
            number,
            inbox,
            client,
            server,
            self._sender(number),
            skeleton,
            probe,
            self._rollout,
            stop=self._stop,
            longest=self._longest,
            patience=self._start_patience,
        )
        self._own_seats[number : number + 1] = [seat]
        seat.start()

    def _start(self, number: int) -> VllmServer:
        folder = Path(self._private.name) / str(number)
        folder.mkdir(exist_ok=True)
        log = self._directory / f"server-{number}.log"
        return VllmServer(self._architecture, self._rollout, folder=folder, log=log, threads=self._threads)

    def _sender(self, number: int) -> Sender:
        settings = self._rollout.vllm
        if settings.transfer == "host":
            published = self._files.path
            return FileSender(published, published.with_name(f"server-{number}.safetensors"))
        return DirectSender(self._live, settings.transfer, settings.tensor_parallel)


def end_servers(seats: Sequence[Seat]) -> None:
    """End servers: by asking them to, then by force."""
    own = cast("Sequence[ServerSeat]", seats)
    for seat in own:
        seat.leave()
    for seat in own:
        if seat.server is not None:
            seat.server.close()
        seat.release()
