"""What a run begins with: its policy, and how long a response may be."""

from __future__ import annotations

import torch

from trimtab.config.training import Train
from trimtab.errors import ConfigError
from trimtab.train.display import Display
from trimtab.train.evaluate import seed_of
from trimtab.train.policy.pretrained import Pretrained, load_pretrained
from trimtab.train.policy.warm_start import warm_policy
from trimtab.train.tasks import Source


def longest(config: Train, task: Source) -> int:
    """The longest response allowed."""
    found = config.rollout.max_tokens or task.max_tokens
    if found is None:
        raise ConfigError("rollout needs max_tokens, got none. The task does not say how long a response may be.")
    return found


def pretrained_of(config: Train, task: Source, max_tokens: int, display: Display) -> Pretrained:
    """The policy the run begins with."""
    if config.model.path is not None:
        torch.manual_seed(seed_of(config.seed, "weights"))  # for random weights
        return load_pretrained(config.model)
    if task.characters is None:
        raise ConfigError(
            f"Task {config.task.name!r} needs a model that reads any text, got none. Name one with model.path=FOLDER."
        )
    return warm_policy(
        config.model.tiny,
        config.model.warm_start,
        config.task,
        task,
        seed=config.seed,
        max_tokens=max_tokens,
        progress=display.warm_start,
    )
