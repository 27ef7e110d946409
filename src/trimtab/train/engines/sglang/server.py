"""SGLang servers of a run: what they need, refused before a minute is spent on starting one, and how one is started.

Each listens on a free port of 127.0.0.1, since SGLang knows no socket files, with a key that this run alone knows. The key and every option
lie in a file of a folder that only this user can enter: a command line can be read by everybody on the machine.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import PretrainedConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from trimtab.config.training import Rollout
from trimtab.errors import ConfigError
from trimtab.train.engines.jobs import longest_of
from trimtab.train.engines.probe import Skeleton
from trimtab.train.engines.served import ServerClient, StartedServer
from trimtab.train.engines.sglang.client import LARGEST_MASK, SglangClient
from trimtab.train.weights.files import FileWeights, LinkedFile

KEY_VARIABLE = "TRIMTAB_SGLANG_KEY"
"""Holds the key of servers at an address; settings are recorded, and no place for it."""
DTYPES = {"fp32": "float32", "bf16": "bfloat16"}
MOST_TOKENS = 1 << 18
"""Room for keys and values of so many tokens on a CPU, where SGLang would take most of the memory."""
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",  # a path that is not there would be asked of the network
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
    "SGLANG_RETURN_ORIGINAL_LOGPROB": "0",
    "TOKENIZERS_PARALLELISM": "false",
}
ON_CPU = {
    "device": "cpu",
    "attention-backend": "torch_native",
    "sampling-backend": "pytorch",
    "cuda-graph-backend-decode": "disabled",
    "cuda-graph-backend-prefill": "disabled",
    "disable-overlap-schedule": True,
}


def check_run(architecture: PretrainedConfig, rollout: Rollout) -> None:
    """Refuse what SGLang cannot do, in words that say what to set."""
    needs = f"rollout.engine {rollout.engine} needs"
    if rollout.precision not in DTYPES:
        raise ConfigError(
            f"{needs} rollout.precision fp32 or bf16, got {rollout.precision}. The engine hf rounds to the others."
        )
    if rollout.is_cut and not 2 <= (rollout.top_k or 0) <= LARGEST_MASK:
        raise ConfigError(
            f"{needs} rollout.top_k from 2 to {LARGEST_MASK} where it cuts, got top_k {rollout.top_k}, top_p {rollout.top_p}. SGLang "
            "reports log-probs of a cut distribution only within such a bound: beside top_p set one that it never reaches."
        )
    if rollout.servers:
        return
    python = rollout.sglang.python
    if python is None or shutil.which(python) is None:
        raise ConfigError(
            f"{needs} rollout.sglang.python, the interpreter of SGLang's own environment, or rollout.servers, got "
            f"{python or 'neither'}. `make sglang-env` sets up .venv-sglang/bin/python."
        )
    fixed = sorted(set(rollout.sglang.options) & set(_options(architecture, rollout, port=0, key="", label="")))
    if fixed:
        raise ConfigError(
            f"rollout.sglang.options needs options that the run does not set itself, got {fixed[0]}. Drop it."
        )


def _options(architecture: PretrainedConfig, rollout: Rollout, *, port: int, key: str, label: str) -> dict[str, Any]:
    """What a server is started with, as its command line calls it."""
    longest = longest_of(architecture, rollout)
    options: dict[str, Any] = {
        "host": "127.0.0.1",
        "port": port,
        "api-key": key,
        "weight-version": label,
        "load-format": "dummy",  # drawn at random: an update that leaves something out is seen at once
        "skip-tokenizer-init": True,
        "skip-server-warmup": True,  # its prompt has ids that a small vocabulary does not
        "dtype": DTYPES[rollout.precision],
        "context-length": longest,
        "max-running-requests": rollout.slots + 2,  # one for the probe, and SGLang keeps one itself
        "log-level": "warning",
    }
    if torch.cuda.is_available():
        return options
    return options | ON_CPU | {"max-total-tokens": min((rollout.slots + 2) * longest, MOST_TOKENS)}


class SglangServers:
    """Servers of SGLang for a run."""

    is_direct = False
    notes: tuple[str, ...] = (
        "SGLang draws with randomness of its own and takes no seeds: a second run with the same settings samples other tokens.",
    )

    def __init__(
        self, architecture: PretrainedConfig, rollout: Rollout, files: FileWeights, *, stop: Sequence[int], threads: int
    ) -> None:
        check_run(architecture, rollout)
        self._architecture, self._rollout, self.publisher = architecture, rollout, files
        self._stop, self._threads = stop, threads
        self._key = os.environ.get(KEY_VARIABLE) if rollout.servers else secrets.token_hex(32)
        self._labels: dict[str, str] = {}

    def start(self, folder: Path, log: Path) -> StartedServer:
        """A server that reads its architecture from `folder`."""
        port, label = _free_port(), secrets.token_hex(16)
        address = f"http://127.0.0.1:{port}"
        self._labels[address] = label
        _describe(self._architecture, folder / "model")
        options = _options(self._architecture, self._rollout, port=port, key=self._key or "", label=label)
        options |= {"model-path": str(folder / "model")} | dict(self._rollout.sglang.options)
        file = folder / "options.yaml"
        file.touch(mode=0o600)
        file.write_text(json.dumps(options))
        temporary = folder / "tmp"  # sockets between its processes, which nobody else should see
        temporary.mkdir(exist_ok=True)
        environment = os.environ | ENVIRONMENT | {"TMPDIR": str(temporary), "OMP_NUM_THREADS": str(self._threads)}
        environment |= {} if torch.cuda.is_available() else {"SGLANG_USE_CPU_ENGINE": "1"}
        environment.pop(KEY_VARIABLE, None)
        command = [str(self._rollout.sglang.python), "-m", "sglang.launch_server", "--config", str(file)]
        return StartedServer(command, address, folder=folder, log=log, environment=environment)

    def client(self, number: int, address: str, skeleton: Skeleton) -> ServerClient:
        """Calls to the server of that number."""
        published = self.publisher.path
        folder = published.with_name(f"server-{number}")
        _describe(self._architecture, folder)
        return SglangClient(
            address,
            self._key,
            self._labels.get(address),
            LinkedFile(published, folder / "model.safetensors"),
            skeleton,
            self._rollout,
            stop=self._stop,
            longest=longest_of(self._architecture, self._rollout),
            vocabulary=int(self._architecture.get_text_config().vocab_size),
        )


def _describe(architecture: PretrainedConfig, folder: Path) -> None:
    """The architecture in a folder, with the name of its class, which a model never saved lacks, and without stop tokens.

    Those of a run come with each request, and SGLang would add these to them.
    """
    architecture.save_pretrained(folder)
    file = folder / "config.json"
    described: Mapping[str, Any] = json.loads(file.read_text())
    named = {"architectures": [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[architecture.model_type]], **described}
    file.write_text(json.dumps({**named, "eos_token_id": None}))


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
