"""The process in which verifiers run that may hang or end the interpreter. It outlives neither its parent nor its deadline."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import inspect
import math
import os
import signal
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

from trimtab.config.base import shown
from trimtab.config.training import Reward, Task
from trimtab.errors import ConfigError, UnknownNameError, nearest
from trimtab.train.messages import Problem
from trimtab.train.tasks.table import source
from trimtab.train.tasks.verifiers import VERIFIERS

Verdict = tuple[float, bool]
"""A reward, and whether it counts as right."""
Call = Callable[[Problem, str], Verdict]
OWN = -1
"""The number under which the task's own verifier is called; the others go by their place in `rewards`."""
ENOUGH = 1 - 1e-9
"""A verifier's score from which a response counts as right."""
GRACE = 5.0  # seconds past the timeout after which a worker whose parent did not kill it ends itself
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class NotFinite:
    """A reward that is no number to train on."""

    value: str


@dataclass(frozen=True)
class Raised:
    """A verifier's error."""

    error: str


Reply = Verdict | NotFinite | Raised


def main(pipe: int, parent: int) -> None:
    """Answer calls from the pipe until it closes."""
    _tie_to(parent)
    connection = Connection(pipe)
    try:
        settings, asked, fields = connection.recv()
        config = Task.from_settings(settings)
        try:
            calls = {number: _call(config, number, fields) for number in asked}
        except ConfigError as refused:
            return connection.send((type(refused).__name__, str(refused)))
        connection.send(None)
        while True:
            number, problem, response = connection.recv()
            with _deadline(config.timeout):
                reply = _reply(calls[number], problem, response)
            connection.send(reply)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        return None  # the judge closed, or is gone


def _tie_to(parent: int) -> None:
    """End with the parent, even in the midst of a call; where memory runs out, before the learner."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
    if os.getppid() != parent:  # it ended before it could be tied to
        os._exit(0)


@contextlib.contextmanager
def _deadline(timeout: float) -> Generator[None]:
    """End the process if the body takes far too long. A watchdog in C: a regular expression never lets go of the interpreter."""
    with open(os.devnull, "w") as nowhere:
        faulthandler.dump_traceback_later(timeout + GRACE, exit=True, file=nowhere)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()


def _reply(call: Call, problem: Problem, response: str) -> Reply:
    try:
        reward, correct = call(problem, response)
    except BaseException as error:  # sys.exit() in a reward is its failure, not the end of the worker
        return Raised(f"{type(error).__name__}: {error}"[:500])
    return (reward, correct) if math.isfinite(reward) else NotFinite(f"not finite: {reward}")


def _call(config: Task, number: int, fields: list[str]) -> Call:
    """What scores a response: the task's own verifier, a named one, or the user's function."""
    if number == OWN:
        own = source(config, 0)

        def judged(problem: Problem, response: str) -> Verdict:
            score = own.score(problem, response)
            return score.reward, score.correct

        return judged
    reward = config.rewards[number]
    return _named(reward) if reward.verifier else _imported(reward, fields)


def _named(reward: Reward) -> Call:
    verify = VERIFIERS[str(reward.verifier)](reward)

    def verified(problem: Problem, response: str) -> Verdict:
        value = verify(response, problem.answer)
        return value, value >= ENOUGH

    return verified


def _imported(reward: Reward, fields: list[str]) -> Call:
    """The user's function, called with those of the problem's fields it has parameters for."""
    function = _found(str(reward.function))
    takes = _parameters(str(reward.function), function, {"prompt", "response", "answer", *fields})

    def called(problem: Problem, response: str) -> Verdict:
        given = {**problem.extra, "prompt": problem.prompt, "response": response, "answer": problem.answer}
        wanted = given if takes is None else {name: given[name] for name in takes & given.keys()}
        return _read(function(**wanted))

    return called


def _found(path: str) -> Callable[..., Any]:
    module_name, _, name = path.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except BaseException as error:
        why = f"{type(error).__name__}: {error}"[:300]
        raise ConfigError(
            f"Reward needs a module that can be imported, got {shown(path)}: {why}. It is looked for in {here} and the Python path."
        ) from None
    function = getattr(module, name, None)
    if function is None:
        names = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise UnknownNameError(f"Module {module_name} has no function {shown(name)}. {nearest(name, names)}")
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"Reward needs a plain function, got {shown(path)}, {shown(function)}.")
    return cast("Callable[..., Any]", function)


def _parameters(path: str, function: Callable[..., Any], known: set[str]) -> set[str] | None:
    """Names of the parameters to fill; None: all there are. One that no field can fill is refused before training."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # written in C
        return None
    for parameter in parameters:
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise ConfigError(
                f"Reward needs parameters that go by name, got {shown(path)}{inspect.signature(function)}."
            )
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if needed and parameter.name not in known:
            raise UnknownNameError(
                f"Reward {shown(path)} needs {shown(parameter.name)}, which no problem has. "
                f"{nearest(parameter.name, sorted(known))}"
            )
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return None
    return {parameter.name for parameter in parameters}


def _read(returned: Any) -> Verdict:
    """A number (right above one half), a boolean, or a mapping with `reward` and perhaps `correct`."""
    value, correct = returned, None
    if isinstance(returned, Mapping):
        fields = cast("Mapping[str, Any]", returned)
        value, correct = fields["reward"], fields.get("correct")
    if hasattr(value, "item"):  # a scalar of numpy or torch
        value = value.item()
    if not isinstance(value, int | float):
        raise TypeError(f"a reward is a number, got {shown(value)}")
    return float(value), value > 0.5 if correct is None else bool(correct)
