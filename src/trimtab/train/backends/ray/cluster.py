"""The way to a cluster: to one that runs, or to one that is started here and ends with the run, whatever ends that."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from trimtab.config.rollout import Ray
from trimtab.errors import ConfigError, RunError
from trimtab.installed import install_command
from trimtab.records.lock import Lock
from trimtab.records.scratch import locked_folder
from trimtab.train.children.children import ProcessSession

NAMES = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN")


class AccessToken:
    """A token in the environment, where Ray looks for it: elsewhere it would keep one in the user's home.

    Where the user has chosen how clusters are accessed, that holds.
    """

    def __init__(self) -> None:
        self._before: dict[str, str | None] | None = None
        if NAMES[0] not in os.environ:
            self._before = {name: os.environ.get(name) for name in NAMES}
            os.environ |= dict(zip(NAMES, ("token", secrets.token_hex(32)), strict=True))
            _read_again()

    def withdraw(self) -> None:
        """Leave the environment as it was found: the program may go on to another cluster. Can be called again."""
        if self._before is None:
            return
        for name, value in self._before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        self._before = None
        _read_again()


def _read_again() -> None:
    """Ray reads its environment when it is imported, which a program may have done long before: have it read that again."""
    if "ray" in sys.modules:
        inner: Any = importlib.import_module("ray._raylet")
        if hasattr(inner, "AuthenticationTokenLoader"):  # Ray of before there were tokens has nothing to read
            inner.Config.initialize("")  # first: with the old mode and no token in its cache Ray ends the process
            inner.AuthenticationTokenLoader.instance().reset_cache()


START = 600.0
"""Seconds a cluster has to start."""
ATTEMPTS = 3
"""Ray gives its own processes half a minute, which a busy machine may need more than once."""
ANSWER = 10.0
"""Seconds a cluster at an address has to answer."""
POLL = 0.05
ROOM_FOR_SOCKETS = 6
"""Bytes of a temporary folder's path that leave Ray enough for its socket files: of the system's 107, our folder in it takes 33, Ray's in
that 4, and what Ray adds 64."""
LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Ray listens on the loopback alone where this is 0. On Linux it turns `_node_ip_address="127.0.0.1"` into the address of the machine."""
PRINTS = "print_to_stdstream"
HEAD = Path(__file__).with_name("head.py")


def check_installed() -> None:
    """Refuse a run that needs Ray where it is not."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"backend ray needs Ray, got an environment without it. {install_command('ray')}")


def ray_module() -> Any:
    """Ray itself. It reads its environment when it is first imported."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    return importlib.import_module("ray")


class Connection:
    """This process's connection to a cluster; one that the program had made before is used, and left as it is."""

    def __init__(self, settings: Ray, *, samplers: int, log: Path) -> None:
        """`log`: of a cluster that is started here, which has room for so many samplers."""
        self._own: OwnCluster | None = None
        self._is_ours = False
        self._announcements: Announcements | None = None
        if settings.address is None and not _is_connected():
            self._own = OwnCluster(settings, samplers=samplers, log=log)
        self.ray = ray_module()
        if self.ray.is_initialized():
            return
        self._announcements = Announcements(self.ray, log)
        try:
            address = _answering(settings.address) if self._own is None else self._own.address()
            with _handler_kept(), _on_loopback(self.ray, None if self._own is None else address):
                self.ray.init(address=address, log_to_driver=False, configure_logging=False)
        except ConnectionError as error:
            raise _nobody_at(settings.address, error) from None
        finally:
            self._is_ours = bool(self.ray.is_initialized())
            if not self._is_ours:
                self.close()

    @property
    def folder(self) -> Path | None:
        """Temporary files of actors, where the cluster is our own."""
        return None if self._own is None else self._own.folder

    def check(self) -> None:
        """Raise where the cluster is gone."""
        if self._own is not None and self._own.ended:
            raise RunError(
                f"Sampling needs its cluster, got one that {self._own.ended}. Look at {self._own.log}; the run can be resumed."
            )

    def close(self) -> None:
        """Leave a cluster that we joined; end one that we started. Can be called again."""
        if self._is_ours:
            self._is_ours = False
            self.ray.shutdown()
        if self._announcements is not None:
            self._announcements.close()
        if self._own is not None:
            self._own.close()


