"""Checkpoints of a model and its optimiser without a learner around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trimtab.train import checkpoint
from trimtab.train.checkpoint import Saved
from trimtab.train.learner.model_state import load_model_state, save_model_state


def save(folder: Path, step: int, *, model: Any, optimizer: Any, **rest: Any) -> Path:
    """The checkpoint of that step."""
    return checkpoint.save(folder, step, learner=lambda inner: save_model_state(inner, model, optimizer), **rest)


def load(path: Path, *, model: Any, optimizer: Any = None) -> Saved:
    """What was saved, into both."""
    return checkpoint.restore(path, learner=lambda inner: load_model_state(inner, model, optimizer))
