"""Servers that sample, of whatever project: the HTTP line, the calls that a run needs of them, and those that a run starts.

A server keeps its own time. It takes jobs as requests, and new weights as one verb, `swap`, in which each project has its own order of
pausing, loading, naming the version and going on.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from torch import Tensor

from trimtab.errors import ConfigError, RunError
from trimtab.train.children.children import ProcessSession
from trimtab.train.engines.probe import Expected, Skeleton
from trimtab.train.messages import Group, Job
from trimtab.train.weights.protocol import Publisher, Snapshot

InFlight = Literal["finish", "keep_cache", "recompute"]
UNIX = "unix:"
LARGEST = 1 << 30
"""Bytes of an answer; what says more is no sampler."""


class GoneError(Exception):
    """The server cannot be reached, or broke off in the middle of an answer."""


class RefusedError(RunError):
    """The server answered with an error."""


class MixedError(Exception):
    """A response was read with keys of several versions, as no setting of `in_flight` means it: its group is to be sampled again."""


class _Unix(http.client.HTTPConnection):
    """HTTP over a socket file."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the file."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


def host_and_port(address: str) -> tuple[str, int]:
    """Of `http://host:port`."""
    parts = urlsplit(address)
    if parts.scheme != "http" or not parts.hostname or parts.path.strip("/"):
        raise ConfigError(f"rollout.servers needs addresses such as http://host:8000, got {address!r}.")
    return parts.hostname, parts.port or 80


class ServerClient(ABC):
    """Calls to one server, from any thread; each on a connection of its own, since idle ones are closed after seconds."""

    def __init__(self, address: str, key: str | None = None) -> None:
        """`key`: what the server asks of whoever calls it."""
        self.address = address
        if not address.startswith(UNIX):
            self._host, self._port = host_and_port(address)
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()

    @property
    @abstractmethod
    def newest(self) -> int:
        """The newest version there is to send; −1 before the first."""

    @abstractmethod
    def connect(self) -> None:
        """Once, when the server answers. Raises RunError where it cannot do what a run needs."""

    @abstractmethod
    def take(self) -> Snapshot:
        """The newest weights: those that the next `swap` sends, whatever is published meanwhile."""

    @abstractmethod
    def swap(self, weights: Snapshot, in_flight: InFlight) -> None:
        """Have it sample with what was taken; requests under way go on with old keys (keep_cache) or with none."""

    @abstractmethod
    def generate(self, job: Job, version: int) -> Group:
        """Sample a whole group. Its prompt's keys are shared only among requests of the same version."""

    @abstractmethod
    def prove(self, expected: Expected, weights: Mapping[str, Tensor], who: str) -> list[float]:
        """Mean differences of log-probs, its own to those of these weights. Raises RunError where they are more than rounding."""

    @abstractmethod
    def release(self) -> None:
        """Give back what was taken."""

    def call(
        self,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        timeout: float = 600.0,
        method: str = "POST",
        is_text: bool = False,
    ) -> Any:
        """The answer as JSON, or as text; None where it is empty."""
        line = self._line(timeout)
        with self._lock:
            self._open.add(line)
        try:
            content = None if body is None else json.dumps(body).encode()
            line.request(
                method, path, content, self._headers | ({"Content-Type": "application/json"} if content else {})
            )
            answer = line.getresponse()
            text = answer.read(LARGEST + 1)
        except (OSError, http.client.HTTPException) as error:
            raise GoneError(f"{type(error).__name__}: {error}") from error
        finally:
            with self._lock:
                self._open.discard(line)
            line.close()
        if answer.status >= 400:
            reason = text[:400].decode(errors="replace")
            raise RefusedError(
                f"The server at {self.address} needs to answer {path} with success, got {answer.status}: {reason}."
            )
        if len(text) > LARGEST:
            raise RunError(f"The server at {self.address} needs to answer with less than {LARGEST >> 20} MB, got more.")
        return text.decode(errors="replace") if is_text else json.loads(text) if text else None

    def close(self) -> None:
        """Break off every call; whoever waits for one gets GoneError."""
        with self._lock:
            lines = list(self._open)
        for line in lines:
            with contextlib.suppress(OSError, AttributeError):
                line.sock.shutdown(socket.SHUT_RDWR)

    def healthy(self) -> bool:
        """Whether it answers."""
        try:
            self.call("/health", method="GET", timeout=10.0, is_text=True)
        except (GoneError, RefusedError):
            return False
        return True

    def _line(self, timeout: float) -> http.client.HTTPConnection:
        if self.address.startswith(UNIX):
            return _Unix(self.address.removeprefix(UNIX), timeout)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)


class StartedServer(ProcessSession):
    """A server of the run's own, ended with the run."""

    def __init__(
        self, command: list[str], address: str, *, folder: Path, log: Path, environment: Mapping[str, str]
    ) -> None:
        self.address, self.log = address, log
        super().__init__(command, status=folder / "status", log=log, environment=environment)

    def tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


class ServerKind(Protocol):
    """How the servers of one project are started and called, for all of a run."""

    notes: tuple[str, ...]
    """What a user should know before the first group comes."""

    @property
    def publisher(self) -> Publisher:
        """Where the learner's weights go."""
        ...

    @property
    def is_direct(self) -> bool:
        """Whether servers take weights out of the learner's memory, which therefore waits for them."""
        ...

    def start(self, folder: Path, log: Path) -> StartedServer:
        """A server whose own files lie in `folder`; it is not waited for."""
        ...

    def client(self, number: int, address: str, skeleton: Skeleton) -> ServerClient:
        """Calls to the server of that number."""
        ...
