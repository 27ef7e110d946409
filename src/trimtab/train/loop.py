"""The training loop, to be read from top to bottom.

admit what may begin ─► give it to the samplers ─► wait for a whole batch ─► learn ─► publish ─► record, evaluate, save
"""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from trimtab.config.training import Train
from trimtab.errors import ConfigError, RecordError
from trimtab.records.run import RunDirectory
from trimtab.train.batches import BatchSource
from trimtab.train.build import build, settle_process
from trimtab.train.display import Display, Guarded, Silent
from trimtab.train.loggers import Loggers, open_loggers
from trimtab.train.memory import collect_step, rare_collections
from trimtab.train.messages import Stepped
from trimtab.train.provenance import changes
from trimtab.train.rollout_rows import batch_metrics, rollout_rows
from trimtab.train.run_state import RunState
from trimtab.train.stop import Stop
from trimtab.train.watch import Watch


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


def train(
    config: Train, path: Path, *, resume: bool = False, display: Display | None = None, stop: Stop | None = None
) -> Result:
    """Train, and leave a run directory. With `resume`, go on from its newest checkpoint.

    `stop`: whoever listens to signals already; without one it is done here.
    """
    shown = Guarded(display or Silent())
    settle_process(config.runnable().threads)
    with ExitStack() as stack:
        stop = stop or stack.enter_context(Stop())
        stop.waits = False
        stack.enter_context(rare_collections())
        run = RunDirectory.open(path) if resume else RunDirectory.create(path, config.model_dump(mode="json"))
        stack.enter_context(run)
        stack.callback(stop.end)  # nothing keeps the run directory from saying how the run ended
        try:
            session = Session(config, run, shown, stack, stop)
        except BaseException:
            stop.end()
            if not resume:
                run.discard()  # settings that cannot be run leave no run behind, and the name free
            raise
        stop.waits = True
        try:
            result = session.go(resume=resume)
        except BaseException as error:
            stop.end()
            with suppress(RecordError):  # a full disk does not take this either; the error itself says more
                run.event("stopped", str(error) or "interrupted at once", step=session.learner.version)
            raise
        run.ending = "stopped" if result.stopped else "done"
        return result


