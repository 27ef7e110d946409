"""A vLLM server of the run's own: started with the policy's architecture, ended with the run, whatever ends that."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.errors import RunError
from trimtab.train.children.session import ProcessSession
from trimtab.train.engines.vllm import limits
from trimtab.train.engines.vllm.client import MODEL, UNIX

MODULE = "vllm.entrypoints.openai.api_server"
PATH_LIMIT = 100
"""Bytes of a socket file's path that every system takes."""


class VllmServer(ProcessSession):
    """One server.

    It listens on a socket file in a folder that only this user can enter: a server that takes weights from whoever asks
    does not belong on a port.
    """

    def __init__(
        self, architecture: PretrainedConfig, rollout: Rollout, *, folder: Path, log: Path, threads: int
    ) -> None:
        model, socket = folder / "model", folder / "socket"
        if len(os.fsencode(socket)) > PATH_LIMIT:
            raise RunError(
                f"A server's socket file needs a path of at most {PATH_LIMIT} bytes, got {socket}. Set TMPDIR to a shorter one."
            )
        architecture.save_pretrained(model)
        socket.unlink(missing_ok=True)
        self.address, self.log = f"{UNIX}{socket}", log
        command = [sys.executable, "-m", MODULE, "--model", str(model), "--uds", str(socket)]
        command += ["--served-model-name", MODEL, "--enable-scale-out", "--disable-log-stats"]
        command += command_flags(limits.engine_options(architecture, rollout))
        added = {
            "VLLM_SERVER_DEV_MODE": "1",  # or it has no weight updates
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(threads),
        }
        environment = os.environ | limits.variables(rollout) | added
        environment |= limits.UNCOMPILED if limits.on_cpu() else {}
        super().__init__(command, status=folder / "status", log=log, environment=environment)

    def tail(self, lines: int = 12) -> str:
        """The last lines of its log."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


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
