"""How far a run has come, and how a checkpoint keeps that beside weights and optimiser: values for JSON, and arrays.

Each model below says its fields once, for writing and for reading. A manifest proves that a checkpoint is as it was written, not that
what was written fits this run: `read_state` looks at that too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from trimtab.config.training import Train
from trimtab.errors import CheckpointError
from trimtab.records.run import RunDirectory
from trimtab.train import checkpoint
from trimtab.train.buffer import Buffer, Entry, State
from trimtab.train.build import Parts
from trimtab.train.checkpoint import Saved
from trimtab.train.messages import NOBODY, Group, Job, Problem, Sample, SampledHead, Score
from trimtab.train.model_card import HeldOut, model_card
from trimtab.train.watch import Watch

Note = Callable[[str, str], None]
"""Takes a kind of event and what to tell the user."""
Arrays = dict[str, NDArray[Any]]
PER_TOKEN = {"tokens": np.int32, "behavior": np.float32, "raw": np.float32, "versions": np.int32}
PER_HEAD_TOKEN = {"head_counts": np.int32, "head_log_mass": np.float32}
PER_HEAD_ID = {"head_ids": np.int32, "head_log_probs": np.float32}
TYPES = {"prompts": np.int32} | PER_TOKEN | PER_HEAD_TOKEN | PER_HEAD_ID
"""Every array and its type. In each, what belongs to one response follows what belongs to another; those of heads are there if any
response has a head."""


class _Kept(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    @classmethod
    def values(cls, source: object, **given: Any) -> dict[str, Any]:
        """The fields as JSON keeps them: those given, the others from the attributes of `source`."""
        return {name: given[name] if name in given else getattr(source, name) for name in cls.model_fields}


class KeptProblem(_Kept):
    """The text of a problem. Fields of the user's own, which JSON may not hold, are not kept."""

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
    """A group that is neither trained nor dropped. One being sampled or scored is kept as waiting."""

    problem: KeptProblem
    job: KeptJob
    attempts: NonNegativeInt
    samples: list[KeptSample] | None
    scores: list[KeptScore]

    @classmethod
    def of(cls, entry: Entry) -> dict[str, Any]:
        """What JSON keeps of an entry."""
        group = entry.group
        return cls.values(
            entry,
            problem=KeptProblem.values(entry.problem),
            job=KeptJob.values(entry.job, prompt=len(entry.job.prompt)),
            samples=group and [KeptSample.values(each, length=len(each.tokens)) for each in group.samples],
            scores=[KeptScore.values(each, parts=dict(each.parts)) for each in entry.scores],
        )

    def entry(self, arrays: ArrayReader) -> Entry:
        """The entry, waiting or ready. Its problem lacks all but the text."""
        asked: dict[str, Any] = self.job.model_dump() | {"prompt": arrays.take("prompts", self.job.prompt)}
        job = Job(**asked)
        entry = Entry(Problem(**self.problem.model_dump()), job, attempts=self.attempts)
        if self.samples is not None:
            entry.group = Group(job, tuple(arrays.sample(each) for each in self.samples))
            entry.scores, entry.state = tuple(Score(**each.model_dump()) for each in self.scores), State.READY
            entry.oldest = entry.group.oldest
        return entry


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

    @classmethod
    def of(cls, watch: Watch) -> dict[str, Any]:
        """What JSON keeps of it."""
        return cls.values(watch, seen=dict(watch.seen), told=sorted(watch.told))

    def put(self, watch: Watch) -> None:
        """Back into a watch."""
        watch.idle_steps, watch.seen, watch.told = self.idle_steps, Counter(self.seen), set(self.told)


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


