"""Judges as actors: verifiers that run wherever the cluster has room, each with processes of its own.

A score depends on problem and response alone, so that what an actor held when it died is scored again by the next.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trimtab.config.training import Task
from trimtab.errors import RunError
from trimtab.train.messages import Problem, Score
from trimtab.train.tasks import GivenUpError, Judge, source

LOOK = 0.1
"""Seconds between two looks at whether the run was asked to stop."""
PLACE = 600.0
"""Seconds a verifier may wait for a place, and need to load."""
DEATHS = 4
"""How many actors may die over the same responses."""


class JudgeActor:
    """A judge on some node. It works where the run was started, if that folder is there too."""

    def __init__(self, task: Task, seed: int, folder: str) -> None:
        with contextlib.suppress(OSError):
            os.chdir(folder)
        self._judge = Judge(task, source(task, seed))

    def ready(self) -> list[str]:
        """What the user should know about how responses are scored on this node."""
        return [f"On {socket.gethostname()}: {note}" for note in self._judge.notes]

    def scores(self, answers: Sequence[tuple[Problem, str]]) -> bytes:
        """One score per answer, in order."""
        return pickle.dumps(self._judge.scores(answers))


class RayJudge:
    """An actor that scores, as the run sees it; to be used from one thread at a time. It is placed when it is first needed."""

    is_isolated = True
    """It takes its time elsewhere."""

    def __init__(self, task: Task, seed: int, notes: list[str], stop: Callable[[], bool] = lambda: False) -> None:
        self.notes = list(notes)
        self.stop = stop
        self._made = (task, seed, str(Path.cwd()))
        self._actor: Any = None
        self._is_closed = False

    @classmethod
    def several(cls, count: int, task: Task, seed: int, stop: Callable[[], bool] = lambda: False) -> list[RayJudge]:
        """So many. Settings that no judge can be made of are refused here and now, before anything is placed."""
        with Judge(task, source(task, seed)) as judge:
            return [cls(task, seed, judge.notes, stop) for _ in range(count)]

    def scores(self, answers: Sequence[tuple[Problem, str]]) -> list[Score]:
        """One score per answer, in order; GivenUpError where `stop` comes first."""
        ray: Any = importlib.import_module("ray")
        gone = ""
        for _ in range(DEATHS):
            try:
                actor = self._actor or self._place(ray)
                return pickle.loads(ray.get(self._awaited(ray, actor.scores.remote(list(answers)), None)))
            except ray.exceptions.RayTaskError as error:  # the judge itself raised
                raise error.cause from None
            except ray.exceptions.RayError as error:
                self._actor, gone = None, _reason(error)
        raise RunError(f"Scoring needs an actor that lives, got {DEATHS} dead ones over the same responses: {gone}")

    def close(self) -> None:
        """Give up what is not scored yet, and end the actor. Can be called again."""
        self._is_closed = True
        ray: Any = importlib.import_module("ray")
        if self._actor is not None and ray.is_initialized():
            with contextlib.suppress(ray.exceptions.RayError, ValueError):  # ValueError: no such actor any more
                ray.kill(self._actor)

    def _place(self, ray: Any) -> Any:
        made = ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(JudgeActor)
        actor = made.remote(*self._made)
        self.notes += ray.get(self._awaited(ray, actor.ready.remote(), PLACE))
        self._actor = actor
        return actor

    def _awaited(self, ray: Any, reference: Any, limit: float | None) -> Any:
        """A result that has come."""
        begun = time.monotonic()
        while not ray.wait([reference], timeout=LOOK)[0]:
            if self._is_closed or self.stop():
                raise GivenUpError
            if limit is not None and time.monotonic() - begun > limit:
                raise RunError(
                    f"Scoring needs a place with 1 CPU for each of ray.verifiers, got none for {limit:g} s. "
                    "Lower ray.verifiers, or add nodes."
                )
        return reference


def _reason(error: Exception) -> str:
    """Why an actor died, in a line; raises where the next one would die of the same."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if "creation task" in lines[0]:  # the end of a traceback from the node
        raise RunError(
            f"Scoring needs verifiers that load on every node, got {lines[-1].strip()} What the task names has to be there too."
        )
    return lines[0]
