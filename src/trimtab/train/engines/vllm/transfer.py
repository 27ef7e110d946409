"""The learner's side of a weight update of a server: by file, or from GPU to GPU by vLLM's own engines.

host: the server reads a file. nccl, ipc: vLLM's trainer-side engine of that name drives the same four calls and sends the tensors
between them. The latter two need GPUs; they have not been run.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from trimtab.config.training import Rollout
from trimtab.train.engines.vllm.client import ServerClient


@runtime_checkable
class Sender(Protocol):
    """How one server gets its weights. The server is paused around `send`."""

    def connect(self, client: ServerClient) -> None:
        """Once per life of a server."""
        ...

    def send(self, client: ServerClient, path: Path | None, tensors: Mapping[str, Tensor]) -> None:
        """Bring a version over."""
        ...


def sender_of(rollout: Rollout) -> Sender:
    """The one that a run asks for."""
    return (
        FileSender()
        if rollout.vllm.transfer == "host"
        else DirectSender(rollout.vllm.transfer, rollout.vllm.tensor_parallel)
    )


class FileSender:
    """A safetensors file that the server reads."""

    def connect(self, client: ServerClient) -> None:
        """Nothing but the server's own set-up."""
        client.init_weight_transfer_engine({})

    def send(self, client: ServerClient, path: Path | None, tensors: Mapping[str, Tensor]) -> None:
        """By its path."""
        client.start_weight_update()
        client.update_weights({"path": str(path)})
        client.finish_weight_update()


class TensorSource:
    """vLLM's `WeightSource`: the tensors of the version to be sent, which changes from one update to the next."""

    def __init__(self) -> None:
        self.tensors: Mapping[str, Tensor] = {}

    def metadata(self) -> list[Any]:
        """Names, types and shapes, in the order of iteration."""
        base: Any = importlib.import_module("vllm.distributed.weight_transfer.base")
        return [base.ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in self.tensors.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        yield from self.tensors.items()


class DirectSender:
    """From the learner's GPU to the server's, by vLLM's engine of that name."""

    def __init__(self, backend: str, workers: int) -> None:
        self._backend, self._workers = backend, workers
        self._source = TensorSource()
        self._engine: Any = None

    def connect(self, client: ServerClient) -> None:
        """Meet the server's workers."""
        factory: Any = importlib.import_module("vllm.distributed.weight_transfer.factory")
        self._engine = factory.WeightTransferTrainerFactory.trainer_init(
            self._info(), client=client, source=self._source
        )

    def send(self, client: ServerClient, path: Path | None, tensors: Mapping[str, Tensor]) -> None:
        """All three calls are the engine's."""
        self._source.tensors = tensors
        self._engine.send_weights()

    def _info(self) -> Any:
        module: Any = importlib.import_module(f"vllm.distributed.weight_transfer.{self._backend}_engine")
        if self._backend == "ipc":
            return module.IPCTrainerInitInfo(rank=0)
        with socket.socket() as free:
            free.bind(("", 0))
            port = free.getsockname()[1]
        return module.NCCLTrainerInitInfo(
            master_address=socket.gethostbyname(socket.gethostname()),
            master_port=port,
            world_size=1 + self._workers,
            rank=0,
        )
