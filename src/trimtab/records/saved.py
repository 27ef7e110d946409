"""A batch that a training run has saved, whichever framework wrote it: what an audit reads.

Sequences lie end to end, prompt and response together. A column per token has one value for each of them; a column per
sequence has one for each sequence:

    offsets   0           4        7
    tokens    p  p  a  b  p  c  d        p: prompt
    trained   .  .  T  T  .  T  .        d: what a tool answered
    behavior  ?  ?  -1 -2 ?  -3 ?        ?: NaN, nobody said
    reward    1.0         0.0

Index t of a log-prob is that of token t itself, given all before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import InputError

PER_TOKEN = ("tokens", "trained", "behavior", "proximal", "current", "reference", "advantage", "versions")
PER_SEQUENCE = ("group", "reward", "step", "learner_version", "finish", "source", "text")
LOG_PROBS = ("behavior", "proximal", "current", "reference")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """Where a saved batch comes from."""

    framework: str
    """Its name, as `dialects` has it; `trimtab` for a run of ours, `columns` where the user named the columns."""
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()
    """What the reader took for missing, dropped or could not read, a sentence each."""
    absent: dict[str, str] = field(default_factory=dict[str, str])
    """Columns that the file cannot have, each with the option or recorder that brings them."""


@dataclass(frozen=True, eq=False, kw_only=True)
class SavedBatch:
    """Sequences with what is known of them; a column is None where the file has none of it."""

    origin: Origin
    offsets: NDArray[np.int64]
    """Sequence i is `offsets[i]:offsets[i + 1]`."""
    trained: NDArray[np.bool_]
    """Whether the loss acted on a token."""
    tokens: NDArray[np.int64] | None = None
    behavior: NDArray[np.float32] | None = None
    """Log-probs by the policy that sampled, NaN where there is none; likewise the next three."""
    proximal: NDArray[np.float32] | None = None
    current: NDArray[np.float32] | None = None
    reference: NDArray[np.float32] | None = None
    advantage: NDArray[np.float32] | None = None
    versions: NDArray[np.int64] | None = None
    """Version of the weights that sampled a token, -1 where it is not known."""
    group: NDArray[np.int64] | None = None
    """Sequences of one prompt have one number."""
    reward: NDArray[np.float64] | None = None
    step: NDArray[np.int64] | None = None
    """The step that trained on it."""
    learner_version: NDArray[np.int64] | None = None
    """Version of the learner's weights at the start of that step."""
    finish: tuple[str, ...] | None = None
    """Why it ended: `stop`, `length`, or the writer's own word."""
    source: tuple[str, ...] | None = None
    """The engine, rank or shard that made it."""
    text: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        tokens, sequences = int(self.offsets[-1]), len(self.offsets) - 1
        for names, count in ((PER_TOKEN, tokens), (PER_SEQUENCE, sequences)):
            for name in names:
                column = getattr(self, name)
                if column is not None and len(column) != count:
                    raise InputError(f"SavedBatch needs {name} with {count} values, got {len(column)}.")

    def __len__(self) -> int:
        """How many sequences."""
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of each sequence."""
        return np.diff(self.offsets)

    @property
    def sequence(self) -> NDArray[np.int64]:
        """The sequence that each token belongs to."""
        return np.repeat(np.arange(len(self)), self.lengths)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it has."""
        present = {each.name for each in fields(self) if getattr(self, each.name) is not None}
        return tuple(name for name in (*PER_TOKEN, *PER_SEQUENCE) if name in present)


def part_of(batch: SavedBatch, sequences: NDArray[np.int64]) -> SavedBatch:
    """Some sequences of a batch, in the order asked for."""
    spans = [np.arange(batch.offsets[each], batch.offsets[each + 1]) for each in sequences.tolist()]
    tokens = np.concatenate(spans) if spans else np.empty(0, np.int64)
    chosen: dict[str, Any] = {}
    for names, index in ((PER_TOKEN, tokens), (PER_SEQUENCE, sequences)):
        for name in names:
            column = getattr(batch, name)
            if isinstance(column, tuple):
                chosen[name] = tuple(column[each] for each in index.tolist())  # pyright: ignore[reportUnknownVariableType]
            elif column is not None:
                chosen[name] = column[index]
    offsets = np.concatenate([[0], np.cumsum([len(span) for span in spans])]).astype(np.int64)
    return SavedBatch(origin=batch.origin, offsets=offsets, **chosen)
