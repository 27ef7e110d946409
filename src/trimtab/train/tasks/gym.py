"""Every task of reasoning-gym, by `gym:NAME`; its options are those of the task's own configuration."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import random
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from trimtab.config.base import excerpt
from trimtab.config.training import Task
from trimtab.errors import ConfigError, UnknownNameError, nearest
from trimtab.train.messages import Problem, Score
from trimtab.train.tasks.protocol import framed, is_held_out, stream

CHUNK = 500
"""Problems per dataset. Several tasks make all of theirs at construction, so one dataset cannot go on without end."""
READ_VERSION = "0.1.25"
"""The version of reasoning-gym whose verifiers were read for code that they run."""
EVALUATING = {
    "binary_matrix": "eval in binary_matrix.py, line 111",
    "countdown": "sympy's parse_expr in countdown.py, line 221",
    "intermediate_integration": "sympy's parse_expr in intermediate_integration.py, line 260",
    "n_queens": "eval in n_queens.py, line 155",
    "polynomial_multiplication": "sympy's parse_expr in polynomial_multiplication.py, line 166",
    "puzzle24": "sympy's parse_expr in puzzle24.py, line 119",
    "simple_integration": "sympy's parse_expr in simple_integration.py, line 107",
    "spiral_matrix": "eval in spiral_matrix.py, line 143",
    "string_insertion": "eval in string_insertion.py, line 88",
}
"""Its tasks whose verifiers run responses, and by what. Those of other versions, and tasks that others registered, count as well."""
_TRIES = 64
_TAGGED = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


class Gym:
    """Problems of a reasoning-gym task.

    Scored is what stands in the last <answer></answer> of a response, or all of it where there is none. In reasoning-gym
    0.1.25 isomorphic_strings, polynomial_multiplication, ransom_note and word_ladder walk through sets of strings: they
    give the same problems again only under the same PYTHONHASHSEED.
    """

    def __init__(self, config: Task, seed: int) -> None:
        self.characters: str | None = None
        self.max_tokens: int | None = None
        self._name = config.name.partition(":")[2]
        self._template = config.template
        self._seed = seed
        self._made = _maker(self._name, dict(config.options))
        self._dataset = lru_cache(maxsize=4)(self._keyed)
        self._verifier = self._dataset("verifier")  # also refuses impossible options now
        _check_allowed(config)

    def problem(self, index: int) -> Problem:
        """Training problem number `index`: of the first draw whose question is not held out."""
        chunk, place = divmod(index, CHUNK)
        for attempt in range(_TRIES):
            entry = self._entry(self._dataset(self._seed, attempt, chunk), place)
            if entry is not None and not is_held_out(entry["question"]):
                return self._problem(entry)
        raise ConfigError(f"Task gym:{self._name} needs more than a handful of problems. Its options leave too few.")

    def held_out(self, count: int) -> list[Problem]:
        """Up to `count` different problems never trained on."""
        found: dict[str, Problem] = {}
        for draw in range(16 * count + CHUNK):
            if len(found) >= count:
                break
            chunk, place = divmod(draw, CHUNK)
            entry = self._entry(self._dataset("held out", chunk), place)
            if entry is not None and is_held_out(entry["question"]):
                found.setdefault(entry["question"], self._problem(entry))
        return list(found.values())

    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """None: reasoning-gym shows answers, not the way to them."""
        raise ConfigError(
            f"Task needs a built-in task for a warm start, got 'gym:{self._name}'. Set model.warm_start to null."
        )

    def score(self, problem: Problem, response: str) -> Score:
        """What the task's `score_answer` says; correct from 1."""
        tagged = _TAGGED.findall(response)
        answer = (tagged[-1] if tagged else response).strip()
        value = float(self._verifier.score_answer(answer, dict(problem.extra)))
        return Score(reward=value, correct=value >= 1, parts={f"gym:{self._name}": value})

    def _keyed(self, *key: object) -> Any:
        # Item i of a dataset is drawn with seed + i: seeds side by side would share nearly all their items
        return self._made(stream("gym", *key).getrandbits(31))

    def _entry(self, dataset: Any, place: int) -> dict[str, Any] | None:
        """An item, or None where the generator gives up on this one."""
        try:
            return dataset[place]
        except Exception:
            return None

    def _problem(self, entry: dict[str, Any]) -> Problem:
        question = str(entry["question"])
        answer = entry["answer"]  # None where the task has no single one
        return Problem(
            id=f"gym:{self._name}:{question}",
            prompt=framed(self._template, question),
            answer="" if answer is None else str(answer),
            extra=entry,
        )


