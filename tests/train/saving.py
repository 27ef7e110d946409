"""Checkpoints of a model and its optimiser without a learner around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.train import checkpoint
from trimtab.train.checkpoint import Saved
from trimtab.train.learner.state import ModelState, _put_weights, _saved_weights


def save(folder: Path, step: int, *, model: Any, optimizer: Any, **rest: Any) -> Path:
    """The checkpoint of that step."""
    return checkpoint.save(
        folder, step, learner=lambda inner: ModelState.of(model, optimizer).save(inner, model), **rest
    )


def load(path: Path, *, model: Any, optimizer: Any = None) -> Saved:
    """What was saved, into both."""

    def taken(inner: Path) -> None:
        if optimizer is None:
            _put_weights(model, _saved_weights(inner / "model", model))
        else:
            ModelState.read(inner, model, optimizer).put(model, optimizer)

    return checkpoint.restore(path, learner=taken)
