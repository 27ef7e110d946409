"""Scores responses. A verifier that raises, hangs or crashes costs one sample its reward, and stops nothing."""

from __future__ import annotations

import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Literal

from trimtab.config.base import shown
from trimtab.config.training import Task
from trimtab.errors import ConfigError, UnknownNameError
from trimtab.train.messages import Problem, Score
from trimtab.train.tasks.protocol import Source
from trimtab.train.tasks.table import is_isolated
from trimtab.train.tasks.verifiers import INLINE, VERIFIERS
from trimtab.train.tasks.worker import ENOUGH, OWN, NotFinite, Raised, Reply, Verdict

Kind = Literal["error", "timeout", "crash", "not finite"]
_START = 120.0  # seconds the imports of a reward function may take
_BOOT = "import sys; sys.path[:] = {path!r}; from trimtab.train.tasks.worker import main; main({pipe}, {parent})"


class _FailedError(Exception):
    """Why one verifier gave one sample no score."""

    def __init__(self, kind: Kind, why: str) -> None:
        super().__init__(why)
        self.kind: Kind = kind


class Judge:
    """Scores responses by the task's own verifier or by its rewards.

    The reward is the weighted sum. A response is correct by the first reward alone: a verifier's score of 1, a function's
    above one half (or what it says under `correct`). Where any verifier fails the sample scores 0 and is not correct.
    """

    def __init__(self, config: Task, source: Source) -> None:
        names = [reward.called for reward in config.rewards]
        if len(set(names)) < len(names):
            raise ConfigError(f"Task needs rewards of different names, got {shown(names)}. Give one a `name`.")
        self.failures: Counter[str] = Counter()
        """How many verifications failed, by kind: error, timeout, crash, not finite."""
        self._source = source
        self._name = config.name
        self._rewards = config.rewards
        self._inline = {
            number: VERIFIERS[reward.verifier](reward)
            for number, reward in enumerate(config.rewards)
            if reward.verifier in INLINE
        }
        isolated = [number for number in range(len(config.rewards)) if number not in self._inline]
        if not config.rewards and is_isolated(config):
            isolated = [OWN]
        fields = list(source.problem(0).extra) if any(reward.function for reward in config.rewards) else []
        self._worker = _Worker(config, isolated, fields) if isolated else None

    def scores(self, answers: Sequence[tuple[Problem, str]]) -> list[Score]:
        """One score per answer, in order."""
        return [self._score(problem, response) for problem, response in answers]

    def close(self) -> None:
        """End the process of the verifiers, if there is one."""
        if self._worker is not None:
            self._worker.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _score(self, problem: Problem, response: str) -> Score:
        if not self._rewards and self._worker is None:
            try:
                return self._source.score(problem, response)
            except Exception as error:
                return self._failed({}, "error", f"{type(error).__name__}: {error}")
        numbers = range(len(self._rewards)) if self._rewards else (OWN,)
        parts: dict[str, float] = {}
        correct, total, failed = False, 0.0, None
        for number in numbers:
            name, weight = self._named(number)
            try:
                parts[name], right = self._verdict(number, problem, response)
            except _FailedError as failure:
                parts[name], right = 0.0, False
                self.failures[failure.kind] += 1
                failed = failed or f"{failure} ({name})"
            correct = right if number == numbers[0] else correct
            total += weight * parts[name]
        if failed is None and not math.isfinite(total):
            return self._failed(parts, "not finite", "the weighted sum is not finite")
        return Score(total, correct, parts) if failed is None else Score(0.0, False, parts, failed)

    def _failed(self, parts: dict[str, float], kind: Kind, why: str) -> Score:
        self.failures[kind] += 1
        return Score(0.0, False, parts, why)

    def _named(self, number: int) -> tuple[str, float]:
        return (self._name, 1.0) if number == OWN else (self._rewards[number].called, self._rewards[number].weight)

    def _verdict(self, number: int, problem: Problem, response: str) -> Verdict:
        verify = self._inline.get(number)
        if verify is None:
            assert self._worker is not None
            return self._worker.verdict(number, problem, response)
        try:
            value = verify(response, problem.answer)
        except Exception as error:
            raise _FailedError("error", f"{type(error).__name__}: {error}") from error
        return value, value >= ENOUGH


