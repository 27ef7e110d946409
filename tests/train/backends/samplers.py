"""What the tests of a back-end ask of samplers and of what they bring."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from tests.train.backends.scripted import Factory, Weight, named
from tests.train.children.processes import alive
from tests.waiting import LIMIT, until
from trimtab.train.backends.engine_pool import EnginePool
from trimtab.train.backends.protocol import Arrived, Backend
from trimtab.train.buffer import Buffer
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.messages import Group, Job, Problem, Score
from trimtab.train.staleness import room


def job_of(number: int, samples: int = 2, tokens: int = 3) -> Job:
    return Job(number, np.array([1], np.int32), samples, seed=number, max_tokens=tokens)


def gathered(backend: Backend, enough: Callable[[Arrived], bool]) -> Arrived:
    """All news up to the moment that there is enough of it."""
    news = Arrived()
    deadline = time.monotonic() + LIMIT
    while not enough(news):
        assert time.monotonic() < deadline, f"never came: {news}"
        more = backend.arrived(1.0)
        news = Arrived(news.groups + more.groups, news.lost + more.lost, news.notes + more.notes)
    return news


def numbers(groups: tuple[Group, ...]) -> list[int]:
    return sorted(group.job.group for group in groups)


def order(folder: Path, pid: int) -> set[int]:
    """Groups that a process was given."""
    names = [path.name.split()[1] for path in folder.glob(f"order * of {pid}")]
    return {int(number) for name in names for number in name.split("-")}


def tiny(seed: int) -> transformers.Qwen2ForCausalLM:
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=16, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config).eval()


@dataclass(frozen=True)
class HfFactory:
    """Builds an engine of other weights than the learner's, so that only loading can make them equal."""

    def __call__(self) -> HfEngine:
        return HfEngine(tiny(1), stop=[1], slots=8)


def bits(groups: tuple[Group, ...]) -> list[tuple[object, ...]]:
    return [
        (group.job.group, sample.tokens.tobytes(), sample.behavior.tobytes(), sample.raw.tobytes(), sample.versions.tobytes())
        for group in groups
        for sample in group.samples
    ]  # fmt: skip


Start = Callable[..., Any]
"""Makes a back-end that is still to begin, from an engine's factory."""


@contextmanager
def begun(
    start: Start, folder: Path, faults: dict[int, str] | None = None, *, factory: Any = None, **options: Any
) -> Iterator[Any]:
    """A back-end that has begun, and of which nothing is left afterwards."""
    model = options.pop("model", None) or Weight()
    backend = start(factory or Factory(folder, faults or {}), hold=8, directory=folder, **options)
    backend.begin(named(model), 0)
    pids = list(backend.pids)
    try:
        yield backend
        pids += backend.pids
    finally:
        backend.close()
    until(lambda: not any(alive(pid) for pid in pids), "the end of the samplers")


def ready(backend: EnginePool, count: int) -> None:
    """Wait until so many samplers are."""
    until(lambda: not backend.arrived(0.05) and sum(seat.ready for seat in backend.seats) >= count, "ready samplers")


def sampled(engine: Any, model: torch.nn.Module, jobs: list[Job], version: int) -> tuple[Group, ...]:
    """What an engine in this process makes of jobs with the weights of a model."""
    engine.load(model.state_dict(), version)
    engine.submit(jobs)
    groups: list[Group] = []
    while engine.pending:
        groups += engine.step()
    return tuple(groups)


def played(start: Start, folder: Path, *, steps: int, strike: dict[int, Callable[[Any], object]]) -> tuple[int, int]:
    """A run with blows at certain steps; asserts that its books are right. How many deaths were told, and groups dropped."""
    per_step, bound = 4, 2
    model, buffer, trained, notes = Weight(), Buffer(), list[int](), list[str]()
    with begun(start, folder, model=model, samplers=2, restarts=50) as backend:
        ready(backend, 1)
        for version in range(steps):
            batch, struck = None, False
            deadline = time.monotonic() + LIMIT
            while batch is None:
                assert time.monotonic() < deadline
                for _ in range(room(version, per_step, bound, buffer.admitted, buffer.trained, buffer.dropped)):
                    buffer.admit(Problem("", "", ""), job_of(buffer.next))
                jobs = buffer.waiting(backend.room())
                buffer.start(job.group for job in jobs)
                backend.give(jobs)
                if jobs and version in strike and not struck:
                    struck = True
                    strike[version](backend)
                news = backend.arrived(1.0)
                notes += news.notes
                for group in news.groups:
                    buffer.finish(group, [Score(0.0, False)] * 2)
                buffer.lost(news.lost)
                batch = buffer.take(per_step, version, bound)
            for entry in batch:
                assert entry.group is not None
                assert 0 <= version - (entry.group.oldest or 0) <= bound
                assert all(sample.tokens.tolist() == sample.versions.tolist() for sample in entry.group.samples)
                trained.append(entry.job.group)
            model.becomes(version + 1)
            backend.publish(named(model), version + 1)
        if strike:
            until(lambda: any("estarted" in note for note in [*notes, *backend.arrived(0.2).notes]), "word of it")
    assert len(set(trained)) == len(trained) == steps * per_step
    missing = set(range(max(trained) + 1)) - set(trained)
    under_way = {number for number in missing if buffer.entry(number) is not None}
    assert len(missing - under_way) == buffer.dropped
    assert buffer.admitted == len(trained) + len(buffer) + buffer.dropped
    return len(notes), buffer.dropped
