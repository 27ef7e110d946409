"""Back-ends by name, and the plainest of them: one process, everything in turn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from trimtab.config.training import Rollout, Train
from trimtab.errors import ConfigError
from trimtab.train.backends.local import LocalBackend
from trimtab.train.backends.protocol import Arrived, Backend
from trimtab.train.engines.table import Engine, EngineRecipe
from trimtab.train.messages import Group, Job
from trimtab.train.weights.protocol import NamedTensors


class Lockstep:
    """An engine in this process. A group given at version v is sampled to the end by version v: the same in every run."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, weights: NamedTensors, version: int) -> None:
        """Take over the learner's weights."""
        self.publish(weights, version)

    def publish(self, weights: NamedTensors, version: int) -> None:
        """Take over the learner's weights."""
        self._engine.load(dict(weights), version)

    def room(self) -> int:
        """All that the staleness rule admits."""
        return sys.maxsize

    def give(self, jobs: Sequence[Job]) -> None:
        """To be sampled by the next `arrived`."""
        self._engine.submit(jobs)

    def arrived(self, timeout: float, stop: Callable[[], bool] = lambda: False) -> Arrived:
        """Everything given, done, unless `stop` comes first; time has no meaning here."""
        groups: list[Group] = []
        while self._engine.pending and not stop():
            groups.extend(self._engine.step())
        return Arrived(groups=tuple(groups))

    def close(self) -> None:
        """Forget what was given."""
        self._engine.abandon()


SERVERS = {
    "vllm-server": "A server keeps its own time; rollout.engine=vllm samples in the run's own processes.",
    "sglang-server": "A server keeps its own time, and SGLang takes no seeds, so that no two runs would agree.",
}
"""Engines that are servers, and why they are no part of another back-end."""


def _refuse_servers(rollout: Rollout, backend: str) -> None:
    if rollout.engine in SERVERS:
        raise ConfigError(
            f"rollout.engine {rollout.engine} needs backend local, got {backend}. {SERVERS[rollout.engine]}"
        )


def _lockstep(config: Train, recipe: EngineRecipe, folder: Path) -> Backend:
    _refuse_servers(config.rollout, "lockstep")
    return Lockstep(recipe())


def _local(config: Train, recipe: EngineRecipe, folder: Path) -> Backend:
    rollout = config.rollout
    if rollout.engine in SERVERS:
        return _servers(config, recipe, folder)
    return LocalBackend(
        recipe,
        hold=_hold(rollout, rollout.samplers),
        samplers=rollout.samplers,
        directory=folder / "samplers",
        threads=config.threads,
    )


def _servers(config: Train, recipe: EngineRecipe, folder: Path) -> Backend:
    from trimtab.train.backends.servers import ServersBackend

    rollout = config.rollout
    return ServersBackend(
        recipe.architecture,
        rollout,
        stop=recipe.stop,
        hold=_hold(rollout, len(rollout.servers) or rollout.samplers),
        directory=folder / "samplers",
        threads=config.threads,
    )


def _ray(config: Train, recipe: EngineRecipe, folder: Path) -> Backend:
    from trimtab.train.backends.ray.backend import RayBackend
    from trimtab.train.backends.ray.cluster import check_installed

    rollout = config.rollout
    _refuse_servers(rollout, "ray")
    check_installed()
    return RayBackend(
        recipe,
        config.ray,
        hold=_hold(rollout, rollout.samplers),
        samplers=rollout.samplers,
        directory=folder / "samplers",
        threads=config.threads,
    )


def _hold(rollout: Rollout, samplers: int) -> int:
    """Groups per sampler: all that the staleness rule admits, so that freed slots find the next one."""
    under_way = (rollout.max_staleness + 1) * rollout.groups
    return max(rollout.groups, -(-under_way // samplers))


BACKENDS: dict[str, Callable[[Train, EngineRecipe, Path], Backend]] = {
    "lockstep": _lockstep,
    "local": _local,
    "ray": _ray,
}


def backend_of(config: Train, recipe: EngineRecipe, folder: Path) -> Backend:
    """The back-end a run asks for; not begun."""
    return BACKENDS[config.backend](config, recipe, folder)
