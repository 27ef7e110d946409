"""vLLM servers: tokens in and out, the four calls of a weight update, and how a run starts one."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
from torch import Tensor
from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.errors import RunError
from trimtab.train.engines.jobs import check_answer, longest_of, sample_of
from trimtab.train.engines.probe import Expected, Skeleton
from trimtab.train.engines.served import UNIX, InFlight, RefusedError, ServerClient, StartedServer
from trimtab.train.engines.vllm import requirements
from trimtab.train.engines.vllm.request import asked_of, head_of
from trimtab.train.engines.vllm.transfer import DirectSender, FileSender, LiveWeights, Sender
from trimtab.train.messages import Floats, Group, Ints, Job, Sample
from trimtab.train.weights.files import FileWeights
from trimtab.train.weights.protocol import Snapshot

MODEL = "policy"


class VllmClient(ServerClient):
    """Calls to one vLLM server."""

    def __init__(
        self, address: str, sender: Sender, skeleton: Skeleton, *, stop: Sequence[int], longest: int, vocabulary: int
    ) -> None:
        super().__init__(address)
        self._sender, self._ties = sender, skeleton.ties
        self._stop, self._longest, self._vocabulary = stop, longest, vocabulary

    @property
    def newest(self) -> int:
        """The newest version there is to send."""
        return self._sender.version

    def connect(self) -> None:
        """Set up the transfer."""
        try:
            self._sender.connect(self)
        except RefusedError as error:
            raise RunError(
                f"{error} A server needs VLLM_SERVER_DEV_MODE=1, --enable-scale-out, trimtab installed beside it and a "
                "--weight-transfer-config that goes with rollout.vllm.transfer: see docs/scale.md."
            ) from error

    def take(self) -> Snapshot:
        """The newest weights."""
        return self._sender.take()

    def swap(self, weights: Snapshot, in_flight: InFlight) -> None:
        """What runs is frozen meanwhile; its keys and values are made again afterwards, or kept."""
        self.call(f"/pause?{urlencode({'mode': 'keep', 'clear_cache': str(in_flight == 'recompute').lower()})}")
        self._sender.send(self, self._ties)
        self.call("/update_weight_version", {"new_version": str(weights.version)})
        self.call("/resume")

    def generate(self, job: Job, version: int) -> Group:
        """Sample a whole group."""
        answer = self._generate(
            job.prompt, asked_of(job, self._stop, longest=self._longest, samples=job.samples), version
        )
        choices = sorted(answer["choices"], key=lambda choice: choice["index"])
        if len(choices) != job.samples:
            raise RunError(
                f"The server at {self.address} needs to answer group {job.group} with {job.samples} responses, got {len(choices)}."
            )
        return Group(job, tuple(self._sample(choice, job) for choice in choices))

    def _sample(self, choice: Mapping[str, Any], job: Job) -> Sample:
        content = choice["logprobs"]["content"]
        tokens, log_probs = choice["token_ids"], [each["logprob"] for each in content]
        spans = [(int(span["version"]), span["start"], span["end"]) for span in choice["weight_versions"] or ()]
        check_answer(f"The server at {self.address}", job, tokens, log_probs, spans, vocabulary=self._vocabulary)
        listed = [_listed(each) for each in content]
        return sample_of(
            tokens, log_probs, spans, choice["finish_reason"], job, lambda count: head_of(listed[:count], job)
        )

    def prove(self, expected: Expected, weights: Mapping[str, Tensor], who: str) -> list[float]:
        """By the log-probs of a prompt, which it works out anew."""
        return [expected.compare(self.score(expected.tokens, expected.version), who)]

    def score(self, tokens: Ints, version: int) -> Floats:
        """Log-probs of each token but the first, under the weights it has now."""
        asked = {"max_tokens": 1, "prompt_logprobs": 0, "temperature": 0.0, "detokenize": False}
        given = self._generate(tokens, asked, version)["prompt_logprobs"]
        return np.array(
            [each[str(int(token))]["logprob"] for each, token in zip(given[1:], tokens[1:], strict=True)], np.float32
        )

    def release(self) -> None:
        """Give back what was taken."""
        self._sender.close()

    def _generate(self, tokens: Ints, asked: dict[str, Any], version: int) -> Any:
        body = {"token_ids": tokens.tolist(), "model": MODEL, "cache_salt": f"v{version}", "sampling_params": asked}
        return self.call("/inference/v1/generate", body, timeout=24 * 3600.0)

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


def _listed(content: Mapping[str, Any]) -> dict[int, float]:
    """Log-probs by id of what a server lists beside a token: the token itself first, then others by rank."""
    return {int(each["token_id"]): float(each["logprob"]) for each in content.get("top_logprobs") or ()}


MODULE = "vllm.entrypoints.openai.api_server"
PATH_LIMIT = 100
"""Bytes of a socket file's path that every system takes."""


class VllmServers:
    """Servers of vLLM for a run.

    Those that it starts listen on a socket file in a folder that only this user can enter: a server that takes weights from whoever
    asks does not belong on a port.
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self, architecture: PretrainedConfig, rollout: Rollout, files: FileWeights, *, stop: Sequence[int], threads: int
    ) -> None:
        requirements.check_run(architecture, rollout)
        self._architecture, self._rollout, self._files = architecture, rollout, files
        self._stop, self._threads = stop, threads
        self._live = LiveWeights()
        self.is_direct = rollout.vllm.transfer != "host"
        self.publisher = self._live if self.is_direct else files

    def start(self, folder: Path, log: Path) -> StartedServer:
        """A server that reads its model from `folder` and listens there."""
        model, socket = folder / "model", folder / "socket"
        if len(os.fsencode(socket)) > PATH_LIMIT:
            raise RunError(
                f"A server's socket file needs a path of at most {PATH_LIMIT} bytes, got {socket}. Set TMPDIR to a shorter one."
            )
        self._architecture.save_pretrained(model)
        socket.unlink(missing_ok=True)
        command = [sys.executable, "-m", MODULE, "--model", str(model), "--uds", str(socket)]
        command += ["--served-model-name", MODEL, "--enable-scale-out", "--disable-log-stats"]
        command += command_flags(requirements.engine_options(self._architecture, self._rollout))
        added = {
            "VLLM_SERVER_DEV_MODE": "1",  # or it has no weight updates
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": str(self._threads),
        }
        environment = os.environ | requirements.variables(self._rollout) | added
        environment |= requirements.UNCOMPILED if requirements.on_cpu() else {}
        return StartedServer(command, f"{UNIX}{socket}", folder=folder, log=log, environment=environment)

    def client(self, number: int, address: str, skeleton: Skeleton) -> VllmClient:
        """Calls to the server of that number."""
        settings = self._rollout.vllm
        if self.is_direct:
            sender = DirectSender(self._live, settings.transfer, settings.tensor_parallel)
        else:
            published = self._files.path
            sender = FileSender(published, published.with_name(f"server-{number}.safetensors"))
        longest = longest_of(self._architecture, self._rollout)
        vocabulary = int(self._architecture.get_text_config().vocab_size)
        return VllmClient(address, sender, skeleton, stop=self._stop, longest=longest, vocabulary=vocabulary)


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