class ArrayReader:
    """The arrays of a checkpoint, read in the order in which they were written."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self._arrays, self._places = arrays, Counter[str]()

    def take(self, name: str, count: int) -> NDArray[Any]:
        """The next numbers of an array, as one of their own."""
        begin = self._places[name]
        self._places[name] += count
        return self._arrays[name][begin : begin + count].copy()

    def sample(self, kept: KeptSample) -> Sample:
        """The next response."""
        columns = {name: self.take(name, kept.length) for name in PER_TOKEN}
        return Sample(**columns, finish=kept.finish, head=self._head(kept.length))

    def _head(self, tokens: int) -> SampledHead | None:
        """That of a response; None for one without a single id."""
        if "head_counts" not in self._arrays:
            return None
        counts, mass = (self.take(name, tokens) for name in PER_HEAD_TOKEN)
        ids, log_probs = (self.take(name, int(counts.sum())) for name in PER_HEAD_ID)
        return SampledHead(counts, ids, _or_none(log_probs), _or_none(mass)) if counts.any() else None


def pack_buffer(buffer: Buffer) -> tuple[dict[str, Any], Arrays]:
    """All there is to save of a buffer: values for JSON, and arrays."""
    entries = buffer.entries()
    samples = [sample for entry in entries if entry.group for sample in entry.group.samples]
    prompts = _joined("prompts", (entry.job.prompt for entry in entries))
    values = KeptBuffer.values(buffer, entries=[KeptEntry.of(each) for each in entries])
    return values, {"prompts": prompts} | pack_samples(samples)


def unpack_buffer(values: KeptBuffer | Mapping[str, Any], arrays: Mapping[str, Any]) -> Buffer:
    """The buffer that was saved. Its waiting groups lack the further fields of their problems: see `Buffer.renew`."""
    kept, reader = KeptBuffer.model_validate(values), ArrayReader(arrays)
    counts: dict[str, int] = {name: getattr(kept, name) for name in KeptBuffer.model_fields if name != "entries"}
    return Buffer([each.entry(reader) for each in kept.entries], **counts)


def pack_samples(samples: Sequence[Sample]) -> Arrays:
    """The arrays of responses. Log-probs that an engine did not give are NaN; arrays of heads are left out where no response has one."""
    columns = {name: [_or_nan(getattr(each, name), len(each.tokens)) for each in samples] for name in PER_TOKEN}
    if any(each.head is not None for each in samples):
        heads = [each.head or _no_head(len(each.tokens)) for each in samples]
        columns["head_counts"] = [each.counts for each in heads]
        columns["head_log_mass"] = [_or_nan(each.log_mass, len(each.counts)) for each in heads]
        columns["head_ids"] = [each.ids for each in heads]
        columns["head_log_probs"] = [_or_nan(each.log_probs, len(each.ids)) for each in heads]
    return {name: _joined(name, parts) for name, parts in columns.items()}


def _no_head(tokens: int) -> SampledHead:
    return SampledHead(np.zeros(tokens, np.int32), np.zeros(0, np.int32), None, None)


def _joined(name: str, parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """One array of all parts; an empty one where there are none."""
    return np.concatenate([np.zeros(0, TYPES[name]), *parts]).astype(TYPES[name], copy=False)


def _or_nan(values: NDArray[Any] | None, number: int) -> NDArray[Any]:
    return np.full(number, np.nan, np.float32) if values is None else values


def _or_none(values: NDArray[Any]) -> NDArray[Any] | None:
    """The numbers, or None where all of them are missing."""
    return None if len(values) and bool(np.isnan(values).all()) else values


def read_state(path: Path, saved: Saved, config: Train, vocabulary: int) -> tuple[LoopState, Buffer]:
    """The state and the buffer of a checkpoint, if they can be those of this run."""
    try:
        state = LoopState.model_validate(saved.state)
        flaw = _flaw(state, saved, config) or _array_flaw(state, saved.arrays, vocabulary)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "state.json"
        state, flaw = None, f"{place}: {first['msg']}"
    if state is None or flaw is not None:
        raise CheckpointError(
            f"{path} needs the state of this run, got another: {flaw}. Move it away to go on from the one before it."
        )
    return state, unpack_buffer(state.buffer, saved.arrays)


def _flaw(state: LoopState, saved: Saved, config: Train) -> str | None:
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
    return next((flaw for flaw, holds in checks.items() if not holds), None)


def _array_flaw(state: LoopState, arrays: Mapping[str, Any], vocabulary: int) -> str | None:
    """What is wrong with the arrays: their kind, their length, or a number that no such run can hold."""
    entries = state.buffer.entries
    tokens = sum(sample.length for entry in entries for sample in entry.samples or ())
    lengths = {"prompts": sum(entry.job.prompt for entry in entries)} | dict.fromkeys(PER_TOKEN, tokens)
    bounds = {"prompts": (0, vocabulary), "tokens": (0, vocabulary), "versions": (NOBODY, state.version + 1)}
    return (
        _length_flaw(arrays, lengths)
        or next((flaw for name, each in bounds.items() if (flaw := _range_flaw(arrays, name, *each))), None)
        or head_flaw(arrays, tokens, vocabulary)
    )


def head_flaw(arrays: Mapping[str, Any], tokens: int, vocabulary: int) -> str | None:
    """What is wrong with the heads of a checkpoint; None if nothing is, or if it has none."""
    if not any(name in arrays for name in PER_HEAD_TOKEN | PER_HEAD_ID):
        return None
    if _length_flaw(arrays, {"head_counts": tokens}) or (arrays["head_counts"] < 0).any():
        return f"head_counts in arrays.safetensors is not one row of {tokens} counts of type int32"
    ids = int(arrays["head_counts"].sum(dtype=np.int64))
    lengths = {"head_log_mass": tokens} | dict.fromkeys(PER_HEAD_ID, ids)
    return _length_flaw(arrays, lengths) or _range_flaw(arrays, "head_ids", 0, vocabulary)


def _length_flaw(arrays: Mapping[str, Any], lengths: Mapping[str, int]) -> str | None:
    for name, length in lengths.items():
        array, kind = arrays.get(name), TYPES[name]
        if not isinstance(array, np.ndarray) or array.dtype != kind or array.shape != (length,):
            return f"{name} in arrays.safetensors is not one row of {length} numbers of type {kind.__name__}"
    return None


def _range_flaw(arrays: Mapping[str, Any], name: str, first: int, end: int) -> str | None:
    array = arrays[name]
    if not len(array) or (int(array.min()) >= first and int(array.max()) < end):
        return None
    return f"{name} in arrays.safetensors holds a number outside {first} to {end - 1}"


@dataclass(eq=False)
class RunState:
    """How far a run has come: the groups on their way, what was measured and told so far, and the time it took."""

    watch: Watch
    buffer: Buffer = field(default_factory=Buffer)
    accuracies: list[float] = field(default_factory=list[float])
    owed: dict[str, float] | None = None
    """Metrics of the last step where a request to stop broke its evaluation off."""
    seconds: float = 0.0

    def save(self, config: Train, run: RunDirectory, parts: Parts) -> None:
        """A checkpoint of now, in the run directory."""
        run.flush()
        learner = parts.learner
        buffer, arrays = pack_buffer(self.buffer)
        state = LoopState.values(
            self,
            version=learner.version,
            skipped=dict(learner.skipped),
            buffer=buffer,
            watch=KeptWatch.of(self.watch),
            rows=run.rows.total(),
        )
        checkpoint.save(
            run.checkpoints,
            learner.version,
            learner=learner.save,
            tokenizer=parts.policy.tokenizer,
            state=state,
            arrays=arrays,
            keep=config.checkpoint.keep,
            card=model_card(config, step=learner.version, held_out=self._held_out(run, parts)),
        )

    def _held_out(self, run: RunDirectory, parts: Parts) -> HeldOut | None:
        """The last accuracy, with the steps after which it was measured."""
        if parts.evaluator is None or not self.accuracies:
            return None
        measured = [int(line["step"]) + 1 for line in run.metrics() if "eval/accuracy" in line]
        problems, before = len(parts.evaluator.problems), self.accuracies[0]
        return HeldOut(self.accuracies[-1], problems, measured[-1] if measured else 0, before)

    def restore(self, config: Train, run: RunDirectory, parts: Parts, note: Note) -> None:
        """The state of the newest checkpoint that is whole; a run killed before its first one begins anew."""
        newest = checkpoint.latest(run.checkpoints, lambda message: note("checkpoint", message))
        if newest is None:
            note("checkpoint", "There is no whole checkpoint: the run begins at step 0.")
            checkpoint.clear_leftovers(run.checkpoints)
            run.rewind(0)
            return
        learner = parts.learner
        saved = checkpoint.restore(newest, learner=learner.load)
        state, self.buffer = read_state(newest, saved, config, parts.policy.vocabulary)
        self.buffer.renew(lambda number: parts.make([number])[0])
        learner.version = state.version
        learner.skipped.update(state.skipped)
        state.watch.put(self.watch)
        self.accuracies, self.seconds, self.owed = list(state.accuracies), state.seconds, state.owed
        checkpoint.clear_leftovers(run.checkpoints)
        run.rewind(state.version)
        rollout, record = config.rollout, config.record
        every = rollout.groups * rollout.samples if record.rollouts == 1 else None
        logged = range(state.version - (state.owed is not None))
        for message in run.gaps(logged, rows=state.rows, per_step=every):
            note("missing", f"{message} The run goes on without them.")
