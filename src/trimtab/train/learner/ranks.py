"""The processes that train together, each a rank: what they say to one another, and what is summed over them.

Every rank holds the whole batch and decides the same; only forward and backward passes are shared out. So what crosses here is
little: orders from rank 0, log-probs that each worked out for its own rows, and gradients, which DDP or FSDP carry themselves.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, distribute_tensor

from trimtab.config.training import LearnerSettings
from trimtab.errors import RunError
from trimtab.train.devices import device_of

Shard = Literal["none", "ddp", "fsdp"]
MEETING = timedelta(minutes=10)
"""How long ranks wait for one another to start, and in a collective."""
BETWEEN_ORDERS = timedelta(days=365)
"""Samplers may be slow: a rank waits for its next order as long as rank 0 lives."""
_LOST = ("gloo", "NCCL", "ProcessGroup", "Connection closed by peer", "Connection reset", "Broken pipe")


class RankLostError(RunError):
    """A rank that trains with this one does not answer any more."""


@dataclass(frozen=True, eq=False)
class RankOrder:
    """What rank 0 asks of the others."""

    kind: Literal["learn", "weights", "gather", "take", "end"]
    version: int = 0
    rows: Any = None
    """The batch to learn from."""


class LearnerRanks:
    """This process among those that train together; a process on its own is rank 0 of 1 and says nothing to anybody."""

    def __init__(self, device: torch.device) -> None:
        """One process alone on a device; `joined` is one of several."""
        self.device = device
        self.shard: Shard = "none"
        self.rank, self.size, self.log = 0, 1, ""
        self.mesh: DeviceMesh | None = None
        self._orders: dist.ProcessGroup | None = None

    @classmethod
    def joined(cls, log: str = "") -> LearnerRanks:
        """This process in the process group that was made, not yet placed. `log` says where the others write, should one be gone."""
        found = cls(torch.device("cpu"))
        found.rank, found.size, found.log = dist.get_rank(), dist.get_world_size(), log
        found._orders = cast("dist.ProcessGroup", dist.new_group(backend="gloo", timeout=BETWEEN_ORDERS))
        return found

    def place(self, settings: LearnerSettings) -> None:
        """Settle on a device and on how the work is shared; on all ranks alike."""
        self.device = device_of(settings.device, place=local_place(self.rank))
        self.shard = settings.shard if self.size > 1 else "none"
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)
        if self.size > 1:
            self.mesh = init_device_mesh(self.device.type, (self.size,))

    def tell(self, value: object = None) -> Any:
        """What rank 0 passes, on every rank; the others wait for it, however long that takes."""
        heard: list[Any] = [value]
        if self.size > 1:
            dist.broadcast_object_list(heard, 0, group=self._orders)
        return heard[0]

    def sum(self, tensor: Tensor) -> Tensor:
        """Added up over the ranks, in place."""
        if self.size > 1:
            dist.all_reduce(tensor)
        return tensor

    def join(self, values: list[Any]) -> list[Any]:
        """The values of all ranks, one rank after the other."""
        if self.size == 1:
            return values
        found: list[list[Any]] = [[] for _ in range(self.size)]
        dist.all_gather_object(found, values, group=self._orders)
        return [each for part in found for each in part]

    def share(self, tensor: Tensor | None, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """A tensor that rank 0 has and all others get, on the host."""
        whole = torch.empty(shape, dtype=dtype) if tensor is None else tensor.detach().cpu().contiguous()
        if self.size > 1:
            raw = whole.reshape(-1).view(torch.uint8)  # any number type, also those that gloo does not know
            dist.broadcast(raw, 0, group=self._orders)
        return whole

    @contextmanager
    def watched(self) -> Generator[None]:
        """What fails inside because another rank is gone is said in one sentence."""
        try:
            yield
        except RuntimeError as error:
            lost = isinstance(error, dist.DistError) or any(sign in str(error) for sign in _LOST)
            if self.size == 1 or isinstance(error, RunError) or not lost:
                raise
            raise RankLostError(
                f"The learner needs all of its {self.size} ranks, got no answer from one: it died or was killed. "
                f"{self.log or 'Its own output says why'}; the run can be resumed from its last checkpoint."
            ) from error


def local_place(rank: int) -> int:
    """This rank's number among those of its machine: torchrun says it; without it all are on one."""
    return int(os.environ.get("LOCAL_RANK", rank))


def whole_tensor(tensor: Tensor) -> Tensor:
    """The tensor itself, or all of one that is sharded, which all ranks have to ask for together."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def is_sharded(tensor: Tensor) -> bool:
    """Whether other ranks have parts of it."""
    return isinstance(tensor, DTensor)


def put_whole(target: Tensor, source: Tensor) -> None:
    """Copy a whole tensor, which every rank has, into one that may be sharded: each rank takes its own part."""
    target.copy_(as_part(source, target))


def as_part(source: Tensor, like: Tensor) -> Tensor:
    """A whole tensor as another one lies: on its device, and sharded if it is."""
    if not isinstance(like, DTensor):
        return source.to(like.device)
    mesh = like.device_mesh
    there = source.to(mesh.device_type)
    return distribute_tensor(there, mesh, like.placements, src_data_rank=None)