class _Worker:
    """A process that runs verifiers, begun again after each that hung or crashed."""

    def __init__(self, config: Task, numbers: list[int], fields: list[str]) -> None:
        self._config = config
        self._numbers = numbers
        self._fields = fields
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None
        self._closed = False
        self._lock = threading.Lock()
        try:
            self._started()
        except _FailedError as failure:
            raise ConfigError(f"Reward needs verifiers that can be loaded, got: {failure}.") from None

    def verdict(self, number: int, problem: Problem, response: str) -> Verdict:
        """What a verifier says within the timeout."""
        with self._lock:
            reply = self._asked(number, problem, response)
        if isinstance(reply, NotFinite):
            raise _FailedError("not finite", reply.value)
        if isinstance(reply, Raised):
            raise _FailedError("error", reply.error)
        return reply

    def close(self) -> None:
        """End the process for good."""
        with self._lock:
            self._closed = True
            self._stop()

    def _asked(self, number: int, problem: Problem, response: str) -> Reply:
        if self._closed:
            raise RuntimeError("The judge is closed; make another one to score more responses.")
        try:
            asked = pickle.dumps((number, problem, response))
        except Exception as error:  # a field of the problem that cannot leave this process
            raise _FailedError("error", f"{type(error).__name__}: {error}") from error
        process, connection = self._alive()
        try:
            connection.send_bytes(asked)
            if connection.poll(self._config.timeout):
                return connection.recv()
        except (EOFError, OSError):
            raise self._crash(process) from None
        except BaseException:  # what would come back now belongs to no one
            self._stop()
            raise
        self._stop()
        raise _FailedError("timeout", f"timeout after {self._config.timeout:g} s")

    def _alive(self) -> tuple[subprocess.Popen[bytes], Connection]:
        """The running process, or a new one: it may have ended with the thread that began it."""
        if self._running is not None and self._running[0].poll() is None:
            return self._running
        self._stop()
        try:
            return self._started()
        except ConfigError as refused:
            raise _FailedError("crash", f"the verifier could not be loaded again: {refused}") from None

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        here, theirs = socket.socketpair()
        ours = Connection(here.detach())
        boot = _BOOT.format(path=sys.path, pipe=theirs.fileno(), parent=os.getpid())
        process = subprocess.Popen(
            [sys.executable, "-c", boot],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # what a reward prints is not the run's output; stderr passes
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # an interrupt at the keyboard is the run's to handle
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        theirs.close()
        self._running = process, ours
        try:
            ours.send((self._config.settings(), self._numbers, self._fields))
            refusal = (
                ours.recv() if ours.poll(_START) else ("ConfigError", f"Reward needs to load within {_START:g} s.")
            )
        except (EOFError, OSError):
            raise self._crash(process) from None
        except BaseException:
            self._stop()
            raise
        if refusal is not None:
            self._stop()
            kind, message = refusal
            raise (UnknownNameError if kind == UnknownNameError.__name__ else ConfigError)(message)
        return process, ours

    def _crash(self, process: subprocess.Popen[bytes]) -> _FailedError:
        """How the process ended; it has, or is about to."""
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            code = None
        self._stop()
        if code is not None and code < 0:
            return _FailedError("crash", f"the verifier's process was ended by signal {-code}")
        return _FailedError("crash", f"the verifier's process ended with exit code {code}")

    def _stop(self) -> None:
        """Kill the process and whatever it began."""
        if self._running is None:
            return
        process, connection = self._running
        self._running = None
        connection.close()
        if process.poll() is None:  # once it is reaped its number may be another's
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
