"""What moves between the parts of a run: problems, jobs, samples, groups. Plain values that cross process borders."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Problem:
    """A prompt and what a verifier needs to judge an answer to it."""

    id: str
    """The same problem has the same id in every run."""
    prompt: str
    answer: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields, handed to the user's reward functions."""


@dataclass(frozen=True, eq=False)
class Job:
    """One prompt to be answered several times: the unit that is admitted, sampled, trained or dropped."""

    group: int
    """Running number of the prompt in this run, from 0; never used twice."""
    prompt: Ints
    """Token ids."""
    samples: int
    seed: int
    """Randomness of the group: the same weights, seed and job give the same tokens, whichever sampler does it."""
    max_tokens: int


@dataclass(frozen=True, eq=False)
class Sample:
    """One response, as it was sampled."""

    tokens: Ints
    """Response token ids, the stop token included."""
    behavior: Floats
    """Log-prob of each token under the distribution it was really drawn from: temperature, top-k and top-p in force."""
    raw: Floats
    """Log-prob of each token under the model's plain softmax at temperature 1."""
    versions: Ints
    """Learner version of the weights that sampled each token."""
    finish: Literal["stop", "length", "error"]
    """A stop token; the length limit; logits that were not finite (then the tokens so far)."""


@dataclass(frozen=True, eq=False)
class Group:
    """A job and its finished responses."""

    job: Job
    samples: tuple[Sample, ...]

    @property
    def oldest(self) -> int | None:
        """The oldest version among all tokens of the group; None where it has none."""
        return min((int(sample.versions.min()) for sample in self.samples if len(sample.versions)), default=None)


@dataclass(frozen=True)
class Score:
    """What a response is worth."""

    reward: float
    """The weighted sum; NaN never: a verifier that failed scores 0."""
    correct: bool
    """Whether it counts as right in accuracies."""
    parts: Mapping[str, float] = field(default_factory=dict[str, float])
    """Each reward before its weight, by name."""
    failed: str | None = None
    """Why a verifier could not score it: the error or the timeout; None where all could. Such a response is not trained on."""
