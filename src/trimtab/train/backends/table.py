"""Back-ends by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trimtab.config.training import Train
from trimtab.train.backends.lockstep import Lockstep
from trimtab.train.backends.process import LocalBackend
from trimtab.train.backends.protocol import Backend
from trimtab.train.engines.table import EngineRecipe


def _lockstep(config: Train, recipe: EngineRecipe, folder: Path) -> Backend:
    return Lockstep(recipe())


def _local(config: Train, recipe: EngineRecipe, folder: Path) -> Backend:
    rollout = config.rollout
    under_way = (rollout.max_staleness + 1) * rollout.groups
    return LocalBackend(
        recipe,
        # all the rule admits: freed slots find the next group
        hold=max(rollout.groups, -(-under_way // rollout.samplers)),
        samplers=rollout.samplers,
        directory=folder / "samplers",
        threads=config.threads,
    )


BACKENDS: dict[str, Callable[[Train, EngineRecipe, Path], Backend]] = {"lockstep": _lockstep, "local": _local}


def backend_of(config: Train, recipe: EngineRecipe, folder: Path) -> Backend:
    """The back-end a run asks for; not begun."""
    return BACKENDS[config.backend](config, recipe, folder)
