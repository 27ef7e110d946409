"""The learner's side of a process of verifiers: asked, waited for, ended when it is late, begun again when it is gone."""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab.config.training import Task
from trimtab.config.visible import visible
from trimtab.errors import ConfigError, UnknownNameError
from trimtab.train.children.children import Child
from trimtab.train.messages import Problem
from trimtab.train.tasks.isolation import wire
from trimtab.train.tasks.isolation.worker import Failure, Reply, crash_of, reply_of

PASSED = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LANGUAGE|LC_\w+|TZ|TMPDIR|TMP|TEMP|PYTHON\w*|VIRTUAL_ENV|CONDA_PREFIX|LD_LIBRARY_PATH|DYLD_\w+"
    r"|(OMP|MKL|OPENBLAS|NUMEXPR|VECLIB)_\w+|TOKENIZERS_PARALLELISM|CUDA_(HOME|VISIBLE_DEVICES|DEVICE_ORDER)"
    r"|HF_(HOME|HUB_CACHE|HUB_OFFLINE|DATASETS_CACHE|DATASETS_OFFLINE)|TRANSFORMERS_(CACHE|OFFLINE)|XDG_CACHE_HOME|TORCH_HOME|NLTK_DATA"
    r"|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|(?i:(https?|all|no)_proxy)|SYSTEMROOT"
)
"""Names that pass."""
SECRET = re.compile(r"(?i)key|token|secret|passw|credential|auth(?!ority)")
"""Names that never do, whatever stands above."""


