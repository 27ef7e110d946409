"""A vLLM server over HTTP: tokens in and out and the four calls of a weight update; and one of the run's own, ended with the run."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import numpy as np
from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.errors import ConfigError, RunError
from trimtab.train.children.children import ProcessSession
from trimtab.train.engines.vllm import request, requirements
from trimtab.train.messages import Floats, Group, Ints, Job

MODEL = "policy"
UNIX = "unix:"


class GoneError(Exception):
    """The server cannot be reached, or broke off in the middle of an answer."""


class RefusedError(RunError):
    """The server answered with an error."""


class _Unix(http.client.HTTPConnection):
    """HTTP over a socket file."""

    def __init__(self, path: str, timeout: float | None) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        """Open the file."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class ServerClient:
    """Calls to one server, from any thread; each on a connection of its own, since idle ones are closed after seconds."""

    def __init__(self, address: str) -> None:
        self.address = address
        if not address.startswith(UNIX):
            parts = urlsplit(address)
            if parts.scheme != "http" or not parts.hostname or parts.path.strip("/"):
                raise ConfigError(f"rollout.servers needs addresses such as http://host:8000, got {address!r}.")
            self._host, self._port = parts.hostname, parts.port or 80
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()

    def call(
        self, path: str, body: Mapping[str, Any] | None = None, *, timeout: float = 600.0, method: str = "POST"
    ) -> Any:
        """The answer as JSON; None where it is empty."""
        line = self._line(timeout)
        with self._lock:
            self._open.add(line)
        try:
            content = None if body is None else json.dumps(body).encode()
            line.request(method, path, content, {"Content-Type": "application/json"} if content else {})
            answer = line.getresponse()
            text = answer.read()
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
        return json.loads(text) if text else None

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
            self.call("/health", method="GET", timeout=10.0)
        except (GoneError, RefusedError):
            return False
        return True

    # The names of vLLM's `VLLMWeightSyncClient`, whose trainer-side engines (nccl, ipc) can drive this client as it is.

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Once per server."""
        self.call("/init_weight_transfer_engine", {"init_info": init_info})

    def start_weight_update(self) -> None:
        """From here to the finish the server has no weights: it must be paused."""
        self.call("/start_weight_update")

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """One part of them, as the transfer understands it."""
        self.call("/update_weights", {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """They are whole."""
        self.call("/finish_weight_update", None if weight_version is None else {"weight_version": weight_version})

    def name_version(self, version: int) -> None:
        """What tokens sampled from here on are marked with."""
        self.call("/update_weight_version", {"new_version": str(version)})

    def pause(self, *, clear_cache: bool) -> None:
        """Freeze what runs; with `clear_cache` its keys and values are made again afterwards."""
        asked = {"mode": "keep", "clear_cache": str(clear_cache).lower()}
        self.call(f"/pause?{urlencode(asked)}")

    def resume(self) -> None:
        """Go on."""
        self.call("/resume")

    def generate(self, job: Job, stop: Sequence[int], *, longest: int, version: int) -> Group:
        """Sample a whole group. Its prompt's keys are shared only among requests of the same version."""
        asked = request.asked_of(job, stop, longest=longest, samples=job.samples)
        answer = self._generate(job.prompt, asked, version)
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        return Group(
            job,
            tuple(
                request.sample_of(
                    choice["token_ids"],
                    (each["logprob"] for each in choice["logprobs"]["content"]),
                    ((int(span["version"]), span["start"], span["end"]) for span in choice["weight_versions"] or ()),
                    choice["finish_reason"],
                    job,
                    [_listed(each) for each in choice["logprobs"]["content"]],
                )
                for choice in choices
            ),
        )

    def score(self, tokens: Ints, version: int) -> Floats:
        """Log-probs of each token but the first, under the weights it has now."""
        asked = {"max_tokens": 1, "prompt_logprobs": 0, "temperature": 0.0, "detokenize": False}
        given = self._generate(tokens, asked, version)["prompt_logprobs"]
        return np.array(
            [each[str(int(token))]["logprob"] for each, token in zip(given[1:], tokens[1:], strict=True)], np.float32
        )

    def _generate(self, tokens: Ints, asked: dict[str, Any], version: int) -> Any:
        body = {"token_ids": tokens.tolist(), "model": MODEL, "cache_salt": f"v{version}", "sampling_params": asked}
        return self.call("/inference/v1/generate", body, timeout=24 * 3600.0)

    def _line(self, timeout: float) -> http.client.HTTPConnection:
        if self.address.startswith(UNIX):
            return _Unix(self.address.removeprefix(UNIX), timeout)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout)


def _listed(content: Mapping[str, Any]) -> dict[int, float]:
    """Log-probs by id of what a server lists beside a token: the token itself first, then others by rank."""
    return {int(each["token_id"]): float(each["logprob"]) for each in content.get("top_logprobs") or ()}


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
        command += command_flags(requirements.engine_options(architecture, rollout))
        added = {
            "VLLM_SERVER_DEV_MODE": "1",  # or it has no weight updates
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(threads),
        }
        environment = os.environ | requirements.variables(rollout) | added
        environment |= requirements.UNCOMPILED if requirements.on_cpu() else {}
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
