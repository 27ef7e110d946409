"""An engine without a model, for tests of what surrounds it: it says what it does in files, and fails as it is told."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from trimtab.train.messages import Group, Job, Sample


class Weight(nn.Module):
    """A model of one number, which the tests set to the version."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(1))

    def becomes(self, version: int) -> None:
        with torch.no_grad():
            self.value.fill_(version)


def named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Its weights, to be published."""
    return iter(model.state_dict().items())


@dataclass
class Scripted:
    """Samples the number its weights hold, a token per step. While `folder/hold` exists, steps make none;
    while `folder/spare N` does, none for group N."""

    folder: Path
    faults: Mapping[int, str] = field(default_factory=dict)
    """By group: raise; orphan: end and leave a child; hang: once only."""
    version: int = -1

    def __post_init__(self) -> None:
        self.value = -1
        self.jobs: dict[int, tuple[Job, list[int], list[int]]] = {}
        if self.faults.get(-1) == "build":
            raise ValueError("no such model")

    @property
    def pending(self) -> int:
        return len(self.jobs)

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        self.value, self.version = int(weights["value"]), version

    def submit(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self.jobs[job.group] = job, [], []
        names = "-".join(str(job.group) for job in jobs)
        (self.folder / f"order {names} of {os.getpid()}").touch()

    def step(self) -> list[Group]:
        if (self.folder / "hold").exists():
            time.sleep(0.002)
            return []
        return [group for number in list(self.jobs) for group in self._advanced(number)]

    def _advanced(self, number: int) -> list[Group]:
        if (self.folder / f"spare {number}").exists():
            return []
        self._fail(number)
        job, tokens, versions = self.jobs[number]
        tokens.append(self.value)
        versions.append(self.version)
        if len(tokens) < job.max_tokens:
            return []
        del self.jobs[number]
        floats = np.full(len(tokens), job.seed, np.float32)
        sample = Sample(np.array(tokens, np.int32), floats, floats, np.array(versions, np.int32), "stop")
        return [Group(job, (sample,) * job.samples)]

    def _fail(self, number: int) -> None:
        match self.faults.get(number):
            case "raise":
                raise ValueError(f"cannot sample group {number}")
            case "orphan":
                if os.fork() == 0:  # keeps the sampler's pipe open
                    for _ in range(600):
                        if not (self.folder / "orphan").exists():
                            break
                        time.sleep(0.05)
                os._exit(3)
            case "hang" if not (self.folder / f"hung {number}").exists():
                (self.folder / f"hung {number}").touch()
                time.sleep(3600)
            case _:
                pass

    def abandon(self) -> None:
        self.jobs.clear()


@dataclass(frozen=True)
class Factory:
    """Builds it in the sampler's process."""

    folder: Path
    faults: Mapping[int, str] = field(default_factory=dict)

    def __call__(self) -> Scripted:
        return Scripted(self.folder, self.faults)