def passed(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that a verifier's process gets."""
    return {name: value for name, value in environment.items() if _passes(name, value)}


def withheld(environment: Mapping[str, str], text: str) -> str | None:
    """A name that a text, such as an error, speaks of and that did not pass."""
    spoken = set(re.findall(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+", text))
    return next((name for name in sorted(spoken & environment.keys()) if not _passes(name, environment[name])), None)


def _passes(name: str, value: str) -> bool:
    if name == "TOKENIZERS_PARALLELISM":
        return True
    proxy = name.lower().endswith("_proxy")
    return bool(PASSED.fullmatch(name)) and not SECRET.search(name) and not (proxy and "@" in value)  # a password in it


START = 120.0
"""Seconds the imports of a reward function may take."""
ALLOWANCE = 5.0
"""Times the timeout that the calls of a function may take beyond theirs, in each of its processes: first calls load things."""
GRACE = 5.0  # seconds a process that forks has beyond the clock of its own
PRINTED = 1 << 16  # characters that verifiers of one process may print in a run
_END = 5.0  # seconds a guard has to end what it keeps
_WITHHELD = "the verifier's process is not given {name} of the environment; let it read a file"
_BOOT = (
    "import sys; sys.path[:] = {path!r}; "
    "from trimtab.train.tasks.isolation.worker import run_verifiers; run_verifiers({pipe}, {parent})"
)


@dataclass(frozen=True)
class Isolation:
    """How a process of verifiers is kept."""

    fresh: bool
    """Whether each call has a process of its own, forked for it."""
    network: bool
    """Whether it may use the network."""


class _CrashError(Exception):
    """How a process ended before it was ready."""


class Printed:
    """What verifiers print on stderr: shown and never obeyed, so much of it, and taken off their hands in any case."""

    def __init__(self) -> None:
        self._left = PRINTED
        self._threads: list[threading.Thread] = []

    def opened(self) -> int:
        """The end of a pipe to print to, to be closed by whoever passed it on."""
        read, write = os.pipe()
        thread = threading.Thread(target=self._pass_on, args=(read,), name="trimtab-verifier-stderr", daemon=True)
        self._threads.append(thread)
        thread.start()
        return write

    def wait(self, seconds: float) -> None:
        """Until all that was printed is shown, if whoever holds the pipe lets it go by then."""
        for thread in self._threads:
            thread.join(seconds)
        self._threads = [thread for thread in self._threads if thread.is_alive()]

    def _pass_on(self, read: int) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        with open(read, "rb", buffering=0) as pipe:
            while data := pipe.read(1 << 16):
                if self._left > 0:
                    self._show(decoder.decode(data))

    def _show(self, text: str) -> None:
        shown = visible(text.replace("\r\n", "\n").replace("\r", "\n"))[: self._left]
        self._left -= len(shown)
        with contextlib.suppress(OSError, ValueError):  # nobody listens any more
            sys.stderr.write(
                shown if self._left else f"{shown}\n… what verifiers print beyond {PRINTED} characters is left out\n"
            )
            sys.stderr.flush()


class VerifierProcess:
    """A process that runs verifiers, begun again after each that hung or crashed."""

    def __init__(self, config: Task, numbers: list[int], fields: list[str], isolation: Isolation) -> None:
        self.isolation = isolation
        self.networked: str | None = None
        """Why it could not leave the network, where it was meant to."""
        self._config = config
        self._numbers = numbers
        self._fields = fields
        self._running: tuple[Child, socket.socket] | None = None
        self._printed = Printed()
        self._closed = False
        self._turn = 0
        self._lock = threading.Lock()
        own = all(number >= 0 and config.rewards[number].function for number in numbers)
        self._allowance = ALLOWANCE * config.timeout if own and not isolation.fresh else 0.0
        self._needed = self._left = 0.0
        try:
            self._start()
        except _CrashError as crash:
            raise ConfigError(f"Reward needs verifiers that can be loaded, got: {crash}.") from None

    def reply(self, number: int, problem: Problem, response: str) -> Reply:
        """What a verifier says within the timeout."""
        with self._lock:
            if self._closed:
                raise RuntimeError("The judge is closed; make another one to score more responses.")
            whole = {"id": problem.id, "prompt": problem.prompt, "answer": problem.answer, "extra": dict(problem.extra)}
            self._turn += 1
            found = self._asked([self._turn, number, whole, response])
        if isinstance(found, Failure):
            return Failure(found.kind, self._explained(found))
        return found

    def close(self) -> None:
        """End the process for good; a thread that waits for its reply hears of its end instead."""
        self._closed = True
        running = self._running
        if running is not None and self._lock.locked():
            with contextlib.suppress(OSError):
                running[1].shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._stop()

    def _asked(self, request: list[Any]) -> Reply:
        try:
            process, channel = self._alive()
        except (ConfigError, _CrashError) as error:
            return Failure("crash", f"the verifier could not be loaded again: {error}")
        begun = time.monotonic()
        limit = self._config.timeout + (GRACE if self.isolation.fresh else self._left)
        try:
            wire.send(channel, request, begun + limit)
            found = self._read(wire.receive(channel, wire.REPLY, begun + limit))
        except TimeoutError:
            self._stop()
            self._allowance = max(self._allowance / 2, self._needed)
            return Failure("timeout", "")
        except (
            TypeError,
            ValueError,
            RecursionError,
        ) as error:  # a field of the problem that cannot leave this process
            return Failure("error", f"{type(error).__name__}: {error}")
        except wire.RubbishError as error:
            self._stop()
            return Failure("crash", f"the verifier's process sent no reply but {error}")
        except (EOFError, OSError):
            return Failure("crash", self._crash(process))
        except BaseException:  # what would come back now belongs to no one
            self._stop()
            raise
        self._spend(time.monotonic() - begun - self._config.timeout)
        return found

    def _read(self, message: Any) -> Reply:
        """The reply to the call just made: one more than was asked for would be taken for the next."""
        match message:
            case [int() as turn, reply] if turn == self._turn:
                return reply_of(reply)
            case _:
                raise wire.RubbishError("what belongs to no call")

    def _spend(self, beyond: float) -> None:
        """Take what a call needed beyond the timeout off the allowance; the next process will need as much."""
        if beyond > 0 and self._left:
            self._left = max(self._left - beyond, 0.0)
            self._needed = min(max(self._needed, 2 * beyond), ALLOWANCE * self._config.timeout)

    def _explained(self, failure: Failure) -> str:
        """Why a verification failed, with a word about what the environment no longer holds."""
        if failure.kind == "timeout":
            return f"timeout after {self._config.timeout:g} s"
        name = withheld(os.environ, failure.why) if failure.kind == "error" else None
        return failure.why if name is None else f"{failure.why}; {_WITHHELD.format(name=name)}"

    def _alive(self) -> tuple[Child, socket.socket]:
        """The running process, or a new one."""
        if self._running is not None and self._running[0].code is not None:
            self._stop()
        return self._running or self._start()

    def _start(self) -> tuple[Child, socket.socket]:
        here, theirs = socket.socketpair()
        boot = _BOOT.format(path=sys.path, pipe=theirs.fileno(), parent=os.getpid())
        errors = self._printed.opened()
        try:
            with theirs:
                process = Child(  # without a log: what a reward prints is not the run's output
                    [sys.executable, "-c", boot],
                    environment={"OMP_NUM_THREADS": "1", **passed(os.environ)},
                    errors=errors,
                    inherits=[theirs.fileno()],
                )
        finally:
            os.close(errors)
        self._running = process, here
        until = time.monotonic() + START
        kept = self.isolation
        try:
            wire.send(here, [self._config.settings(), self._numbers, self._fields, kept.network, kept.fresh], until)
            said = wire.receive(here, wire.REPLY, until)
        except TimeoutError:
            self._stop()
            raise ConfigError(f"Reward needs to load within {START:g} s.") from None
        except (EOFError, OSError, wire.RubbishError):
            raise _CrashError(self._crash(process)) from None
        except BaseException:
            self._stop()
            raise
        self._check(said)
        self._left = self._allowance
        return process, here

    def _check(self, said: Any) -> None:
        """Raise what the process refused to load."""
        match said:
            case {"ready": True, "network": str() | None as networked}:
                self.networked = networked
            case {"refused": str() as kind, "why": str() as why}:
                self._stop()
                name = withheld(os.environ, why)
                why = why if name is None else f"{why} Also, {_WITHHELD.format(name=name)}."
                raise (UnknownNameError if kind == UnknownNameError.__name__ else ConfigError)(why)
            case _:
                self._stop()
                raise _CrashError("the verifier's process sent no greeting")

    def _crash(self, process: Child) -> str:
        """How the process ended; it has, or is about to."""
        process.wait(_END)
        code = process.code
        self._stop()
        return crash_of(code)

    def _stop(self) -> None:
        """End the process and whatever it began: its guard does once the channel closes; else it is done here."""
        if self._running is None:
            return
        process, channel = self._running
        self._running = None
        channel.close()
        process.end(_END)
        self._printed.wait(1.0)
