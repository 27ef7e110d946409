"""Where batches come from: samplers, judges and the buffer between them, kept going while the learner waits.

admit what may begin ─► give it to the samplers ─► have what comes back judged ─► take a whole batch
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from trimtab.config.base import excerpt
from trimtab.config.training import Train
from trimtab.errors import RunError
from trimtab.train.buffer import Entry
from trimtab.train.build import Parts
from trimtab.train.evaluate import Evaluation, Evaluator
from trimtab.train.judging import JudgedGroup
from trimtab.train.messages import Group, Job
from trimtab.train.run_state import Note, RunState
from trimtab.train.staleness import room
from trimtab.train.tasks import GivenUpError
from trimtab.train.watch import SampleFaults

QUIET = 900.0
"""Seconds without any news from the samplers before the run gives up; each sampler has a shorter limit of its own."""

SOON = 0.02
"""Seconds between two looks at what is being judged."""

LONG_NAMED, LONG_IN_A_ROW = 3, 200
"""Prompts without room for a response: how many are told of, and how many in a row end the run."""


class BatchSource:
    """The run's side of sampling. The buffer is that of the run's state, the back-end and the judges are its parts."""

    def __init__(
        self, config: Train, parts: Parts, state: RunState, note: Note, stop: Callable[[], bool] = lambda: False
    ) -> None:
        """`stop`: looked at while waiting, whether the user asked to stop."""
        self._config, self._parts, self._state, self._note, self._stop = config, parts, state, note, stop
        self._faults = SampleFaults()
        self._evaluation: Evaluation | None = None
        self._told_long = self._long_in_a_row = 0
        self._in_step = config.backend == "lockstep"
        """Whether a batch may not depend on which verifier was quicker."""

    def batch(self) -> list[Entry] | None:
        """The next batch of whole groups; None where the user asked to stop first."""
        rollout, taken = self._config.rollout, list[Entry]()

        def is_ready() -> bool:
            entries = self._state.buffer.take(
                rollout.groups, self._version, rollout.max_staleness, rollout.late, rollout.max_dropped
            )
            taken.extend(entries or ())
            return entries is not None

        self._admit()  # work for the samplers first, also where a batch is ready
        self._receive(0.0)
        return taken if self._wait(is_ready) else None

    def accuracy(self, evaluator: Evaluator) -> float | None:
        """Of held-out jobs through the back-end, beside the groups it has already; None where a request to stop came first.

        No newer weights are published before all of them are back. Nor is any group given: which ones share a batch with these
        would depend on the clock, and with it their last bits.
        """
        self._evaluation = evaluation = evaluator.begin(self._version)
        try:
            self._parts.backend.give(evaluator.jobs)
            if not self._wait(lambda: evaluation.is_done, admit=False):
                return None
            return evaluator.accuracy(evaluation.groups)
        except GivenUpError:
            return None
        finally:
            self._evaluation = None

    @property
    def _version(self) -> int:
        return self._parts.learner.version

    def _wait(self, condition: Callable[[], bool], *, admit: bool = True) -> bool:
        """Take in what samplers do until it holds, giving them more; False where the user asked to stop first."""
        heard, judge = time.monotonic(), self._parts.judge
        while not condition():
            if self._stop():
                return False
            if admit:
                self._admit()
            if self._receive(SOON if judge.pending else 0.5) or judge.pending:
                heard = time.monotonic()
            if time.monotonic() - heard > QUIET:
                raise RunError(
                    f"The samplers need to send something within {QUIET:g} s, got nothing. Look at their logs, in samplers/ "
                    "of the run, and at rollout.max_tokens and rollout.slots."
                )
        return True

    def _receive(self, timeout: float) -> bool:
        """Take in what the samplers have done; whether there was anything."""
        backend, judge, evaluation = self._parts.backend, self._parts.judge, self._evaluation
        arrived = backend.arrived(timeout, self._stop)
        for group in arrived.groups:
            if group.job.group < 0:
                if evaluation is not None:
                    evaluation.take(group)
                continue
            self._judge(group)
        finished = judge.all_finished() if self._in_step else judge.finished()
        for judged in finished:
            self._finish(judged)
        for note in judge.new_notes():
            self._note("reward", note)
        self._state.buffer.lost(arrived.lost)
        if evaluation is not None and (again := evaluation.lost(arrived.lost)):
            backend.give(again)
        for note in arrived.notes:
            self._note("sampler", note)
        return bool(arrived or finished)

    def _judge(self, group: Group) -> None:
        """Have a group judged, unless it is one that came before."""
        buffer, parts = self._state.buffer, self._parts
        if buffer.sample(group):
            entry = buffer.entry(group.job.group)
            assert entry is not None
            parts.judge.submit(group, entry.problem, parts.policy.texts_of(group))

    def _pass_over(self, jobs: Sequence[Job]) -> bool:
        """Withdraw those whose prompts leave no room for a response, which costs their groups and not the run. Whether there were any."""
        limit, buffer = self._parts.limit, self._state.buffer
        long = [job for job in jobs if limit is not None and len(job.prompt) >= limit]
        for job in long:
            entry = buffer.entry(job.group)
            assert entry is not None
            self._told_long += 1
            if self._told_long <= LONG_NAMED:
                more = " Further ones are left out without a word." if self._told_long == LONG_NAMED else ""
                self._note(
                    "task",
                    f"Group {job.group} is left out: its prompt has {len(job.prompt)} tokens, and the model has room for {limit} with "
                    f"the response ({excerpt(entry.problem.id)}).{more}",
                )
            buffer.withdraw(job.group)
        self._long_in_a_row = self._long_in_a_row + len(long) if len(long) == len(jobs) else 0
        if self._long_in_a_row > LONG_IN_A_ROW:
            raise RunError(
                f"Task needs prompts shorter than the {limit} tokens that the model has room for, got {self._long_in_a_row} in a row that "
                "are longer. Set the task's options so that they get shorter, or take a model with more positions."
            )
        return bool(long)

    def _finish(self, judged: JudgedGroup) -> None:
        """Take in the scores of a group. Without them it is sampled again when the run goes on."""
        if judged.scores is not None:
            self._state.buffer.finish(judged.group, judged.scores, judged.texts)
            for kind, message in self._faults.notes(judged.group, judged.scores):
                self._note(kind, message)

    def _admit(self) -> None:
        """Let in what the staleness rule allows, and give it to the samplers that have room."""
        rollout, buffer, parts = self._config.rollout, self._state.buffer, self._parts
        while True:
            allowed = room(
                self._version, rollout.groups, rollout.max_staleness, buffer.admitted, buffer.trained, buffer.dropped
            )
            for problem, job in parts.make(range(buffer.next, buffer.next + allowed)):
                buffer.admit(problem, job)
            jobs = buffer.waiting(parts.backend.room())
            if not self._pass_over(jobs):
                break
        if jobs:
            buffer.start((job.group for job in jobs), self._version)
            parts.backend.give(jobs)
