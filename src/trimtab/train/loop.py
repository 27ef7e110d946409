"""The training loop, to be read from top to bottom.

admit what may begin ─► give it to the samplers ─► wait for a whole batch ─► learn ─► publish ─► record, evaluate, save
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from trimtab.config.training import Train
from trimtab.errors import ConfigError, RecordError, RunError
from trimtab.records.gaps import gaps
from trimtab.records.run import RunDirectory
from trimtab.train import checkpoint
from trimtab.train.buffer import Buffer, Entry
from trimtab.train.display import Display, Guarded, Silent
from trimtab.train.evaluate import Evaluation, Evaluator
from trimtab.train.judging import JudgedGroup
from trimtab.train.loggers import Loggers, open_loggers
from trimtab.train.messages import Answer, Group, Score, Stepped
from trimtab.train.parts import build, settle_process
from trimtab.train.recorded import rollout_rows
from trimtab.train.saved import read_state
from trimtab.train.staleness import room
from trimtab.train.stop import Stop
from trimtab.train.tasks import GivenUpError
from trimtab.train.watch import Watch
from trimtab.train.world import changes

QUIET = 900.0
"""Seconds without any news from the samplers before the run gives up; each sampler has a shorter limit of its own."""

SOON = 0.02
"""Seconds between two looks at what is being judged."""

CAUSES = 5
"""How many causes of failed verifiers a session tells; they can be as many as there are responses."""


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    path: Path
    steps: int
    before: float | None
    after: float | None
    best: float | None
    seconds: float
    stopped: str | None
    """What stopped it early; None: it went to the end."""


def train(config: Train, path: Path, *, resume: bool = False, display: Display | None = None) -> Result:
    """Train, and leave a run directory. With `resume`, go on from its newest checkpoint."""
    shown = Guarded(display or Silent())
    settle_process(config.runnable().threads)
    with ExitStack() as stack:
        run = RunDirectory.open(path) if resume else RunDirectory.create(path, config.model_dump(mode="json"))
        stack.enter_context(run)
        try:
            session = Session(config, run, shown, stack)
        except BaseException:
            if not resume:
                run.discard()  # settings that cannot be run leave no run behind, and the name free
            raise
        stop = stack.enter_context(Stop())
        try:
            result = session.go(stop, resume=resume)
        except BaseException as error:
            with suppress(RecordError):  # a full disk does not take this either; the error itself says more
                run.event("stopped", str(error) or "interrupted at once", step=session.learner.version)
            raise
        run.ending = "stopped" if result.stopped else "done"
        return result


class Session:
    """A run from its beginning, or its last checkpoint, to its end."""

    def __init__(self, config: Train, run: RunDirectory, display: Guarded, stack: ExitStack) -> None:
        self.config, self.run, self.display = config, run, display
        self.stop = Stop()
        self.parts = parts = build(config, run.path, display, stack)
        self.learner, self.backend, self.judge, self.policy = parts.learner, parts.backend, parts.judge, parts.policy
        display.warn = self._display_failed
        self.loggers = Loggers({}, self._warn)
        stack.push(self._close_loggers)
        self.buffer = Buffer()
        self.in_step = config.backend == "lockstep"
        """Whether a batch may not depend on which verifier was quicker."""
        self.evaluation: Evaluation | None = None
        self.watch = Watch(config.correction, config.learner.patience)
        self.told: set[str] = set()
        self.broken = False
        self.accuracies: list[float] = []
        self.owed: dict[str, float] | None = None
        """Metrics of the last step where a request to stop broke its evaluation off."""
        self.seconds = 0.0

    def go(self, stop: Stop, *, resume: bool) -> Result:
        """The whole run."""
        config, learner, self.stop = self.config, self.learner, stop
        self.judge.stop_when(lambda: bool(stop))
        if resume:
            self._compare()
        self.run.remember(world=self.parts.world)
        if resume:
            self._restore()
            if self._finished():
                return self._result(None)
        self.loggers = open_loggers(
            config.record.loggers,
            folder=self.run.path,
            project=config.record.project,
            warn=self._warn,
            settings=self.run.settings,
            step=learner.version,
        )
        begun = time.perf_counter() - self.seconds
        self.display.begin(self.run.path, learner.version)
        for note in self.judge.notes:
            self._note("reward", note)
        self.backend.begin(learner.weights(), learner.version)
        self._catch_up()
        while learner.version < config.steps and (stepped := self._step(stop)):
            for note in self.watch.notes(stepped):
                self._note("gate", note)
            self.seconds = time.perf_counter() - begun
            if self._due():
                self._save()
        if learner.version == config.steps and self.owed is None:
            return self._result(None)
        if not self._due():
            self._save()
        self.run.event("stopped", str(stop.reason), step=learner.version)
        return self._result(stop.reason)

    def _step(self, stop: Stop) -> Stepped | None:
        """Wait for a batch, learn from it, publish, record; None where the user asked to stop."""
        config, learner, clock = self.config, self.learner, time.perf_counter()
        entries = None if stop else self._batch(stop)
        if entries is None:
            return None
        waited = time.perf_counter() - clock
        stepped = learner.step([answer for entry in entries for answer in _answers(entry)])
        self.backend.publish(learner.weights(), learner.version)
        step = learner.version - 1
        metrics = dict(stepped.metrics) | self._own(entries, waited, time.perf_counter() - clock)
        if config.record.rollouts:
            self.run.rollouts(rollout_rows(step, entries, self.policy, stepped))
        last = learner.version == config.steps
        due = config.evaluate and (learner.version % config.evaluate.every == 0 or last)
        if due and not self._evaluate(learner.version, metrics):
            self.owed = {name: float(value) for name, value in metrics.items()}
            return stepped
        self._log(step, metrics)
        return stepped

    def _due(self) -> bool:
        """Whether a checkpoint of this step is made in any case."""
        return self.learner.version % self.config.checkpoint.every == 0 or self.learner.version == self.config.steps

    def _catch_up(self) -> None:
        """Evaluate before the first step, or the step whose evaluation was broken off, and log that.

        Its line may be there already, from a session that was killed since.
        """
        if self.owed is None:
            if not self.accuracies:
                self._evaluate(0, {})
            return
        metrics, step = dict(self.owed), self.learner.version - 1
        if self._evaluate(self.learner.version, metrics):
            self.owed = None
            if not any(line["step"] == step for line in self.run.metrics()):
                self._log(step, metrics)
            if self.learner.version == self.config.steps:
                self._save()

    def _batch(self, stop: Stop) -> list[Entry] | None:
        """The next batch of whole groups; None where the user asked to stop first."""
        rollout, taken = self.config.rollout, list[Entry]()

        def is_ready() -> bool:
            entries = self.buffer.take(
                rollout.groups, self.learner.version, rollout.max_staleness, rollout.late, rollout.max_dropped
            )
            taken.extend(entries or ())
            return entries is not None

        self._admit()  # work for the samplers first, also where a batch is ready
        self._receive(0.0)
        return taken if self._wait(is_ready) else None

    def _wait(self, condition: Callable[[], bool], *, admit: bool = True) -> bool:
        """Take in what samplers do until it holds, giving them more; False where the user asked to stop first."""
        heard = time.monotonic()
        while not condition():
            if self.stop:
                return False
            if admit:
                self._admit()
            if self._receive(SOON if self.judge.pending else 0.5) or self.judge.pending:
                heard = time.monotonic()
            if time.monotonic() - heard > QUIET:
                raise RunError(
                    f"The samplers need to send something within {QUIET:g} s, got nothing. Look at their logs in "
                    f"{self.run.path}, and at rollout.max_tokens and rollout.slots."
                )
        return True

    def _receive(self, timeout: float) -> bool:
        """Take in what the samplers have done; whether there was anything."""
        arrived = self.backend.arrived(timeout, lambda: bool(self.stop))
        evaluation = self.evaluation
        for group in arrived.groups:
            if group.job.group < 0:
                if evaluation is not None:
                    evaluation.take(group)
                continue
            self._judge(group)
        finished = self.judge.all_finished() if self.in_step else self.judge.finished()
        for judged in finished:
            self._finish(judged)
        self.buffer.lost(arrived.lost)
        if evaluation is not None and (again := evaluation.lost(arrived.lost)):
            self.backend.give(again)
        for note in arrived.notes:
            self._note("sampler", note)
        return bool(arrived or finished)

    def _judge(self, group: Group) -> None:
        """Have a group judged, unless it is one that came before."""
        if self.buffer.sample(group):
            entry = self.buffer.entry(group.job.group)
            assert entry is not None
            self.judge.submit(group, entry.problem, self.policy.texts([sample.tokens for sample in group.samples]))

    def _finish(self, judged: JudgedGroup) -> None:
        """Take in the scores of a group. Without them it is sampled again when the run goes on."""
        if judged.scores is not None:
            self.buffer.finish(judged.group, judged.scores, judged.texts)
            self._tell_faults(judged.group, judged.scores)

    def _tell_faults(self, group: Group, scores: list[Score]) -> None:
        """Tell of verifiers that failed and of logits that were not finite; not of each, as metrics and rollouts hold them all."""
        causes = dict.fromkeys(score.failed for score in scores if score.failed and score.failed not in self.told)
        for cause in list(causes)[: max(0, CAUSES - len(self.told))]:
            self.told.add(cause)
            self._note(
                "reward",
                f"A verifier failed: {cause}. Such responses are not trained on; rollout/failed is their share of a step.",
            )
        broken = sum(sample.finish == "error" for sample in group.samples)
        if broken and not self.broken:
            self.broken = True
            self._note(
                "logits",
                f"{broken} of {len(group.samples)} responses to group {group.job.group} met logits that are not finite "
                "and were cut off there; they are not trained on. rollout/broken is their share of a step.",
            )

    def _admit(self) -> None:
        """Let in what the staleness rule allows, and give it to the samplers that have room."""
        config, buffer = self.config, self.buffer
        allowed = room(
            self.learner.version,
            config.rollout.groups,
            config.rollout.max_staleness,
            buffer.admitted,
            buffer.trained,
            buffer.dropped,
        )
        for _ in range(allowed):
            buffer.admit(*self.parts.make(buffer.next))
        jobs = buffer.waiting(self.backend.room())
        if jobs:
            buffer.start((job.group for job in jobs), self.learner.version)
            self.backend.give(jobs)

    def _evaluate(self, version: int, metrics: dict[str, float]) -> bool:
        """Accuracy of the present weights, into the metrics of the step that made them; before the first, on its own.

        False where a request to stop broke it off.
        """
        if self.parts.evaluator is None:
            return True
        clock = time.perf_counter()
        accuracy = self._accuracy(self.parts.evaluator, version)
        if accuracy is None:
            return False
        self.accuracies.append(accuracy)
        metrics |= {"eval/accuracy": accuracy, "time/evaluate": time.perf_counter() - clock}
        if version == 0:
            self.run.event("start", f"Held-out accuracy {accuracy:.3f} before the first step.", accuracy=accuracy)
            self.display.step(0, metrics)
        return True

    def _accuracy(self, evaluator: Evaluator, version: int) -> float | None:
        """Held-out jobs through the back-end, beside the groups it has already; None where a request to stop came first.

        No newer weights are published before all of them are back. Nor is any group given: which ones share a batch with these
        would depend on the clock, and with it their last bits.
        """
        self.evaluation = evaluation = evaluator.begin(version)
        try:
            self.backend.give(evaluator.jobs)
            if not self._wait(lambda: evaluation.is_done, admit=False):
                return None
            return evaluator.accuracy(evaluation.groups)
        except GivenUpError:
            return None
        finally:
            self.evaluation = None

    def _own(self, entries: list[Entry], waited: float, seconds: float) -> dict[str, float]:
        scores = [score for entry in entries for score in entry.scores]
        samples = [sample for entry in entries if entry.group for sample in entry.group.samples]
        tokens = sum(len(sample.tokens) for sample in samples)
        return {
            "time/wait": waited,
            "time/step": seconds,
            "throughput/samples": len(scores) / seconds,
            "throughput/tokens": tokens / seconds,
            "rollout/failed": sum(score.failed is not None for score in scores) / max(len(scores), 1),
            "rollout/broken": sum(sample.finish == "error" for sample in samples) / max(len(samples), 1),
            "staleness/dropped": float(self.buffer.dropped),
            "staleness/in_flight": float(self.buffer.in_flight),
            "staleness/in_queue": float(self.buffer.in_queue),
        }

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        self.run.log(step, metrics)
        self.loggers.log(step, metrics)
        self.display.step(step + 1, metrics)

    def _note(self, kind: str, message: str) -> None:
        self.run.event(kind, message, step=self.learner.version)
        self.display.note(message)

    def _display_failed(self, message: str) -> None:
        self.run.event("display", message, step=self.learner.version)

    def _close_loggers(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.loggers.close("done" if error is None else "failed")

    def _warn(self, message: str) -> None:
        self._note("logger", message)

    def _save(self) -> None:
        self.run.flush()
        values, arrays = self.buffer.snapshot()
        state: dict[str, Any] = {
            "version": self.learner.version,
            "skipped": dict(self.learner.skipped),
            "buffer": values,
            "watch": self.watch.state(),
            "accuracies": self.accuracies,
            "seconds": self.seconds,
            "owed": self.owed,
            "rows": self.run.rows.total(),
        }
        checkpoint.save(
            self.run.checkpoints,
            self.learner.version,
            learner=self.learner.save,
            tokenizer=self.policy.tokenizer,
            state=state,
            arrays=arrays,
            keep=self.config.checkpoint.keep,
        )

    def _compare(self) -> None:
        """Say what changed outside the run directory since the run's last session; runs of before it was noted say nothing."""
        before = self.run.facts.get("world")
        if isinstance(before, dict):
            for message in changes(cast("dict[str, Any]", before), self.parts.world, kl=self.config.kl is not None):
                self._note("changed", message)

    def _restore(self) -> None:
        """The state of the newest checkpoint that is whole; a run killed before its first one begins anew."""
        newest = checkpoint.latest(self.run.checkpoints, lambda message: self._note("checkpoint", message))
        if newest is None:
            self._note("checkpoint", "There is no whole checkpoint: the run begins at step 0.")
            checkpoint.clear_leftovers(self.run.checkpoints)
            self.run.rewind(0)
            return
        saved = checkpoint.restore(newest, learner=self.learner.load)
        state, self.buffer = read_state(newest, saved, self.config, self.policy.vocabulary)
        self.buffer.renew(self.parts.make)
        self.learner.version = state.version
        self.learner.skipped.update(state.skipped)
        self.watch.restore(state.watch.model_dump())
        self.accuracies, self.seconds, self.owed = list(state.accuracies), state.seconds, state.owed
        checkpoint.clear_leftovers(self.run.checkpoints)
        self.run.rewind(state.version)
        rollout, record = self.config.rollout, self.config.record
        every = rollout.groups * rollout.samples if record.rollouts == 1 else None
        logged = range(state.version - (state.owed is not None))
        for message in gaps(self.run, logged, rows=state.rows, per_step=every):
            self._note("missing", f"{message} The run goes on without them.")

    def _finished(self) -> bool:
        """Whether a resumed run has nothing left to do, which is said; a number of steps that is new is kept for the next time."""
        done, wanted = self.learner.version, self.config.steps
        if done > wanted:
            raise ConfigError(f"--resume needs steps of {done} or more, got {wanted}. The run has gone as far as that.")
        self.run.resettle(self.config.model_dump(mode="json"))
        if done == wanted and self.owed is None:
            self.display.note(f"The run is finished: all {done} steps are done. Go further with steps=N above {done}.")
        return done == wanted and self.owed is None

    def _result(self, stopped: str | None) -> Result:
        seen = self.accuracies
        return Result(
            path=self.run.path,
            steps=self.learner.version,
            before=seen[0] if seen else None,
            after=seen[-1] if seen else None,
            best=max(seen) if seen else None,
            seconds=self.seconds,
            stopped=stopped,
        )


def _answers(entry: Entry) -> list[Answer]:
    assert entry.group is not None
    job = entry.job
    pairs = zip(entry.group.samples, entry.scores, strict=True)
    return [Answer(job.group, place, job.prompt, sample, score) for place, (sample, score) in enumerate(pairs)]
