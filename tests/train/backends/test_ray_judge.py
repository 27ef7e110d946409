"""What the run does about a verifier actor that dies, cannot load, has no place or is not needed any more; with actors from a script."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from tests.train.simulated import group_of, job_of
from trimtab.config.training import Task
from trimtab.errors import RunError
from trimtab.train.backends.ray import judge as module
from trimtab.train.backends.ray.judge import JudgeActor, RayJudge
from trimtab.train.judging import AnyJudge, JudgePool
from trimtab.train.messages import Problem
from trimtab.train.tasks import GivenUpError, source

TASK = Task(options={"size": 2})
ANSWERS = [(source(TASK, 0).problem(number), "12") for number in range(3)]


class RayError(Exception):
    pass


class RayTaskError(RayError):
    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


@dataclass
class ScriptedRay:
    """Ray with actors here and now; each call of theirs does the next thing of the script."""

    script: list[str | Exception]
    made: int = 0
    killed: int = 0

    exceptions = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def remote(self, **options: object) -> Callable[[type], Any]:
        def place(*given: Any) -> Any:
            self.made += 1
            actor = JudgeActor(*given)
            calls = {name: SimpleNamespace(remote=self._called(getattr(actor, name))) for name in ("ready", "scores")}
            return SimpleNamespace(**calls)

        return lambda kind: SimpleNamespace(remote=place)

    def _called(self, method: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *given: (self.script.pop(0) if self.script else "answer", lambda: method(*given))

    def wait(self, references: list[Any], timeout: float) -> tuple[list[Any], list[Any]]:
        return ([], references) if references[0][0] == "nothing" else (references, [])

    def get(self, reference: Any) -> Any:
        if isinstance(reference[0], Exception):
            raise reference[0]
        return reference[1]()

    def is_initialized(self) -> bool:
        return True

    def kill(self, actor: object) -> None:
        self.killed += 1


def judged(monkeypatch: pytest.MonkeyPatch, *script: str | Exception) -> tuple[RayJudge, ScriptedRay]:
    ray = ScriptedRay(list(script))
    monkeypatch.setitem(sys.modules, "ray", ray)  # pyright: ignore[reportArgumentType]
    (made,) = RayJudge.several(1, TASK, 0)
    return made, ray


def test_what_a_dead_actor_held_is_scored_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    made, ray = judged(monkeypatch, "answer", RayError("gone"), "answer", "answer")
    own = source(TASK, 0)
    assert made.scores(ANSWERS) == [own.score(*answer) for answer in ANSWERS]
    assert ray.made == 2
    right: list[tuple[Problem, str]] = [(problem, problem.answer) for problem, _ in ANSWERS]
    assert all(score.correct for score in made.scores(right))
    assert ray.made == 2, "one that lives is asked again"
    made.close()
    assert ray.killed == 1


def test_what_is_special_on_a_node_is_told_once_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = judged(monkeypatch)
    monkeypatch.setattr(JudgeActor, "ready", lambda self: ["On there: the network stays."])
    with JudgePool([made]) as pool:
        assert pool.new_notes() == []
        pool.scores(ANSWERS)
        assert pool.new_notes() == ["On there: the network stays."]
        assert pool.new_notes() == []


def test_actors_that_die_over_the_same_responses_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    made, ray = judged(monkeypatch, *[RayError("its node has died")] * 8)
    with pytest.raises(RunError, match="got 4 dead ones over the same responses: its node has died"):
        made.scores(ANSWERS)
    assert ray.made == 4


def test_a_pool_of_actors_judges_groups_and_passes_on_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = judged(monkeypatch, "answer", "answer", *[RayError("its node has died")] * 8)
    assert isinstance(made, AnyJudge)
    with JudgePool([made]) as pool:
        pool.submit(group_of(job_of(0), [0]), ANSWERS[0][0], ["12", ANSWERS[0][0].answer])
        (found,) = pool.all_finished()
        assert [score.correct for score in found.scores or ()] == [False, True]
        pool.submit(group_of(job_of(1), [0]), ANSWERS[0][0], ["1", "2"])
        with pytest.raises(RunError, match=r"^Scoring needs an actor that lives, got 4 dead ones"):
            pool.all_finished()


def test_a_verifier_that_does_not_load_on_a_node_is_told_at_once_with_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    error = RayError(
        "The actor died because of an error raised in its creation task, x\n  File y\nConfigError: no module named mine."
    )
    made, ray = judged(monkeypatch, error)
    with pytest.raises(RunError, match="load on every node, got ConfigError: no module named mine"):
        made.scores(ANSWERS)
    assert ray.made == 1


def test_what_the_judge_itself_raises_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = judged(monkeypatch, "answer", RayTaskError(ValueError("as it was")))
    with pytest.raises(ValueError, match="as it was"):
        made.scores(ANSWERS)


def test_without_a_place_the_user_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = judged(monkeypatch, "nothing")
    monkeypatch.setattr(module, "PLACE", -1.0)
    with pytest.raises(RunError, match=r"needs a place with 1 CPU for each of ray\.verifiers"):
        made.scores(ANSWERS)


@pytest.mark.parametrize("why", ["stop", "close"])
def test_asked_to_stop_it_gives_up_what_is_not_scored_yet(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, _ = judged(monkeypatch, "answer", "nothing")
    if why == "stop":
        made.stop = lambda: True
    else:
        made.close()
    with pytest.raises(GivenUpError):
        made.scores(ANSWERS)
