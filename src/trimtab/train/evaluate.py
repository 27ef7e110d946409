"""Accuracy on fixed problems: jobs like any others, sampled by exactly one version of the weights, in the learner's own precision."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from trimtab.config.training import Task
from trimtab.train.judging import JudgePool
from trimtab.train.messages import Group, Job, Problem, Sampling
from trimtab.train.policy.policy import Policy
from trimtab.train.tasks import Judge


@dataclass(eq=False)
class Evaluator:
    """Problems with fixed randomness: only the weights change from one evaluation to the next."""

    policy: Policy
    judge: Judge | JudgePool
    problems: Sequence[Problem]
    jobs: Sequence[Job]

    @classmethod
    def of(
        cls,
        policy: Policy,
        judge: Judge | JudgePool,
        task: Task,
        problems: Sequence[Problem],
        *,
        max_tokens: int,
        seed: int,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> Evaluator:
        """One response to each problem. Their numbers are −1, −2, …: none is a group of the run."""
        sampling = Sampling(temperature, top_k, top_p)
        jobs = [
            Job(
                -1 - place,
                policy.prompt(task, problem),
                1,
                seed_of(seed, "evaluate", place),
                max_tokens,
                sampling,
                True,
                replies=policy.replies(task, problem),
            )
            for place, problem in enumerate(problems)
        ]
        return cls(policy, judge, problems, jobs)

    def begin(self, version: int) -> Evaluation:
        """One evaluation, of the weights of this version."""
        return Evaluation(version, {job.group: job for job in self.jobs})

    def accuracy(self, groups: Iterable[Group]) -> float:
        """The share of problems answered right; GivenUpError where the judge was asked to give up."""
        by_number = {group.job.group: group for group in groups}
        texts = [self.policy.texts_of(by_number[job.group])[0] for job in self.jobs]
        scores = self.judge.scores(list(zip(self.problems, texts, strict=True)))
        return sum(score.correct for score in scores) / max(len(scores), 1)


@dataclass(eq=False)
class Evaluation:
    """An evaluation under way: which jobs are still out, and what came back."""

    version: int
    missing: dict[int, Job]
    groups: list[Group] = field(default_factory=list[Group])

    @property
    def is_done(self) -> bool:
        """Whether every job came back."""
        return not self.missing

    def take(self, group: Group) -> None:
        """A result. One that came before, or that other weights had a part in, belongs to no evaluation or to an earlier one."""
        number = group.job.group
        if number in self.missing and _versions(group) <= {self.version}:
            del self.missing[number]
            self.groups.append(group)

    def lost(self, numbers: Iterable[int]) -> list[Job]:
        """Jobs of a sampler that died: to be given again."""
        return [self.missing[number] for number in numbers if number in self.missing]


def _versions(group: Group) -> set[int]:
    return {int(version) for sample in group.samples for version in sample.versions[sample.own]}


def seed_of(seed: int, *key: object) -> int:
    """A seed for one part of a run: 32 bits, which is all that torch's generator reads."""
    text = "/".join(str(part) for part in (seed, *key))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest(), "big")
