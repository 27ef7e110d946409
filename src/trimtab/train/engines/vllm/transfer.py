"""The learner's side of a server's weight update: by file, or from GPU to GPU by vLLM's own engines.

host: the server reads the file that was published. nccl, ipc: vLLM's trainer-side engine of that name drives the same four calls and
sends the tensors between them. The latter two need GPUs; they have not been run.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from torch import Tensor

from trimtab.errors import RunError
from trimtab.train.weights.files import LinkedFile
from trimtab.train.weights.protocol import NamedTensors, Snapshot, WeightsReader

if TYPE_CHECKING:
    from trimtab.train.engines.vllm.server import VllmClient


@runtime_checkable
class Sender(Protocol):
    """How one server gets its weights, from its start to its end. The server is paused around `send`."""

    @property
    def version(self) -> int:
        """The newest version there is to send."""
        ...

    def connect(self, client: VllmClient) -> None:
        """Once, when the server answers."""
        ...

    def take(self) -> Snapshot:
        """The newest weights: those that the next `send` sends, whatever is published meanwhile."""
        ...

    def send(self, client: VllmClient, ties: Mapping[str, str]) -> None:
        """Bring over what was taken; `ties` are second names of tied weights, each with the first."""
        ...

    def close(self) -> None:
        """Give back what was taken."""
        ...


class FileSender(LinkedFile):
    """The file that was published, by its path."""

    def connect(self, client: VllmClient) -> None:
        """Nothing but the server's own set-up."""
        client.init_weight_transfer_engine({})

    def send(self, client: VllmClient, ties: Mapping[str, str]) -> None:
        """By its path."""
        client.start_weight_update()
        client.update_weights({"path": str(self.path), "ties": dict(ties)})
        client.finish_weight_update()
        self.close()


class LiveWeights:
    """A publisher that hands on the learner's own tensors. Servers must have them before the learner changes them again."""

    def __init__(self) -> None:
        self._newest: Snapshot | None = None

    @property
    def version(self) -> int:
        """The version published last; −1 before the first."""
        return -1 if self._newest is None else self._newest.version

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Make these the newest weights."""
        if version <= self.version:
            raise RunError(f"Weights need a version above {self.version}, got {version}. Versions only rise.")
        self._newest = Snapshot({name: tensor.detach() for name, tensor in weights}, version)

    def newest(self) -> Snapshot:
        """Those published last."""
        if self._newest is None:
            raise RunError("Weights need to be published before they are read, got none.")
        return self._newest

    def reader(self) -> WeightsReader:
        """Both ends are in this process."""
        return self

    def close(self) -> None:
        """Let go of them."""
        self._newest = None


class DirectSender:
    """From the learner's GPU to the server's, by vLLM's engine of that name."""

    def __init__(self, weights: LiveWeights, backend: str, workers: int) -> None:
        """`workers`: GPUs over which the server is split."""
        self._weights, self._backend, self._workers = weights, backend, workers
        self._taken = Snapshot({}, -1)
        self._tensors: dict[str, Tensor] = {}
        self._engine: Any = None

    @property
    def version(self) -> int:
        """The newest version there is to send."""
        return self._weights.version

    def connect(self, client: VllmClient) -> None:
        """Meet the server's workers."""
        factory: Any = importlib.import_module("vllm.distributed.weight_transfer.factory")
        self._engine = factory.WeightTransferTrainerFactory.trainer_init(self._info(), client=client, source=self)

    def take(self) -> Snapshot:
        """The newest weights."""
        self._taken = self._weights.newest()
        return self._taken

    def send(self, client: VllmClient, ties: Mapping[str, str]) -> None:
        """All three calls are the engine's."""
        weights = self._taken.weights
        self._tensors = {**weights, **{name: weights[first] for name, first in ties.items()}}
        self._engine.send_weights()

    def close(self) -> None:
        """Leave the workers."""
        self._tensors, self._taken = {}, Snapshot({}, -1)
        if self._engine is not None:
            self._engine.shutdown()

    # What vLLM's engine reads of its `WeightSource`.

    def metadata(self) -> list[Any]:
        """Names, types and shapes, in the order of iteration."""
        base: Any = importlib.import_module("vllm.distributed.weight_transfer.base")
        return [base.ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self._tensors.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        yield from self._tensors.items()

    def _info(self) -> Any:
        module: Any = importlib.import_module(f"vllm.distributed.weight_transfer.{self._backend}_engine")
        if self._backend == "ipc":
            return module.IPCTrainerInitInfo(rank=0)
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        address = socket.gethostbyname(socket.gethostname())
        return module.NCCLTrainerInitInfo(address, port, 1 + self._workers, rank=0)