class Session:
    """A run from its beginning, or its last checkpoint, to its end."""

    def __init__(self, config: Train, run: RunDirectory, display: Guarded, stack: ExitStack, stop: Stop) -> None:
        self.config, self.run, self.display, self.stop = config, run, display, stop
        self.parts = parts = build(config, run.path, display, stack, stop.asked)
        self.learner, self.backend, self.judge, self.policy = parts.learner, parts.backend, parts.judge, parts.policy
        display.warn = self._display_failed
        self.loggers = Loggers({}, self._warn)
        stack.push(self._close_loggers)
        self.state = RunState(Watch(config.correction, config.learner.patience))
        self.batches = BatchSource(config, parts, self.state, self._note, stop.asked)

    def go(self, *, resume: bool) -> Result:
        """The whole run."""
        config, learner = self.config, self.learner
        if resume:
            self._compare()
        self.run.remember(world=self.parts.world)
        if resume:
            self.state.restore(config, self.run, self.parts, self._note)
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
        begun = time.perf_counter() - self.state.seconds
        self.display.begin(self.run.path, learner.version)
        self._tell_of_task()
        self.backend.begin(learner.weights(), learner.version)
        self._catch_up()
        while learner.version < config.steps and (stepped := self._step()):
            for note in self.state.watch.notes(stepped):
                self._note("gate", note)
            self.state.seconds = time.perf_counter() - begun
            if self._due():
                self._save()
            collect_step()
        if learner.version == config.steps and self.state.owed is None:
            return self._result(None)
        if not self._due():
            self._save()
        self.run.event("stopped", str(self.stop.reason), step=learner.version)
        return self._result(self.stop.reason)

    def _step(self) -> Stepped | None:
        """Wait for a batch, learn from it, publish, record; None where the user asked to stop."""
        config, learner, clock = self.config, self.learner, time.perf_counter()
        entries = None if self.stop else self.batches.batch()
        if entries is None:
            return None
        waited = time.perf_counter() - clock
        stepped = learner.step([answer for entry in entries for answer in entry.answers()])
        self.backend.publish(learner.weights(), learner.version)
        step = learner.version - 1
        metrics = dict(stepped.metrics) | batch_metrics(
            entries, self.state.buffer, waited=waited, seconds=time.perf_counter() - clock
        )
        if config.record.rollouts:
            self.run.rollouts(rollout_rows(step, entries, self.policy, stepped))
        last = learner.version == config.steps
        due = config.evaluate and (learner.version % config.evaluate.every == 0 or last)
        if due and not self._evaluate(learner.version, metrics):
            self.state.owed = {name: float(value) for name, value in metrics.items()}
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
        if self.state.owed is None:
            if not self.state.accuracies:
                self._evaluate(0, {})
            return
        metrics, step = dict(self.state.owed), self.learner.version - 1
        if self._evaluate(self.learner.version, metrics):
            self.state.owed = None
            if not any(line["step"] == step for line in self.run.metrics()):
                self._log(step, metrics)
            if self.learner.version == self.config.steps:
                self._save()

    def _evaluate(self, version: int, metrics: dict[str, float]) -> bool:
        """Accuracy of the present weights, into the metrics of the step that made them; before the first, on its own.

        False where a request to stop broke it off.
        """
        if self.parts.evaluator is None:
            return True
        clock = time.perf_counter()
        accuracy = self.batches.accuracy(self.parts.evaluator)
        if accuracy is None:
            return False
        self.state.accuracies.append(accuracy)
        metrics |= {"eval/accuracy": accuracy, "time/evaluate": time.perf_counter() - clock}
        if version == 0:
            problems = len(self.parts.evaluator.problems)
            said = f"Held-out accuracy {accuracy:.3f} before the first step."
            self.run.event("start", said, accuracy=accuracy, problems=problems)
            self.display.step(0, metrics)
        return True

    def _log(self, step: int, metrics: dict[str, float]) -> None:
        self.run.log(step, metrics)
        self.loggers.log(step, metrics)
        self.display.step(step + 1, metrics)

    def _tell_of_task(self) -> None:
        """What is left out of the task's prompts, and how responses are scored."""
        for kind, notes in (("task", self.parts.notes), ("reward", self.judge.new_notes())):
            for note in notes:
                self._note(kind, note)

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
        self.state.save(self.config, self.run, self.parts)

    def _compare(self) -> None:
        """Say what changed outside the run directory since the run's last session; runs of before it was noted say nothing."""
        before = self.run.facts.get("world")
        if isinstance(before, dict):
            for message in changes(cast("dict[str, Any]", before), self.parts.world, kl=self.config.kl is not None):
                self._note("changed", message)

    def _finished(self) -> bool:
        """Whether a resumed run has nothing left to do, which is said; a number of steps that is new is kept for the next time."""
        done, wanted = self.learner.version, self.config.steps
        if done > wanted:
            raise ConfigError(f"--resume needs steps of {done} or more, got {wanted}. The run has gone as far as that.")
        self.run.resettle(self.config.model_dump(mode="json"))
        if done == wanted and self.state.owed is None:
            self.display.note(f"The run is finished: all {done} steps are done. Go further with steps=N above {done}.")
        return done == wanted and self.state.owed is None

    def _result(self, stopped: str | None) -> Result:
        seen = self.state.accuracies
        return Result(
            path=self.run.path,
            steps=self.learner.version,
            before=seen[0] if seen else None,
            after=seen[-1] if seen else None,
            best=max(seen) if seen else None,
            seconds=self.state.seconds,
            stopped=stopped,
        )
