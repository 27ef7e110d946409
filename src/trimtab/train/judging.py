"""Judging beside the learner: groups in, scores out, as verifiers are done with them.

submit ──► a judge with processes of its own, on a thread that waits for them ──► finished

Verifiers that cannot hang are called at once, where the group is submitted: a thread would only share the interpreter with the learner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from types import TracebackType
from typing import Protocol, runtime_checkable

from trimtab.config.training import Task
from trimtab.errors import RunError, TrimtabError
from trimtab.train.messages import Group, Problem, Score
from trimtab.train.tasks import GivenUpError, Judge, Source

Answers = Sequence[tuple[Problem, str]]
LOOK = 0.1
"""Seconds between two looks at whether the user interrupted what waits for scores."""


@dataclass(frozen=True, eq=False)
class JudgedGroup:
    """A group with its scores."""

    group: Group
    texts: tuple[str, ...]
    scores: list[Score] | None
    """None: the run was asked to stop before all were scored."""


@dataclass(frozen=True, eq=False)
class _Request:
    answers: Answers
    tell: Callable[[list[Score] | BaseException], None]


@runtime_checkable
class AnyJudge(Protocol):
    """What scores responses: here, in processes of its own, or on another machine."""

    notes: list[str]
    """What the user should know about how responses are scored; one that starts later may add to it."""

    @property
    def is_isolated(self) -> bool:
        """Whether it may take its time, and so has a thread that waits for it."""
        ...

    def scores(self, answers: Answers) -> list[Score]:
        """One score per answer, in order; GivenUpError where the run is asked to stop first."""
        ...

    def close(self) -> None:
        """End what it started. Can be called at any time, and again."""
        ...


class JudgePool:
    """Judges of one task, each scoring one group at a time. To be used from one thread."""

    def __init__(self, judges: Sequence[AnyJudge]) -> None:
        """One judge whose verifiers need no process, or several that have processes."""
        self._judges = list(judges)
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._finished: SimpleQueue[tuple[Group, tuple[str, ...], list[Score] | BaseException]] = SimpleQueue()
        self._told: set[str] = set()
        self.pending = 0
        """Groups submitted and not yet handed back."""
        self._threads = [
            Thread(target=self._work, args=(judge,), name=f"trimtab-judge-{number}", daemon=True)
            for number, judge in enumerate(self._judges)
            if judge.is_isolated
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def of(cls, task: Task, source: Source, stop: Callable[[], bool] = lambda: False) -> JudgePool:
        """As many judges as the task asks for, if their verifiers need processes. What is not scored yet is given up once `stop` holds."""
        judges = [Judge(task, source, stop)]
        try:
            while judges[0].is_isolated and len(judges) < task.workers:
                judges.append(Judge(task, source, stop))
        except BaseException:
            for judge in judges:
                judge.close()
            raise
        return cls(judges)

    def new_notes(self) -> list[str]:
        """What the user should know about how responses are scored, and was not told by the call before."""
        found = dict.fromkeys(note for judge in self._judges for note in judge.notes if note not in self._told)
        self._told.update(found)
        return list(found)

    def submit(self, group: Group, problem: Problem, texts: Sequence[str]) -> None:
        """Have the responses to a problem scored."""
        self.pending += 1
        kept = tuple(texts)
        self._ask([(problem, text) for text in kept], lambda found: self._finished.put((group, kept, found)))

    def finished(self) -> list[JudgedGroup]:
        """Groups that were scored since the last call, or given up; without waiting. Raises what a judge raised."""
        found: list[JudgedGroup] = []
        while not self._finished.empty():
            found.append(self._judged(*self._finished.get()))
        return found

    def all_finished(self) -> list[JudgedGroup]:
        """All that was submitted, waited for."""
        found = self.finished()
        while self.pending:
            try:
                found.append(self._judged(*self._finished.get(timeout=LOOK)))
            except Empty:
                continue
        return found

    def scores(self, answers: Answers) -> list[Score]:
        """One score per answer, in order, shared out among the judges; GivenUpError where the run is asked to stop first."""
        count = max(1, len(self._threads))
        size = max(1, -(-len(answers) // count))
        parts = [answers[start : start + size] for start in range(0, len(answers), size)]
        done: SimpleQueue[tuple[int, list[Score] | BaseException]] = SimpleQueue()
        for place, part in enumerate(parts):
            self._ask(part, lambda found, place=place: done.put((place, found)))
        by_place: dict[int, list[Score]] = {}
        while len(by_place) < len(parts):
            try:
                place, found = done.get(timeout=LOOK)
            except Empty:
                continue
            if isinstance(found, BaseException):
                raise found
            by_place[place] = found
        return [score for place in sorted(by_place) for score in by_place[place]]

    def close(self) -> None:
        """End the judges' processes, and with them what still waits for one."""
        for _ in self._threads:
            self._requests.put(None)
        for judge in self._judges:
            judge.close()
        deadline = time.monotonic() + 5.0
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> JudgePool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _ask(self, answers: Answers, tell: Callable[[list[Score] | BaseException], None]) -> None:
        if self._threads:
            self._requests.put(_Request(answers, tell))
        else:
            tell(self._judges[0].scores(answers))

    def _judged(self, group: Group, texts: tuple[str, ...], found: list[Score] | BaseException) -> JudgedGroup:
        self.pending -= 1
        if isinstance(found, GivenUpError):
            return JudgedGroup(group, texts, None)
        if isinstance(found, TrimtabError):
            raise found  # it says what is wrong
        if isinstance(found, BaseException):
            raise RunError(f"Group {group.job.group} needs a judge that goes on, got {found!r}.") from found
        return JudgedGroup(group, texts, found)

    def _work(self, judge: AnyJudge) -> None:
        while (request := self._requests.get()) is not None:
            try:
                found = judge.scores(request.answers)
            except BaseException as error:  # whoever waits has to hear of it
                found = error
            request.tell(found)
