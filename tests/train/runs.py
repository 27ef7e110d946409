"""Runs small enough for tests: seconds each, every part real."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from trimtab.config.training import Train
from trimtab.records.run import RunDirectory

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
