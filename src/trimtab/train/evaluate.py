"""Accuracy on fixed problems by the learner's own weights, in full precision."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from trimtab.config.training import Task
from trimtab.train.engines.protocol import Engine
from trimtab.train.messages import Group, Job, Problem, Sampling
from trimtab.train.policy.policy import Policy
from trimtab.train.tasks.judge import GivenUpError, Judge


@dataclass(eq=False)
class Evaluator:
    """Problems with fixed randomness: only the weights change from one evaluation to the next."""

    engine: Engine
    policy: Policy
    judge: Judge
    problems: Sequence[Problem]
    jobs: Sequence[Job]

    @classmethod
    def of(
        cls,
        engine: Engine,
        policy: Policy,
        judge: Judge,
        task: Task,
        problems: Sequence[Problem],
        *,
        max_tokens: int,
        seed: int,
        temperature: float = 1.0,
    ) -> Evaluator:
        """One response to each problem."""
        sampling = Sampling(temperature)
        jobs = [
            Job(place, policy.prompt(task, problem), 1, seed_of(seed, "evaluate", place), max_tokens, sampling)
            for place, problem in enumerate(problems)
        ]
        return cls(engine, policy, judge, problems, jobs)

    def accuracy(self, weights: dict[str, Tensor], version: int) -> float:
        """The share of problems answered right."""
        accuracy = self.accuracy_unless(lambda: False, weights, version)
        assert accuracy is not None
        return accuracy

    def accuracy_unless(self, stop: Callable[[], bool], weights: dict[str, Tensor], version: int) -> float | None:
        """The same; None where `stop` came first, or the judge was asked to give up."""
        self.engine.load(weights, version)
        groups = finished(self.engine, self.jobs, stop)
        if groups is None:
            return None
        texts = self.policy.texts([group.samples[0].tokens for group in groups])
        try:
            scores = self.judge.scores(list(zip(self.problems, texts, strict=True)))
        except GivenUpError:
            return None
        return sum(score.correct for score in scores) / max(len(scores), 1)


def finished(engine: Engine, jobs: Sequence[Job], stop: Callable[[], bool] = lambda: False) -> list[Group] | None:
    """Every one of these jobs done, in their order of number; None, and none of them pending, where `stop` came first."""
    engine.submit(jobs)
    groups: list[Group] = []
    while engine.pending:
        if stop():
            engine.abandon()
            return None
        groups.extend(engine.step())
    return sorted(groups, key=lambda group: group.job.group)


def seed_of(seed: int, *key: object) -> int:
    """A seed for one part of a run: 32 bits, which is all that torch's generator reads."""
    text = "/".join(str(part) for part in (seed, *key))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
