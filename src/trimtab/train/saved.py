"""What the loop keeps in a checkpoint beside weights and optimiser, and the check of it when it comes back.

A manifest proves that a checkpoint is as it was written, not that what was written fits this run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from trimtab.config.training import Train
from trimtab.errors import CheckpointError
from trimtab.train.buffer import Buffer
from trimtab.train.checkpoint import Saved
from trimtab.train.entries import COLUMNS
from trimtab.train.kept_heads import head_flaw
from trimtab.train.messages import NOBODY


class _Kept(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class KeptProblem(_Kept):
    """The text of a problem."""

    id: str
    prompt: str
    answer: str


class KeptJob(_Kept):
    """A job; its prompt by the number of tokens."""

    group: NonNegativeInt
    prompt: NonNegativeInt
    samples: NonNegativeInt
    seed: int
    max_tokens: NonNegativeInt


class KeptSample(_Kept):
    """A response; its arrays by the number of tokens."""

    length: NonNegativeInt
    finish: Literal["stop", "length", "error"]


class KeptScore(_Kept):
    """What a response is worth."""

    reward: float = Field(allow_inf_nan=False)
    correct: bool
    parts: dict[str, float]
    failed: str | None


class KeptEntry(_Kept):
    """A group that is neither trained nor dropped."""

    problem: KeptProblem
    job: KeptJob
    attempts: NonNegativeInt
    samples: list[KeptSample] | None
    scores: list[KeptScore]


class KeptBuffer(_Kept):
    """Counts and groups of the buffer."""

    next: NonNegativeInt
    admitted: NonNegativeInt
    trained: NonNegativeInt
    dropped: NonNegativeInt
    ignored: NonNegativeInt
    entries: list[KeptEntry]


class KeptWatch(_Kept):
    """Counts of what is watched."""

    idle_steps: NonNegativeInt
    seen: dict[str, int]
    told: list[int]


class LoopState(_Kept):
    """All of it, arrays aside."""

    version: NonNegativeInt
    skipped: dict[str, int]
    buffer: KeptBuffer
    watch: KeptWatch
    accuracies: list[float]
    seconds: float = Field(ge=0, allow_inf_nan=False)
    owed: dict[str, float] | None = None
    """Metrics of the last step where its evaluation was broken off: to be evaluated and logged when the run goes on."""
    rows: NonNegativeInt | None = None
    """Rollouts recorded up to here; None in checkpoints of before they were counted."""


def read_state(path: Path, saved: Saved, config: Train, vocabulary: int) -> tuple[LoopState, Buffer]:
    """The state and the buffer of a checkpoint, if they can be those of this run."""
    try:
        state = LoopState.model_validate(saved.state)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "state.json"
        raise _refused(path, f"{place}: {first['msg']}") from None
    flaw = _flaw(state, saved, config, vocabulary)
    if flaw is not None:
        raise _refused(path, flaw)
    return state, Buffer.restore(state.buffer.model_dump(), saved.arrays)


def _refused(path: Path, flaw: str) -> CheckpointError:
    return CheckpointError(
        f"{path} needs the state of this run, got another: {flaw}. Move it away to go on from the one before it."
    )


def _flaw(state: LoopState, saved: Saved, config: Train, vocabulary: int) -> str | None:
    """What contradicts itself, the checkpoint's step, or the settings; None if nothing does."""
    buffer, rollout = state.buffer, config.rollout
    numbers = [entry.job.group for entry in buffer.entries]
    ready = [entry for entry in buffer.entries if entry.samples is not None]
    checks = {
        f"version {state.version} in a checkpoint of step {saved.step}": state.version == saved.step,
        f"{buffer.trained} groups trained in {state.version} steps of {rollout.groups}": buffer.trained
        == state.version * rollout.groups,
        "counts of groups that do not add up": buffer.admitted == buffer.trained + buffer.dropped + len(numbers),
        "numbers of groups that do not rise": numbers == sorted(set(numbers))
        and buffer.next > max(numbers, default=-1),
        "a group without as many samples and scores as were asked for": all(
            len(entry.samples or ()) == len(entry.scores) == entry.job.samples == rollout.samples for entry in ready
        ),
    }
    wrong = next((flaw for flaw, holds in checks.items() if not holds), None)
    return wrong or _array_flaw(state, saved.arrays, vocabulary)


def _array_flaw(state: LoopState, arrays: dict[str, Any], vocabulary: int) -> str | None:
    entries = state.buffer.entries
    tokens = sum(sample.length for entry in entries for sample in entry.samples or ())
    lengths = {"prompts": sum(entry.job.prompt for entry in entries)} | dict.fromkeys(COLUMNS, tokens)
    for name, kind in ({"prompts": np.int32} | COLUMNS).items():
        array = arrays.get(name)
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.shape != (lengths[name],):
            return f"{name} in arrays.safetensors is not one row of {lengths[name]} numbers of type {kind.__name__}"
    bounds = {"prompts": (0, vocabulary), "tokens": (0, vocabulary), "versions": (NOBODY, state.version + 1)}
    for name, (first, end) in bounds.items():
        if not _within(arrays[name], first, end):
            return f"{name} in arrays.safetensors holds a number outside {first} to {end - 1}"
    return head_flaw(arrays, tokens, vocabulary)


def _within(array: NDArray[Any], first: int, end: int) -> bool:
    return not len(array) or (int(array.min()) >= first and int(array.max()) < end)
