"""In the place of a server of SGLang: the addresses that AReaL's own client asks. `python -m … MODEL FOLDER`.

It prints the port it listens on. FOLDER gets the weights it was handed, one file for each step.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from tests.plugins.commands.engine import RoundedEngine
from tests.plugins.commands.figures import keep_weights
from tests.plugins.tiny import EOS

ENGINE: RoundedEngine
KEPT: Path
LOCK = threading.Lock()


def generate(asked: dict[str, Any]) -> dict[str, Any]:
    """SGLang's `/generate`."""
    tokens, log_probs = ENGINE.sample(asked["input_ids"], asked["sampling_params"]["max_new_tokens"])
    pairs = [[log_prob, token, None] for log_prob, token in zip(log_probs, tokens, strict=True)]
    return {"meta_info": {"finish_reason": {"type": _reason(tokens)}, "output_token_logprobs": pairs}}


def _reason(tokens: list[int]) -> str:
    return "stop" if tokens[-1] == EOS else "length"


def update_weights_from_disk(asked: dict[str, Any]) -> dict[str, Any]:
    """SGLang's; the trainer deletes the folder afterwards."""
    weights = load_file(Path(asked["model_path"]) / "model.safetensors")
    keep_weights(KEPT, ENGINE.version + 1, weights)
    ENGINE.load(weights.items(), ENGINE.version + 1)
    return {"success": True}


ANSWERS = {"/generate": generate, "/update_weights_from_disk": update_weights_from_disk}


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
    ENGINE, KEPT = RoundedEngine(sys.argv[1]), Path(sys.argv[2])
    keep_weights(KEPT, 0, load_file(Path(sys.argv[1]) / "model.safetensors"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_port, flush=True)
    server.serve_forever()
