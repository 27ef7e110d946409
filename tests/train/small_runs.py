"""Runs small enough for tests: seconds each, every part real."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from trimtab.config.training import Task, Tiny, Train
from trimtab.records.run import RunDirectory
from trimtab.train.display import Silent
from trimtab.train.policy.tiny import tiny_policy
from trimtab.train.tasks import source

SMALL: dict[str, Any] = {
    "steps": 6,
    "backend": "lockstep",
    "model": {"tiny": {"layers": 1, "width": 16, "heads": 2, "mlp": 24}, "warm_start": None},
    # One digit and a lenient verifier: some random responses are right, so that most steps change the weights.
    "task": {"options": {"size": 1}, "rewards": [{"verifier": "numeric"}]},
    "rollout": {"groups": 4, "samples": 4, "slots": 16, "max_staleness": 2},
    "correction": "token-tis",
    "learner": {"minibatches": 2, "lr": 1e-3, "patience": 50},
    "evaluate": {"every": 2, "problems": 16},
    "checkpoint": {"every": 3},
}


def small(**changes: Any) -> Train:
    """The small run, some sections changed."""
    return Train.from_settings({name: _merged(name, value) for name, value in (SMALL | changes).items()})


def _merged(name: str, value: Any) -> Any:
    base = SMALL.get(name)
    return base | value if isinstance(base, dict) and isinstance(value, dict) else value


def weights(path: Path) -> torch.Tensor:
    """The weights of a run's newest checkpoint, in one row."""
    newest = max(path.glob("checkpoints/step-*"))
    found = load_file(next(newest.glob("model/*.safetensors")))
    return torch.cat([found[name].flatten() for name in sorted(found)])


def lines(path: Path) -> list[dict[str, float]]:
    """Metrics without those that depend on the clock."""
    return [
        {name: value for name, value in line.items() if not name.startswith(("time", "throughput"))}
        for line in RunDirectory.read(path).metrics()
    ]


class StopAt(Silent):
    """Asks to stop, as Ctrl-C does, after a step."""

    def __init__(self, step: int) -> None:
        self.at = step

    def step(self, step: int, metrics: dict[str, float]) -> None:
        if step == self.at:
            os.kill(os.getpid(), signal.SIGINT)


def same(one: Path, other: Path) -> bool:
    return torch.equal(weights(one), weights(other)) and repr(lines(one)) == repr(lines(other))


def saved_model(folder: Path, spoil: str, value: float) -> None:
    """A tiny policy with one weight changed."""
    own = source(Task(), 0)
    policy = tiny_policy(Tiny(layers=1, width=16, heads=2, mlp=24), str(own.characters), 128, 0)
    with torch.no_grad():
        policy.model.get_parameter(spoil).fill_(value)
    policy.model.save_pretrained(folder)
    policy.policy.tokenizer.save_pretrained(folder)


class Notes(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, message: str) -> None:
        self.said.append(message)
