"""The process in which verifiers run that may hang, end the interpreter or be turned against it.

the learner's judge ◄─ JSON ─► worker: loads verifiers ─► answers each call itself, or forks a process that answers one and ends
                                  ▲ kept by a guard, which ends it and all it began when either side is gone
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import inspect
import math
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, cast, get_args

from trimtab.config.base import excerpt
from trimtab.config.training import Reward, Task
from trimtab.errors import ConfigError, UnknownNameError, nearest
from trimtab.train.children.children import adopt_orphans, child_pids, die_with, end_descendants, exit_code
from trimtab.train.messages import Problem
from trimtab.train.tasks.isolation import guard, wire
from trimtab.train.tasks.table import source
from trimtab.train.tasks.verifiers import VERIFIERS

Verdict = tuple[float, bool]
"""A reward, and whether it counts as right."""
Call = Callable[[Problem, str], Verdict]
OWN = -1
"""The number under which the task's own verifier is called; the others go by their place in `rewards`."""
ENOUGH = 1 - 1e-9
"""A verifier's score from which a response counts as right."""
LARGEST = (2 - 2**-23) * 2.0**127
"""The greatest float32: the learner's numbers end here."""
MEMORY = 4 << 30
"""Bytes that a response which is run as code may take beyond what its process begins with."""
LINGER = 5.0  # seconds in which a process that closed its pipe ends, or is ended
ERROR = 500  # characters of an error that are told
Kind = Literal["error", "timeout", "crash", "not finite"]
KINDS: frozenset[str] = frozenset(get_args(Kind))


@dataclass(frozen=True)
class Failure:
    """Why a verifier gave no score."""

    kind: Kind
    why: str


Reply = Verdict | Failure


def run_verifiers(pipe: int, parent: int) -> None:
    """Answer calls from the pipe until it closes, under a guard."""
    guard.guarded(lambda: _serve(socket.socket(fileno=pipe)), pipe, parent)


def reply_of(message: Any) -> Reply:
    """The reply that a message holds; RubbishError where it holds none. Whoever wrote it may have been the response."""
    match message:
        case {"reward": float() as reward, "correct": bool() as correct} if is_trainable(reward):
            return reward, correct
        case {"failed": str() as kind, "why": str() as why} if kind in KINDS:
            return Failure(cast("Kind", kind), why[:ERROR])
        case _:
            raise wire.RubbishError("no reply")


def is_trainable(reward: float) -> bool:
    """Whether a reward is a number of the learner's: finite, in float32."""
    return abs(reward) <= LARGEST


def _serve(channel: socket.socket) -> None:
    settings, asked, fields, networked, fresh = wire.receive(channel, wire.REQUEST)
    config = Task.from_settings(settings)
    refused = None if networked else guard.leave_network()
    try:
        calls = {number: _call(config, number, fields) for number in asked}
    except ConfigError as error:
        return wire.send(channel, {"refused": type(error).__name__, "why": str(error)})
    wire.send(channel, {"ready": True, "network": refused})
    if fresh:
        adopt_orphans()
        gc.freeze()  # a collection in a child would copy what it could share
    with contextlib.suppress(EOFError):  # the judge closed
        while True:
            turn, number, problem, response = wire.receive(channel, wire.REQUEST)
            call, problem = calls[number], Problem(**problem)
            if fresh:
                memory = (
                    MEMORY if number == OWN else None
                )  # a function of the user's may start what needs more, such as CUDA
                reply = forked_reply(call, problem, response, config.timeout, channel, memory)
            else:
                reply = _reply(call, problem, response)
            wire.send(channel, [turn, _message(reply)])


def _message(reply: Reply) -> dict[str, Any]:
    if isinstance(reply, Failure):
        return {"failed": reply.kind, "why": reply.why}
    return {"reward": reply[0], "correct": reply[1]}


