"""How far a run has come: all that a checkpoint keeps beside what the learner keeps of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimtab.config.training import Train
from trimtab.records.run import RunDirectory
from trimtab.train import checkpoint
from trimtab.train.buffer import Buffer
from trimtab.train.card import HeldOut, model_card
from trimtab.train.parts import Parts
from trimtab.train.saved import read_state
from trimtab.train.watch import Watch

Note = Callable[[str, str], None]
"""Takes a kind of event and what to tell the user."""


@dataclass(eq=False)
class Standing:
    """The groups on their way, what was measured and told so far, and the time it took."""

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
        values, arrays = self.buffer.snapshot()
        state: dict[str, Any] = {
            "version": learner.version,
            "skipped": dict(learner.skipped),
            "buffer": values,
            "watch": self.watch.state(),
            "accuracies": self.accuracies,
            "seconds": self.seconds,
            "owed": self.owed,
            "rows": run.rows.total(),
        }
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
        self._load(newest, config, run, parts, note)

    def _load(self, path: Path, config: Train, run: RunDirectory, parts: Parts, note: Note) -> None:
        learner = parts.learner
        saved = checkpoint.restore(path, learner=learner.load)
        state, self.buffer = read_state(path, saved, config, parts.policy.vocabulary)
        self.buffer.renew(lambda number: parts.make([number])[0])
        learner.version = state.version
        learner.skipped.update(state.skipped)
        self.watch.restore(state.watch.model_dump())
        self.accuracies, self.seconds, self.owed = list(state.accuracies), state.seconds, state.owed
        checkpoint.clear_leftovers(run.checkpoints)
        run.rewind(state.version)
        rollout, record = config.rollout, config.record
        every = rollout.groups * rollout.samples if record.rollouts == 1 else None
        logged = range(state.version - (state.owed is not None))
        for message in run.gaps(logged, rows=state.rows, per_step=every):
            note("missing", f"{message} The run goes on without them.")
