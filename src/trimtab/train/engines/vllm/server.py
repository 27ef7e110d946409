"""A vLLM server as a child of the run: started with the policy's architecture, ended with the run, whatever ends that."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.train.engines.vllm import limits
from trimtab.train.engines.vllm.client import MODEL, UNIX
from trimtab.train.engines.vllm.plugin import PARENT

REAPED = 2.0
"""Seconds from the last connection of a process that ends to its end."""
PATH_LIMIT = 100
"""Characters of a socket file's path that every system takes."""


class VllmServer:
    """One server in a session of its own, so that all its processes can be ended together.

    It listens on a socket file in a folder that only this user can enter: a server that takes weights from whoever asks
    does not belong on a port.
    """

    def __init__(
        self, architecture: PretrainedConfig, rollout: Rollout, *, folder: Path, log: Path, threads: int
    ) -> None:
        model = folder / "model"
        architecture.save_pretrained(model)
        socket = folder / "socket"
        socket.unlink(missing_ok=True)
        assert len(str(socket)) <= PATH_LIMIT
        self.address, self.log = f"{UNIX}{socket}", log
        command = [
            sys.executable,
            "-m",
            "vllm.entrypoints.openai.api_server",
            "--model",
            str(model),
            "--uds",
            str(socket),
        ]
        command += ["--served-model-name", MODEL, "--enable-scale-out", "--disable-log-stats"]
        command += command_flags(limits.engine_options(architecture, rollout))
        added = {
            "VLLM_SERVER_DEV_MODE": "1",  # or it has no weight updates
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(threads),
            PARENT: str(os.getpid()),
        }
        environment = os.environ | limits.variables(rollout) | added
        environment |= limits.UNCOMPILED if limits.on_cpu() else {}
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    @property
    def ended(self) -> str | None:
        """How it ended; None while it runs."""
        code = self.process.poll()
        if code is None:
            return None
        return f"ended with exit code {code}" if code >= 0 else f"was ended by {signal.Signals(-code).name}"

    def close(self, patience: float = 10.0) -> None:
        """End it and all it started: politely, then by force."""
        self._signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(patience)
        self._signal(signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + patience
        while self._alive() and time.monotonic() < deadline:
            time.sleep(0.02)

    def kill(self) -> str:
        """End it and all it started at once; how it had ended before, if it had: its connections close a moment before it does."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(REAPED)
        ended = self.ended or "did not answer and was killed"
        self._signal(signal.SIGKILL)
        self.process.wait()
        return ended

    def tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, number)

    def _alive(self) -> bool:
        try:
            os.killpg(self.process.pid, 0)
        except (ProcessLookupError, PermissionError):
            return False
        return True


def command_flags(options: Mapping[str, Any]) -> list[str]:
    """Options of the engine as its command line takes them."""
    found: list[str] = []
    for name, value in options.items():
        dashed = name.replace("_", "-")
        if isinstance(value, bool):
            found.append(f"--{dashed}" if value else f"--no-{dashed}")
        else:
            found += [f"--{dashed}", json.dumps(value) if isinstance(value, Mapping) else str(value)]
    return found