def check_gym(config: Task) -> None:
    """Refuse a task that reasoning-gym does not have, options that it does not take, and one that needs to be allowed."""
    _maker(config.name.partition(":")[2], dict(config.options))
    _check_allowed(config)


def evaluated(config: Task) -> tuple[str, str] | None:
    """The task of reasoning-gym whose own verifier runs responses as code, and where; None where it does not, or has no say."""
    if config.rewards:
        return None
    parts = _parts(config.name.partition(":")[2], config.options)
    return next(((name, where) for name in parts if (where := evaluator(name)) is not None), None)


def evaluator(name: str) -> str | None:
    """What a task's verifier does with a response where it runs it as code, or may; None: it reads it as data."""
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        return None
    if not DATASETS[name][0].__module__.startswith("reasoning_gym."):
        return "may run it as Python code (another package registered the task)"
    version = importlib.metadata.version("reasoning-gym")
    if version != READ_VERSION:
        return f"may run it as Python code (this is version {version}; the verifiers of {READ_VERSION} were checked)"
    return f"runs it as Python code ({EVALUATING[name]})" if name in EVALUATING else None


def _parts(name: str, options: Mapping[str, Any]) -> list[str]:
    """The tasks that score: a composite's are those it is made of."""
    if name != "composite":
        return [name]
    return [each for part in options.get("datasets", []) for each in _parts(part["name"], part.get("config", {}))]


def _check_allowed(config: Task) -> None:
    found = None if config.allow_eval else evaluated(config)
    if found is not None:
        name, where = found
        raise ConfigError(
            f"Task needs allow_eval: true with {excerpt(config.name)}, got false: to score a response, the verifier of {name} in "
            f"reasoning-gym {where}, with your rights to files. Set it, or score by `rewards`."
        )


def _maker(name: str, options: dict[str, Any]) -> Callable[[int], Any]:
    """From a seed to a dataset of the task."""
    if importlib.util.find_spec("reasoning_gym") is None:
        raise ConfigError("Task needs the package reasoning-gym with gym:NAME. `pip install reasoning-gym`.")
    from reasoning_gym.factory import DATASETS

    if name not in DATASETS:
        raise UnknownNameError(f"reasoning-gym has no task {excerpt(name)}. {nearest(name, sorted(DATASETS))}")
    dataset, configuration = DATASETS[name]
    fields = {field.name for field in dataclasses.fields(configuration)} - {"seed", "size"}
    for key in options:
        if key not in fields:
            raise UnknownNameError(f"Task gym:{name} has no option {excerpt(key)}. {nearest(key, sorted(fields))}")

    def made(seed: int) -> Any:
        try:
            return dataset(config=cast("Any", configuration)(**_read(name, options), seed=seed, size=CHUNK))
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise ConfigError(f"Task gym:{name} needs other options, got {excerpt(options)}. {why}") from error

    return made


def _read(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Options as the task's class wants them: a composite lists its parts as objects of their own."""
    if name != "composite":
        return options
    from reasoning_gym.composite import DatasetSpec

    defaults: dict[str, Any] = {"weight": 1.0, "config": {}}
    return {"datasets": [DatasetSpec(**(defaults | part)) for part in options.get("datasets", [])]}
