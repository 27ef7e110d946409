"""What moves between the parts of a run: problems, jobs, samples, groups, answers, what a step did.

Plain values with host arrays: they cross the borders of processes, and hold nothing of anybody's model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from trimtab.errors import ConfigError, InputError

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

HeadKind = Literal["none", "mask", "top-k"]
"""What is recorded of the sampler's distribution at each token: nothing; the ids it could draw, where it was cut; its likeliest ids."""
NOBODY = -1
"""Version of tokens that no weights sampled: the environment wrote them."""
Outcome = Literal["updated", "no rows", "all rejected", "no signal", "not finite"]
"""What came of a step: an update, or why there was none."""


@dataclass(frozen=True)
class Problem:
    """A prompt and what a verifier needs to judge an answer to it."""

    id: str
    """The same problem has the same id in every run."""
    prompt: str
    answer: str
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields, handed to the user's reward functions."""
    replies: tuple[str, ...] = ()
    """What the environment says after the policy's first turn, its second, and so on; after the last reply comes the last turn."""


@dataclass(frozen=True)
class Sampling:
    """How the model's distribution is changed before a token is drawn from it."""

    temperature: float = 1.0
    """0: the likeliest token."""
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not self.temperature >= 0 or self.temperature == float("inf"):
            raise ConfigError(
                f"temperature needs a finite number >= 0, got {self.temperature}. 0 is the likeliest token."
            )
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError(f"top_k needs at least 1 token, got {self.top_k}. Leave it out to sample from all.")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ConfigError(
                f"top_p needs a share between 0 and 1, got {self.top_p}. Leave it out to sample from all."
            )


@dataclass(frozen=True, eq=False)
class Job:
    """One prompt to be answered several times: the unit that is admitted, sampled, trained or dropped."""

    group: int
    """Running number of the prompt in this run, from 0; never used twice. Held-out problems count down from −1."""
    prompt: Ints
    """Token ids."""
    samples: int
    seed: int
    """Randomness of the group: the same weights, seed and job give the same tokens, whichever sampler does it."""
    max_tokens: int
    sampling: Sampling = Sampling()
    exact: bool = False
    """Whether the learner's own precision is asked for, whatever that of rollouts is."""
    head: HeadKind = "none"
    head_size: int = 128
    """How many of the likeliest ids (head top-k)."""
    replies: tuple[Ints, ...] = ()
    """Token ids that the environment writes after each stop token but the last; `max_tokens` counts them too."""


@dataclass(frozen=True, eq=False)
class SampledHead:
    """Ids of the distribution that each token of a response was drawn from; those of one token after those of another."""

    counts: Ints
    """How many each token has."""
    ids: Ints
    log_probs: Floats | None
    """Of the ids, under the distribution drawn from; None from an engine that names the ids only."""
    log_mass: Floats | None
    """Log of the probability that top-k and top-p left of the model's distribution, for each token; None where it is not known."""

    def __post_init__(self) -> None:
        if int(self.counts.sum()) != len(self.ids):
            raise InputError(
                f"SampledHead needs as many ids as it counts ({int(self.counts.sum())}), got {len(self.ids)}."
            )