def _reply(call: Call, problem: Problem, response: str) -> Reply:
    """What a call says. A process that the call forked ends here if it comes back: it is not the one that was asked."""
    mine = os.getpid()
    try:
        reward, correct = call(problem, response)
    except BaseException as error:  # sys.exit() in a reward is its failure, not the end of the worker
        if os.getpid() != mine:
            os._exit(error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else 1)
        return Failure("error", f"{type(error).__name__}: {error}"[:ERROR])
    if os.getpid() != mine:
        os._exit(0)
    if is_trainable(reward):
        return reward, correct
    return Failure("not finite", f"{'too large for float32' if math.isfinite(reward) else 'not finite'}: {reward}")


def forked_reply(
    call: Call, problem: Problem, response: str, timeout: float, channel: socket.socket, memory: int | None
) -> Reply:
    """What a call says in a process forked for it, which ends with all that it began: it can spoil no other's score.

    `memory`: bytes that it may take beyond what this process has; None: what the system lets it have.
    """
    until, spared = time.monotonic() + timeout, child_pids()  # what the module began when it was loaded
    ours, theirs = socket.socketpair()
    mine, child = os.getpid(), os.fork()
    if child == 0:
        for each in (channel, ours):
            each.close()
        _answer_once(call, problem, response, theirs, mine, memory)
    theirs.close()
    with ours:
        try:
            return reply_of(wire.receive(ours, wire.REPLY, until))
        except TimeoutError:
            return Failure("timeout", "")
        except wire.RubbishError as error:
            return Failure("crash", f"the verifier's process sent no reply but {error}")
        except (EOFError, OSError):
            return Failure("crash", crash_of(_awaited(child)))
        finally:
            end_descendants(child, spared)


def _answer_once(
    call: Call, problem: Problem, response: str, channel: socket.socket, parent: int, memory: int | None
) -> NoReturn:
    with contextlib.suppress(BaseException):
        os.setpgid(0, 0)
        die_with(parent, code=0)
        guard.leave_users()
        if memory is not None:
            guard.limit_memory(memory)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # the terminal is not the response's
        wire.send(channel, _message(_reply(call, problem, response)))
        os._exit(0)
    os._exit(1)


def _awaited(child: int) -> int | None:
    """The exit code of a process that has closed its pipe; None where it lives on all the same."""
    until = time.monotonic() + LINGER
    while (code := exit_code(child)) is None and time.monotonic() < until:
        time.sleep(0.001)
    return code


def crash_of(code: int | None) -> str:
    """How a process ended, by its exit code or minus its signal."""
    if code is not None and code < 0:
        return f"the verifier's process was ended by signal {-code}"
    return f"the verifier's process ended with exit code {code}"


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
            f"Reward needs a module that can be imported, got {excerpt(path)}: {why}. It is looked for in {here} and the Python path."
        ) from None
    function = getattr(module, name, None)
    if function is None:
        names = [each for each, value in vars(module).items() if callable(value) and not each.startswith("_")]
        raise UnknownNameError(f"Module {module_name} has no function {excerpt(name)}. {nearest(name, names)}")
    if not callable(function) or inspect.iscoroutinefunction(function):
        raise ConfigError(f"Reward needs a plain function, got {excerpt(path)}, {excerpt(function)}.")
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
                f"Reward needs parameters that go by name, got {excerpt(path)}{inspect.signature(function)}."
            )
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_KEYWORD,
            parameter.VAR_POSITIONAL,
        )
        if needed and parameter.name not in known:
            raise UnknownNameError(
                f"Reward {excerpt(path)} needs {excerpt(parameter.name)}, which no problem has. "
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
        raise TypeError(f"a reward is a number, got {excerpt(value)}")
    if correct is not None and hasattr(correct, "item"):
        correct = correct.item()
    if correct is not None and not isinstance(correct, bool):
        raise TypeError(f"correct is True or False, got {excerpt(correct)}")
    return float(value), value > 0.5 if correct is None else correct
