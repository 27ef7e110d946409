"""Scores responses. A verifier that raises, hangs or crashes costs one sample its reward, and stops nothing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import TracebackType

from trimtab.config.base import excerpt
from trimtab.config.training import Task
from trimtab.errors import ConfigError
from trimtab.train.messages import Problem, Score
from trimtab.train.tasks.isolation.process import Isolation, VerifierProcess
from trimtab.train.tasks.isolation.worker import ENOUGH, OWN, Failure, Reply, is_trainable
from trimtab.train.tasks.protocol import Source
from trimtab.train.tasks.table import is_evaluated, is_isolated
from trimtab.train.tasks.verifiers import INLINE, VERIFIERS


class GivenUpError(Exception):
    """The run was asked to stop before every response was scored."""


def _never() -> bool:
    return False


class Judge:
    """Scores responses by the task's own verifier or by its rewards.

    The reward is the weighted sum. A response is correct by the first reward alone: a verifier's score of 1, a function's
    above one half (or what it says under `correct`). Where any verifier fails the sample scores 0 and is not correct.
    `stop` is looked at before each response that verifiers score in a process of their own: those may take their time.
    """

    def __init__(self, config: Task, source: Source, stop: Callable[[], bool] = _never) -> None:
        names = [reward.called for reward in config.rewards]
        if len(set(names)) < len(names):
            raise ConfigError(f"Task needs rewards of different names, got {excerpt(names)}. Give one a `name`.")
        self._source = source
        self._name = config.name
        self._rewards = config.rewards
        self._inline = {
            number: VERIFIERS[reward.verifier](reward)
            for number, reward in enumerate(config.rewards)
            if reward.verifier in INLINE
        }
        self.stop = stop
        """Whether the run was asked to stop; then `scores` gives up."""
        fields = list(source.problem(0).extra) if any(reward.function for reward in config.rewards) else []
        self._processes: dict[int, VerifierProcess] = {}
        try:
            for isolation, numbers in _isolated(config, self._inline.keys()).items():
                process = VerifierProcess(config, numbers, fields, isolation)
                self._processes |= dict.fromkeys(numbers, process)
        except BaseException:
            self.close()
            raise
        self.notes = [
            f"Responses are run as code, and the system did not let their process leave the network: {process.networked}."
            for process in dict.fromkeys(self._processes.values())
            if process.isolation.fresh and process.networked
        ]
        """What the user should know about how responses are scored."""

    @property
    def is_isolated(self) -> bool:
        """Whether it has verifiers in processes of their own, which may take their time."""
        return bool(self._processes)

    def scores(self, answers: Sequence[tuple[Problem, str]]) -> list[Score]:
        """One score per answer, in order; GivenUpError where `stop` comes first."""
        found: list[Score] = []
        for problem, response in answers:
            if self._processes and self.stop():
                raise GivenUpError
            found.append(self._score(problem, response))
        return found

    def close(self) -> None:
        """End the processes of the verifiers, if there are any."""
        for process in self._processes.values():
            process.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _score(self, problem: Problem, response: str) -> Score:
        if not self._rewards and not self._processes:
            try:
                return self._source.score(problem, response)
            except Exception as error:
                return Score(0.0, False, {}, f"{type(error).__name__}: {error}")
        numbers = range(len(self._rewards)) if self._rewards else (OWN,)
        parts: dict[str, float] = {}
        correct, total, failed = False, 0.0, None
        for number in numbers:
            name, weight = self._named(number)
            reply = self._reply(number, problem, response)
            if isinstance(reply, Failure):
                parts[name], right = 0.0, False
                failed = failed or f"{reply.why} ({name})"
            else:
                parts[name], right = reply
            correct = right if number == numbers[0] else correct
            total += weight * parts[name]
        if failed is None and not is_trainable(total):
            return Score(0.0, False, parts, "the weighted sum is not finite")
        return Score(total, correct, parts) if failed is None else Score(0.0, False, parts, failed)

    def _named(self, number: int) -> tuple[str, float]:
        return (self._name, 1.0) if number == OWN else (self._rewards[number].called, self._rewards[number].weight)

    def _reply(self, number: int, problem: Problem, response: str) -> Reply:
        if number in self._processes:
            return self._processes[number].reply(number, problem, response)
        try:
            value = self._inline[number](response, problem.answer)
        except Exception as error:
            return Failure("error", f"{type(error).__name__}: {error}")
        return value, value >= ENOUGH


def _isolated(config: Task, inline: Collection[int]) -> dict[Isolation, list[int]]:
    """Which verifiers share a process, and how it is cut off: the user's code keeps the network, unless it runs responses."""
    if not config.rewards:
        return {Isolation(fresh=is_evaluated(config), network=False): [OWN]} if is_isolated(config) else {}
    found: dict[Isolation, list[int]] = {}
    for number, reward in enumerate(config.rewards):
        if number not in inline:
            network = reward.function is not None and not reward.executes
            found.setdefault(Isolation(fresh=reward.executes, network=network), []).append(number)
    return found
