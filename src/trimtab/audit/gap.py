"""The gap of a saved batch: its trained tokens with both log-probs, flat, and what is known of each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import InputError
from trimtab.records.saved import SavedBatch

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

FARTHEST = 10.0
"""|ℓ| counted in a gap, at most: one log-prob of −100 should not own the batch."""
FLOOR = 1e-4
"""Root mean square of ℓ under which two policies agree: float32 gives 1e-7 to 1e-5, fp16 5e-4 and more."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Gap:
    """Trained tokens with both log-probs, in the order of the batch; a cause that was found has left it."""

    target: str
    """What behavior is compared with: proximal, or current where there is no proximal."""
    behavior: Floats
    scored: Floats
    """The target's log-probs."""
    log_r: Floats
    """Scored less behavior, less what causes further up explain."""
    sequence: Ints
    place: Ints
    """Position among the trained tokens of its sequence."""
    at: Ints
    """Index in the batch."""
    first: Bools
    """Whether it begins a turn: the token before it is not trained."""
    last: Bools
    tokens: Ints | None
    before: Ints | None
    """The token before it; −1 where it is the first of its sequence."""
    context: Ints | None
    """Number of all that stands before it, the prompt first; −1 where no other sequence begins so."""
    age: Ints | None
    """Learner's version less the token's; −1 where it is not known."""
    step: Ints | None
    source: Ints | None
    """Number of its engine in `sources`."""
    sources: tuple[str, ...]
    second: Floats | None
    """The trainer's second scoring."""
    entropy: Floats | None
    """Of the target's distribution at the token."""
    missing: int
    """Trained tokens that lack one of the two."""
    blurred: bool = False
    """Whether a cause was found whose effect could only be taken off in part."""

    def __len__(self) -> int:
        return len(self.log_r)

    @cached_property
    def held(self) -> Floats:
        """ℓ within ±`FARTHEST`."""
        return np.clip(self.log_r, -FARTHEST, FARTHEST)

    @cached_property
    def k2(self) -> Floats:
        """ℓ²/2: independent causes add up in it."""
        return self.held**2 / 2

    @property
    def size(self) -> float:
        """Mean k2."""
        return float(self.k2.mean()) if len(self) else 0.0

    @property
    def rms(self) -> float:
        """Root mean square of ℓ."""
        return float(np.sqrt(2 * self.size))

    @cached_property
    def k3(self) -> float:
        """Mean of r − 1 − ℓ."""
        return float((np.expm1(self.held) - self.held).mean()) if len(self) else 0.0

    @property
    def is_open(self) -> bool:
        """Whether there is a gap to explain."""
        return len(self) > 0 and self.rms > FLOOR

    @cached_property
    def evened(self) -> Floats:
        """ℓ over its own root mean square among tokens of like probability: rare tokens are always further apart."""
        edges = np.unique(np.quantile(self.behavior, np.linspace(0, 1, 21)[1:-1])) if len(self) else np.empty(0)
        bucket = np.searchsorted(edges, self.behavior)
        count = np.bincount(bucket, minlength=len(edges) + 1)
        scale = np.sqrt(np.bincount(bucket, self.held**2, len(edges) + 1) / np.maximum(count, 1))
        return self.held / np.maximum(scale, FLOOR)[bucket]

    def where(self, chosen: Bools) -> Gap:
        """The tokens for which `chosen` holds."""
        return replace(self, **{name: values[chosen] for name, values in self.per_token.items()})

    @property
    def per_token(self) -> dict[str, Any]:
        """The columns that there are."""
        names = (
            *("behavior", "scored", "log_r", "sequence", "place", "at", "first", "last"),
            *("tokens", "before", "context", "age", "step", "source", "second", "entropy"),
        )
        return {name: values for name in names if (values := getattr(self, name)) is not None}


