"""Tasks by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from trimtab.config.base import excerpt
from trimtab.config.training import Task
from trimtab.errors import ConfigError, UnknownNameError, nearest
from trimtab.train.tasks.builtin import Arithmetic, Chain, Ledger, Reverse, Sort
from trimtab.train.tasks.file import File, check_path
from trimtab.train.tasks.functions import check_function
from trimtab.train.tasks.gym import Gym, check_gym, evaluated
from trimtab.train.tasks.protocol import Source

SOURCES: dict[str, Callable[[Task, int], Source]] = {
    "chain": Chain,
    "ledger": Ledger,
    "sort": Sort,
    "reverse": Reverse,
    "arithmetic": Arithmetic,
    "gym": Gym,
    "file": File,
}

REPLYING = ("hf",)
"""Engines that let an environment reply between two turns of the policy; known here without what engines need."""
ISOLATED = frozenset({"gym"})
"""Whose own verifier may hang or end the interpreter."""


def check_task(config: Task) -> None:
    """Refuse a task, file or reward function that there is not, as far as nothing is fetched, loaded or run to know it."""
    kind = _kind(config)
    if kind == "gym":
        check_gym(config)
    if kind == "file":
        if config.path is None:
            raise ConfigError("Task needs path with name file, got nothing. Name a file or a hub dataset.")
        for path in filter(None, (config.path, config.held_out)):
            check_path(path)
    for reward in config.rewards:
        if reward.function is not None:
            check_function(reward.function)


def source(config: Task, seed: int) -> Source:
    """The source of problems a task asks for."""
    return SOURCES[_kind(config)](config, seed)


def _kind(config: Task) -> str:
    """The sort of task, if there is such a one, with what goes with it."""
    kind, _, inner = config.name.partition(":")
    if kind not in SOURCES or bool(inner) != (kind == "gym"):
        names = [f"{name}:NAME" if name == "gym" else name for name in SOURCES]
        raise UnknownNameError(f"Task has no name {excerpt(config.name)}. {nearest(config.name, names)}")
    if config.template is not None and "{prompt}" not in config.template:
        raise ConfigError(
            f"Task needs {{prompt}} in template, got {excerpt(config.template)}. It stands for the prompt."
        )
    if kind != "file" and (config.path is not None or config.held_out is not None):
        raise ConfigError(
            f"Task needs name file with path or held_out, got {excerpt(config.name)}. Drop them, or name it."
        )
    return kind


def is_at_hand(config: Task) -> bool:
    """Whether its problems are here: made on the spot, or rows of files that exist. Nothing is fetched or run for them."""
    files = [Path(each).is_file() for each in (config.path, config.held_out) if each is not None]
    return all(files) and bool(files) if config.name == "file" else config.name in SOURCES


def check_replies(engine: str, problems: Source) -> None:
    """Refuse, before anything starts, a task with turns and an engine without."""
    if engine in REPLYING:
        return
    shown = problems.all() if isinstance(problems, File) else [problems.problem(0)]  # rows of a file may differ
    if any(each.replies for each in shown):
        raise ConfigError(
            f"A task whose environment replies needs rollout.engine {', '.join(REPLYING)}, got {engine}. Set it, or take a task of "
            "one turn."
        )


def is_isolated(config: Task) -> bool:
    """Whether the task's own verifier needs a process of its own."""
    return config.name.partition(":")[0] in ISOLATED


def is_evaluated(config: Task) -> bool:
    """Whether the task's own verifier runs responses as code."""
    return is_isolated(config) and evaluated(config) is not None