@dataclass(frozen=True, eq=False)
class Sample:
    """One response, as it was sampled: turns of the policy and, between two of them, what the environment replied."""

    tokens: Ints
    """Response token ids, stop tokens and replies included."""
    behavior: Floats
    """Log-prob of each token under the distribution it was really drawn from: temperature, top-k and top-p in force. NaN in replies."""
    raw: Floats | None
    """Log-prob of each token under the model's plain softmax at temperature 1; None from an engine that gives only one kind."""
    versions: Ints
    """Learner version of the weights that sampled each token; −1 (`NOBODY`) where none did: the environment wrote it."""
    finish: Literal["stop", "length", "error"]
    """The stop token of the last turn; the length limit; logits that were not finite (then the tokens so far)."""
    head: SampledHead | None = None
    """What was recorded of the distributions, if it was asked for and there was something to record."""

    @property
    def own(self) -> Flags:
        """Which tokens the policy drew: those that can be trained, and that have a log-prob and an age."""
        return self.versions > NOBODY

    @property
    def oldest(self) -> int | None:
        """The oldest version among its own tokens; None where it has none."""
        return int(self.versions[self.own].min()) if self.own.any() else None

    @property
    def turns(self) -> list[Ints]:
        """The tokens of each turn of the policy, its stop token included; one empty turn where there is no token."""
        own = self.own
        if own.all():
            return [self.tokens]
        edges = np.flatnonzero(np.diff(own, prepend=False, append=False)).tolist()
        return [self.tokens[begin:end] for begin, end in zip(edges[::2], edges[1::2], strict=True)]


@dataclass(frozen=True, eq=False)
class Group:
    """A job and its finished responses."""

    job: Job
    samples: tuple[Sample, ...]
    texts: tuple[str, ...] = ()
    """The responses as text, where the sampler decoded them; else empty."""

    @property
    def oldest(self) -> int | None:
        """The oldest version among all tokens that the policy drew; None where it has none."""
        return min((oldest for sample in self.samples if (oldest := sample.oldest) is not None), default=None)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with one array of each kind, all responses in it: of arrays as short as these, the number of them is what costs."""
        samples = self.samples
        lengths = [len(sample.tokens) for sample in samples]
        columns = [_joined([sample.tokens for sample in samples], lengths)]
        columns += [_joined([sample.behavior for sample in samples], lengths)]
        columns += [_joined([sample.versions for sample in samples], lengths)]
        raw = [sample.raw for sample in samples if sample.raw is not None]
        if raw and len(raw) == len(samples):
            columns += [_joined(raw, lengths)]
        elif raw:
            raise InputError(
                f"A group needs raw log-probs for all of its {len(samples)} responses or none, got {len(raw)}."
            )
        rest = [(sample.finish, sample.head) for sample in samples]
        return _unpacked_group, (self.job, lengths, columns, rest, self.texts)


def _joined(parts: Sequence[NDArray[Any]], lengths: Sequence[int]) -> NDArray[Any]:
    """One array after the other, each as long as its response."""
    if [len(part) for part in parts] != lengths:
        raise InputError(
            f"A response needs a log-prob and a version for each of its tokens, got {[len(part) for part in parts]} "
            f"for responses of {lengths}."
        )
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def _unpacked_group(
    job: Job,
    lengths: list[int],
    columns: list[NDArray[Any]],
    rest: list[tuple[Any, SampledHead | None]],
    texts: tuple[str, ...],
) -> Group:
    """The group that was pickled. The arrays of its responses are parts of a few large ones, which are its own."""
    samples: list[Sample] = []
    start = 0
    for length, (finish, head) in zip(lengths, rest, strict=True):
        end = start + length
        tokens, behavior, versions, *raw = [column[start:end] for column in columns]
        samples.append(Sample(tokens, behavior, raw[0] if raw else None, versions, finish, head))
        start = end
    return Group(job, tuple(samples), texts)


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


@dataclass(frozen=True, eq=False)
class Answer:
    """One response with all the learner needs to train on it."""

    group: int
    place: int
    """Which of the group's samples it is."""
    prompt: Ints
    sample: Sample
    score: Score


@dataclass(frozen=True, eq=False)
class Stepped:
    """What a learner's step did: metrics, and of every answer what became of its tokens. Arrays are [answers, width], padded."""

    outcome: Outcome
    metrics: Mapping[str, float]
    places: Mapping[tuple[int, int], int]
    """The row of each answer, by group and place in it."""
    mask: Flags
    behavior: Floats
    proximal: Floats | None
    current: Floats
    """What the policy thought of each token when it was trained; NaN for answers that could not contribute."""
    kept: Flags
    weight: Floats
    advantages: Floats