def gap_of(batch: SavedBatch, second: NDArray[Any] | None = None) -> Gap:
    """The gap between behavior and proximal, or current where there is no proximal."""
    target = next((name for name in ("proximal", "current") if getattr(batch, name) is not None), None)
    if batch.behavior is None or target is None:
        side, column = ("sampler", "behavior") if batch.behavior is None else ("trainer", "proximal")
        remedy = batch.origin.absent.get(column, "--model, or --columns where another column holds them")
        raise InputError(
            f"An audit needs log-probs of both sides, got none of the {side} ({column}). What brings them: {remedy}."
        )
    behavior, scored = batch.behavior.astype(np.float64), np.asarray(getattr(batch, target), np.float64)
    used = batch.trained & np.isfinite(behavior) & np.isfinite(scored)
    at = np.flatnonzero(used)
    sequence = batch.sequence
    first, last = _edges(batch.trained, sequence)
    names, source = _numbers(batch.source)
    return Gap(
        target=target,
        behavior=behavior[at],
        scored=scored[at],
        log_r=scored[at] - behavior[at],
        sequence=sequence[at],
        place=_places(batch.trained, batch.offsets)[at],
        at=at,
        first=first[at],
        last=last[at],
        tokens=None if batch.tokens is None else batch.tokens[at],
        before=None if batch.tokens is None else _before(batch.tokens, batch.offsets)[at],
        context=None if batch.tokens is None else _contexts(batch)[at],
        age=_ages(batch, at, sequence[at]),
        step=None if batch.step is None else batch.step[sequence[at]],
        source=None if source is None else source[sequence[at]],
        sources=names,
        second=None if second is None else np.asarray(second, np.float64)[at],
        entropy=None if batch.entropy is None else batch.entropy[at].astype(np.float64),
        missing=int(batch.trained.sum() - len(at)),
    )


def _contexts(batch: SavedBatch) -> Ints:
    """What stands before each token, as a number that sequences share which begin alike at one step; −1 where none does.

    Two answers to one prompt, 11 12 | 21 22 and 11 12 | 21 23: tokens 21 and 21 have one context, 22 and 23 another.
    """
    assert batch.tokens is not None
    found = np.full(len(batch.tokens), -1, np.int64)
    key, place = _beginnings(batch)
    ends = batch.offsets[1:]
    alive = np.flatnonzero(place > batch.offsets[:-1])  # without its prompt, a beginning says nothing
    many = 0
    while len(alive):
        _, number, count = np.unique(key[alive], return_inverse=True, return_counts=True)
        shared = count[number] > 1
        alive, number = alive[shared], number[shared]
        found[place[alive]] = many + number
        many += len(count)
        _, tokens = np.unique(batch.tokens[place[alive]], return_inverse=True)
        key[alive] = number * (len(batch) + 1) + tokens
        place[alive] += 1
        alive = alive[place[alive] < ends[alive]]
    return found


def _beginnings(batch: SavedBatch) -> tuple[Ints, Ints]:
    """A number for the prompt and step of each sequence, and the place of its first trained token; its own first where it has none."""
    assert batch.tokens is not None
    known: dict[tuple[int, bytes], int] = {}
    keys, places = np.zeros(len(batch), np.int64), batch.offsets[:-1].copy()
    for index, (start, end) in enumerate(pairwise(batch.offsets.tolist())):
        trained = batch.trained[start:end]
        first = int(trained.argmax()) if trained.any() else 0
        step = -1 if batch.step is None else int(batch.step[index])
        keys[index] = known.setdefault((step, batch.tokens[start : start + first].tobytes()), len(known))
        places[index] += first
    return keys, places


def _before(tokens: Ints, offsets: Ints) -> Ints:
    found = np.concatenate([[-1], tokens[:-1]])
    found[offsets[:-1][offsets[:-1] < len(tokens)]] = -1
    return found[: len(tokens)]


def _edges(trained: Bools, sequence: Ints) -> tuple[Bools, Bools]:
    """Where runs of trained tokens begin and end within their sequence."""
    same = np.concatenate([[False], (sequence[1:] == sequence[:-1]) & trained[1:] & trained[:-1]])[: len(trained)]
    return trained & ~same, trained & ~np.concatenate([same[1:], [False]])[: len(trained)]


def _places(trained: Bools, offsets: Ints) -> Ints:
    total = np.concatenate([[0], np.cumsum(trained)])
    return total[:-1] - np.repeat(total[offsets[:-1]], np.diff(offsets))


def _numbers(names: tuple[str, ...] | None) -> tuple[tuple[str, ...], Ints | None]:
    if names is None:
        return (), None
    known = sorted(set(names))
    numbers = {name: place for place, name in enumerate(known)}
    return tuple(known), np.array([numbers[name] for name in names], np.int64)


def _ages(batch: SavedBatch, at: Ints, sequence: Ints) -> Ints | None:
    learner = batch.learner_version if batch.learner_version is not None else batch.step
    if batch.versions is None or learner is None:
        return None
    sampled, now = batch.versions[at], learner[sequence]
    return np.where((sampled >= 0) & (now >= sampled), now - sampled, -1)
