"""A server that answers as vLLM's does, in this process: it loads the files it is sent, and scores with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from safetensors.torch import load_file

from trimtab.train.engines.probe import Skeleton


class Scripted:
    """What the server has, what it was asked, and what it is to do wrong."""

    def __init__(self, architecture: Any) -> None:
        self.skeleton = Skeleton(architecture)
        self.weights: dict[str, Any] = {}
        self.ties: dict[str, str] = {}
        self.version = "default"
        self.calls: list[str] = []
        self.salts: list[str] = []
        self.deaf = False
        """Takes no update over, and says that all went well."""
        self.refuses = ""
        """The path it answers with an error."""
        self.breaks = 0
        """So many requests end without an answer."""
        self.begins_late = 0
        """So many requests begin only after one version more."""
        self.go = threading.Event()
        self.go.set()
        self.waiting = threading.Semaphore(0)
        """Released once per request that waits for `go`."""

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        self.calls.append(path)
        if path == "/update_weights" and not self.deaf:
            self.weights = load_file(body["update_info"]["path"])
            self.ties = body["update_info"]["ties"]
        elif path == "/update_weight_version":
            self.version = body["new_version"]
        elif path == "/inference/v1/generate":
            return self.generate(body)
        return {}

    def generate(self, body: dict[str, Any]) -> Any:
        tokens, asked = body["token_ids"], body["sampling_params"]
        if "prompt_logprobs" in asked:
            scores = self.skeleton.log_probs(self.weights, np.asarray(tokens, np.int32))
            given = [{str(token): {"logprob": float(score)}} for token, score in zip(tokens[1:], scores, strict=True)]
            return {"prompt_logprobs": [None, *given], "choices": []}
        self.salts.append(body["cache_salt"])
        first = self.version
        if not self.go.is_set():
            self.waiting.release()
            self.go.wait()
        late, self.begins_late = self.begins_late > 0, max(0, self.begins_late - 1)
        first = str(int(first) + 1) if late else first
        return {"choices": [self.choice(index, asked, first) for index in range(asked["n"])]}

    def choice(self, index: int, asked: dict[str, Any], first: str) -> dict[str, Any]:
        """Half of the tokens by the weights at the beginning, half by those at the end."""
        count = asked["max_tokens"]
        spans = [{"version": first, "start": 0, "end": count // 2}]
        spans.append({"version": max(first, self.version), "start": count // 2, "end": count})
        return {
            "index": index,
            "token_ids": [2 + (asked["seed"] + index) % 5] * count,
            "logprobs": {"content": [{"logprob": -1.0}] * count},
            "weight_versions": spans,
            "finish_reason": "length",
        }


@contextmanager
def serving(script: Scripted, port: int = 0) -> Iterator[str]:
    """Its address, while it is up."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.reply(200, {})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urlsplit(self.path).path
            if path == "/inference/v1/generate" and script.breaks and b"prompt_logprobs" not in body:
                script.breaks -= 1
                self.close_connection = True
                return
            if path == script.refuses:
                self.reply(400, {"error": "not here"})
                return
            try:
                self.reply(200, script.answer(path, json.loads(body or b"{}")))
            except OSError:  # whoever asked has gone
                self.close_connection = True

        def reply(self, status: int, content: Any) -> None:
            text = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
