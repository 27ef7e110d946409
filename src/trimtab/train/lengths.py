"""Prompts that leave no room for a response: found among a file's rows before the run starts, and among held-out problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from transformers import PretrainedConfig

from trimtab.config.training import Rollout, Task
from trimtab.errors import ConfigError
from trimtab.train.engines.jobs import longest_of
from trimtab.train.messages import Problem
from trimtab.train.policy.policy import Policy, positions_of
from trimtab.train.tasks import Source
from trimtab.train.tasks.file import File

NAMED = 5
"""How many rows are named."""
CHUNK = 1000


def prompt_limit(architecture: PretrainedConfig, rollout: Rollout) -> int | None:
    """Tokens that a prompt has to stay below with this model and engine; None where nothing sets a limit."""
    if rollout.engine == "hf":
        return positions_of(architecture)
    return longest_of(architecture, rollout)


def leave_out_long_rows(task: Task, source: Source, policy: Policy, limit: int | None, evaluated: int) -> list[str]:
    """Refuse a file with prompts that are too long, or leave those rows out, as `task.options.too_long` says; what to tell of it.

    `evaluated`: how many held-out rows the run will ask for.
    """
    if limit is None or not isinstance(source, File):
        return []
    used = [*source.trained, *source.held_out(evaluated)]
    long = {problem.id: tokens for problem, tokens in _lengths(task, policy, used, limit) if tokens >= limit}
    if not long:
        return []
    rows = ", ".join(f"{place} ({tokens} tokens)" for place, tokens in list(long.items())[:NAMED])
    more = f" and {len(long) - NAMED} more" if len(long) > NAMED else ""
    if source.too_long == "refuse":
        raise ConfigError(
            f"Task needs prompts shorter than the {limit} tokens that the model has room for, got {rows}{more}. Shorten them, or set "
            "task.options.too_long=skip to leave such rows out."
        )
    source.leave_out(long)
    return [
        f"{len(long)} of {len(used)} rows are left out, their prompts do not fit into {limit} tokens: {rows}{more}."
    ]


def short_enough(task: Task, policy: Policy, problems: Sequence[Problem], limit: int | None) -> list[Problem]:
    """Those problems whose prompts leave room for a response."""
    if limit is None:
        return list(problems)
    long = {problem.id for problem, tokens in _lengths(task, policy, problems, limit) if tokens >= limit}
    return [problem for problem in problems if problem.id not in long]


def _lengths(task: Task, policy: Policy, problems: Sequence[Problem], limit: int) -> Iterator[tuple[Problem, int]]:
    """The tokens of each prompt that may reach the limit: no tokenizer makes more of a text than it has bytes, and most texts are short."""
    if not problems:
        return
    around = len(policy.prompt(task, replace(problems[0], prompt="x")))  # start token, chat template, system message
    doubtful = [problem for problem in problems if len(problem.prompt.encode()) + around >= limit]
    for start in range(0, len(doubtful), CHUNK):
        part = doubtful[start : start + CHUNK]
        for problem, prompt in zip(part, policy.prompts(task, part), strict=True):
            yield problem, len(prompt)
