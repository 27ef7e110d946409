"""In the place of a server of SGLang or vLLM: the addresses that AReaL's and SkyRL's own clients ask. `python -m … MODEL`.

It prints the port it listens on.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from tests.plugins.commands.engine import RoundedEngine
from tests.plugins.tiny import EOS

ENGINE: RoundedEngine
LOCK = threading.Lock()


def generate(asked: dict[str, Any]) -> dict[str, Any]:
    """SGLang's `/generate`."""
    tokens, log_probs = ENGINE.sample(asked["input_ids"], asked["sampling_params"]["max_new_tokens"])
    pairs = [[log_prob, token, None] for log_prob, token in zip(log_probs, tokens, strict=True)]
    return {"meta_info": {"finish_reason": {"type": _reason(tokens)}, "output_token_logprobs": pairs}}


def generate_tokens(asked: dict[str, Any]) -> dict[str, Any]:
    """vLLM's `/inference/v1/generate`."""
    tokens, log_probs = ENGINE.sample(asked["token_ids"], asked["sampling_params"]["max_tokens"])
    content = [{"logprob": each} for each in log_probs]
    return {"choices": [{"token_ids": tokens, "finish_reason": _reason(tokens), "logprobs": {"content": content}}]}


def _reason(tokens: list[int]) -> str:
    return "stop" if tokens[-1] == EOS else "length"


def update_weights_from_disk(asked: dict[str, Any]) -> dict[str, Any]:
    """SGLang's; the trainer deletes the folder afterwards."""
    weights = load_file(Path(asked["model_path"]) / "model.safetensors")
    ENGINE.load(weights.items(), ENGINE.version + 1)
    return {"success": True}


def collective_rpc(asked: dict[str, Any]) -> dict[str, Any]:
    """vLLM's, as SkyRL calls it: what `skyrl_cpu` has put into the place of the broadcast is taken when that has ended."""
    if asked["method"] == "skyrl_finish_weight_update":
        ENGINE.load(load_file(os.environ["SENT_WEIGHTS"]).items(), ENGINE.version + 1)
    return {}


ANSWERS = {
    "/generate": generate,
    "/update_weights_from_disk": update_weights_from_disk,
    "/inference/v1/generate": generate_tokens,
    "/collective_rpc": collective_rpc,
    "/get_world_size": lambda _: {"world_size": 1},
}


class Handler(BaseHTTPRequestHandler):
    """One request at a time; whatever else is asked (health, pause, resume) has nothing to do."""

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
        with LOCK:
            found = ANSWERS.get(self.path.partition("?")[0], lambda _: {})(asked)
        with suppress(BrokenPipeError):  # the trainer has ended with rows of a step that it does not take
            self._send(json.dumps(found).encode())

    def _send(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


if __name__ == "__main__":
    ENGINE = RoundedEngine(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
