"""Which engines let an environment reply between two turns of the policy; known without what engines need."""

from __future__ import annotations

from trimtab.errors import ConfigError
from trimtab.train.tasks.file import File
from trimtab.train.tasks.protocol import Source

REPLYING = ("hf",)
"""Engines that do."""


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
