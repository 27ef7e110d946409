"""Servers that answer as vLLM's and SGLang's do, in this process: they load the files they are sent, and score with them."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from safetensors.torch import load_file

from tests.train.children.test_session import children_of
from tests.waiting import until
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


class ScriptedSglang:
    """A server that answers as SGLang's does: constant responses to jobs, real ones to the proof of a swap."""

    def __init__(self, architecture: Any) -> None:
        self.skeleton = Skeleton(architecture)
        self.weights: dict[str, Any] = {}
        self.version, self.label = "default", "default"
        self.calls: list[str] = []
        self.updates: list[dict[str, Any]] = []
        self.asked: list[dict[str, Any]] = []
        """Requests of jobs."""
        self.key = ""
        self.refuses = ""
        self.stale: dict[str, Any] = {}
        """Weights whose keys a prompt is read with, where they are not its own."""
        self.is_raw = False
        """Reports log-probs before the temperature."""
        self.spoil: Callable[[dict[str, Any]], Any] = lambda answer: None
        """What is done to each response to a job."""

    @property
    def breaks(self) -> bool:
        return False

    def answer(self, path: str, body: dict[str, Any]) -> Any:
        self.calls.append(f"{path}:{body['mode']}" if "mode" in body else path)
        if path == "/update_weights_from_disk":
            self.updates.append(body)
            self.weights = load_file(f"{body['model_path']}/model.safetensors")
            self.version = body["weight_version"]
            return {"success": True}
        if path != "/generate":
            return {}
        if not body["sampling_params"]["max_new_tokens"]:
            scores = self.skeleton.log_probs(self.weights, np.asarray(body["input_ids"], np.int32))
            pairs = [[float(lp), token, None] for lp, token in zip(scores, body["input_ids"][1:], strict=True)]
            return {"meta_info": {"input_token_logprobs": [[None, body["input_ids"][0], None], *pairs]}}
        prompts = body["input_ids"]
        if isinstance(prompts[0], int) and body.get("return_sampling_mask") and body["sampling_params"]["n"] > 1:
            raise OSError("SGLang fails at a mask for several responses to one prompt")
        if isinstance(prompts[0], list) and len(prompts) == 1:
            return [self.proof(body | {"input_ids": prompts[0]})]
        if isinstance(prompts[0], int) and body["sampling_params"]["n"] == 1:
            return self.proof(body)
        self.asked.append(body)
        answers = [self.response([1 + index] * body["sampling_params"]["max_new_tokens"], body) for index in range(4)]
        for each in answers:
            self.spoil(each)
        return answers

    def proof(self, body: dict[str, Any]) -> dict[str, Any]:
        """The likeliest tokens, as if they had been drawn."""
        tokens, drawn, log_probs = list(body["input_ids"]), [], []
        mask: list[list[int]] = []
        weights = self.stale or self.weights
        for _ in range(body["sampling_params"]["max_new_tokens"]):
            row = self.skeleton.distributions(weights, np.asarray([*tokens, 0], np.int32))[-1]
            row = row if self.is_raw else (row / body["sampling_params"]["temperature"]).log_softmax(-1)
            if body.get("return_sampling_mask"):
                mask.append(row.topk(body["sampling_params"]["top_k"]).indices.tolist())
                row = row - row[mask[-1]].logsumexp(-1)
            tokens.append(int(row.argmax()))
            drawn.append(tokens[-1])
            log_probs.append(float(row.max()))
        return self.response(drawn, body, log_probs, mask)

    def response(
        self, tokens: list[int], body: dict[str, Any], log_probs: Any = None, mask: Any = None
    ) -> dict[str, Any]:
        values = log_probs or [-1.0] * len(tokens)
        told = [[value, token, None] for value, token in zip(values, tokens, strict=True)]
        meta = {
            "finish_reason": {"type": "length"},
            "output_token_logprobs": told,
            "weight_versions": [{"version": self.version, "start": 0, "end": len(tokens)}],
            "num_retractions": 0,
        }
        if body.get("return_sampling_mask"):
            meta["output_token_sampling_mask"] = mask or [[token, 9] for token in tokens]
            meta["output_token_sampling_logprobs"] = [value / 2 for value in values] if mask is None else values
        return {"output_ids": tokens, "meta_info": meta}


@contextmanager
def serving(script: Any, port: int = 0) -> Iterator[str]:
    """Its address, while it is up."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/model_info" and script.key not in self.headers.get("Authorization", ""):
                self.reply(401, {"error": "Unauthorized"})
                return
            self.reply(200, {"weight_version": script.label} if self.path == "/model_info" else {})

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


def server_of(run: int) -> tuple[int, int]:
    """Of the one server that a run has: the leader of its group, and the server itself, once the leader has started it."""
    found: list[tuple[int, int]] = []

    def there() -> bool:
        found[:] = [(guard, server) for guard in children_of(run) if _is_guard(guard) for server in children_of(guard)]
        return len(found) == 1

    until(there, "a server")
    return found[0]


def _is_guard(process: int) -> bool:
    try:
        return b"session_guard.py" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:  # it has just gone
        return False