class OwnCluster:
    """A cluster of one node: a guard in a session of its own, and under it all of Ray's processes.

    Ray opens its folder to every user of the machine, so that it stands in one that nobody else can enter. What says where the
    cluster is lies there too: what the cluster answers is unpickled.
    """

    def __init__(self, settings: Ray, *, samplers: int, log: Path) -> None:
        self.log = log
        self._token = AccessToken()
        self.folder, self._lock = _short_folder()
        self._address = self.folder / "address"
        options: dict[str, Any] = {
            "num_cpus": max(os.cpu_count() or 1, round(settings.cpus * samplers + 0.5) + settings.verifiers),
            "resources": {name: amount * samplers for name, amount in settings.resources.items()},
            "_temp_dir": str(self.folder / "ray"),
            # Ray's 15 starves samplers beside a learner that shares their cores.
            "_system_config": {"worker_niceness": 0},
        }
        if settings.store is not None:
            options["object_store_memory"] = int(settings.store * 2**30)
        self._command = [sys.executable, str(HEAD), str(self._address), json.dumps(options)]
        self._session = self._start()

    @property
    def ended(self) -> str | None:
        """How it ended; None while it runs."""
        return self._session.ended

    def address(self) -> str:
        """Where it is, once it has started."""
        deadline, left = time.monotonic() + START, ATTEMPTS - 1
        while not self._address.exists():
            if self.ended and left:
                left -= 1
                self._session.close(patience=0.0)
                self._session = self._start()
            elif self.ended or time.monotonic() > deadline:
                tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-12:])
                got = f"one that {self.ended}" if self.ended else f"none after {START:g} s"
                raise RunError(f"backend ray needs a cluster that starts, got {got}. {self.log} ends:\n{tail}")
            time.sleep(POLL)
        return own_text(self._address)

    def _start(self) -> ProcessSession:
        around = {LOOPBACK: "0", **os.environ}
        return ProcessSession(self._command, status=self.folder / "status", log=self.log, environment=around)

    def close(self) -> None:
        """End all of it, and remove its files."""
        if self._lock is not None:
            self._session.close(patience=0.0)  # whoever it served has left
            shutil.rmtree(self.folder, ignore_errors=True)
            self._lock.release()
            self._lock = None
            self._token.withdraw()


class Announcements:
    """What Ray tells every driver, such as the last lines of a node that died: kept in a file, instead of on the run's stdout."""

    def __init__(self, ray: Any, log: Path) -> None:
        self._worker, self._log = ray._private.worker, log
        self._printed: Any = getattr(self._worker, PRINTS, None)  # not Ray's public face: another version may have none
        if self._printed is not None:
            setattr(self._worker, PRINTS, self._keep)

    def close(self) -> None:
        """Let Ray print again."""
        if self._printed is not None:
            setattr(self._worker, PRINTS, self._printed)

    def _keep(self, data: Any, *given: Any, **named: Any) -> None:
        with contextlib.suppress(OSError), self._log.open("a") as file:
            file.writelines(f"{line}\n" for line in data["lines"])


def _answering(address: str | None) -> str | None:
    """The address of a cluster, if anybody answers there: Ray itself would try for minutes."""
    if address is None or address == "auto":
        return address
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ConfigError(
            f"ray.address needs `auto` or HOST:PORT, got {address!r}. The port is that of `ray start --head`."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER).close()
    except (OSError, OverflowError) as error:
        raise _nobody_at(address, error) from None
    return address


def _nobody_at(address: str | None, error: Exception) -> RunError:
    why = (str(error).strip() or type(error).__name__).splitlines()[0]
    return RunError(
        f"ray.address needs the address of a running cluster, got {address!r}: {why} "
        "Start one with `ray start --head`, or leave it out."
    )


def own_text(path: Path) -> str:
    """What a file of this user's says; one that somebody else put there is refused."""
    with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW)) as file:
        owner = os.fstat(file.fileno()).st_uid
        if owner != os.geteuid():
            raise RunError(f"{path} needs to be a file of user {os.geteuid()}, got one of user {owner}.")
        return file.read()


def _is_connected() -> bool:
    module = sys.modules.get("ray")
    return module is not None and bool(module.is_initialized())


def _short_folder() -> tuple[Path, Lock | None]:
    """A folder for Ray; a socket file's path may not be long."""
    root = Path(tempfile.gettempdir())
    return locked_folder(root if len(os.fsencode(root)) <= ROOM_FOR_SOCKETS else Path("/tmp"))


@contextlib.contextmanager
def _on_loopback(ray: Any, address: str | None) -> Generator[None]:
    """Look for a cluster of our own on the loopback, if it is there: Ray would put the address of the machine in its place."""
    constants, name = ray._private.ray_constants, "ENABLE_RAY_CLUSTER"
    if address is None or not address.startswith("127.") or not hasattr(constants, name):
        yield
        return
    before = getattr(constants, name)
    setattr(constants, name, False)
    try:
        yield
    finally:
        setattr(constants, name, before)


@contextlib.contextmanager
def _handler_kept() -> Generator[None]:
    """Ray puts a handler of SIGTERM of its own in place of the run's."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
