"""vLLM in the sampler's own process, behind `Engine`.

queue of samples ──no more than slots──► vLLM's scheduler ──step──► finished requests ─► samples ─► groups
                                             ▲
             load: start, update, finish, version; then a probe, scored by these weights on both sides

`step` and `load` come in turn, so that no pause is needed and every token's version is exact. Nothing waits inside vLLM while
weights change: a request that began later would find keys of old weights in the prefix cache.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections import deque
from collections.abc import Generator, Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.errors import InputError
from trimtab.train.engines.jobs import Unfinished, check_job, longest_of, sample_of
from trimtab.train.engines.probe import TOLERANCES, Probe, Skeleton
from trimtab.train.engines.vllm import request, requirements
from trimtab.train.engines.vllm.plugin import register
from trimtab.train.messages import Floats, Group, Job

PROBE = "probe"


class VllmEngine:
    """Samples jobs with vLLM. The same weights, seed and job give the same tokens, alone or beside others."""

    def __init__(
        self, architecture: PretrainedConfig, rollout: Rollout, *, stop: Sequence[int], version: int = 0
    ) -> None:
        requirements.check_run(architecture, rollout)
        self.version = version
        self.rollout, self.stop = rollout, tuple(stop)
        self.longest = longest_of(architecture, rollout)
        self.vocabulary = int(architecture.get_text_config().vocab_size)
        tolerance = rollout.tolerance or TOLERANCES[rollout.precision]
        self.skeleton = Skeleton(architecture)
        self.probe = Probe(self.skeleton, vocabulary=self.vocabulary, longest=self.longest, tolerance=tolerance)
        self.differences: list[float] = []
        """Of each probe, in the order of updates."""
        self._core, self._vllm = _started(architecture, rollout)
        self._updates = 0
        self._queue: deque[tuple[Unfinished, int]] = deque()
        self._running: dict[str, tuple[Unfinished, int]] = {}
        self._entries: dict[int, Unfinished] = {}
        self._finished: list[Group] = []
        self._waiting: tuple[dict[str, Tensor], int] | None = None

    @property
    def pending(self) -> int:
        """Groups submitted and not yet returned."""
        return len(self._entries) + len(self._finished)

    def submit(self, jobs: Sequence[Job]) -> None:
        """Queue jobs; all are checked before the first is taken."""
        seen = set(self._entries)
        for job in jobs:
            check_job(job, vocabulary=self.vocabulary, longest=self.longest)
            if job.group in seen:
                raise InputError(f"Job needs a group number of its own, got {job.group} twice.")
            seen.add(job.group)
        for job in jobs:
            entry = Unfinished(job)
            self._entries[job.group] = entry
            self._queue.extend((entry, index) for index in range(job.samples))

    def step(self) -> list[Group]:
        """Begin samples in free slots, let vLLM make a step, return the groups that finished."""
        if self._waiting is None:
            self._fill()
        if self._running:
            self._advance()
        self._switch()
        finished, self._finished = self._finished, []
        return finished

    def load(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over weights by state-dict name, and prove it.

        Responses half done: finish goes on with the weights in use until none runs, and begins none meanwhile; keep_cache goes
        on with the keys and values made so far; recompute has the new weights make them again.
        """
        if self.rollout.in_flight == "finish" and self._running:
            self._waiting = {name: weight.detach().clone() for name, weight in weights.items()}, version
            return
        self._take(weights, version)

    def abandon(self) -> None:
        """Forget everything submitted; weights that waited for it are taken over."""
        self._core.abort_request(list(self._running))
        self._queue.clear()
        self._running.clear()
        self._entries.clear()
        self._finished.clear()
        self._switch()

    def _fill(self) -> None:
        while self._queue and len(self._running) < self.rollout.slots:
            entry, index = self._queue.popleft()
            asked = request.asked_of(entry.job, self.stop, longest=self.longest, samples=1, first=index)
            name = f"{entry.job.group}.{index}"
            self._running[name] = entry, index
            self._ask(name, entry.job.prompt.tolist(), asked)

    def _ask(self, name: str, tokens: list[int], asked: dict[str, Any]) -> None:
        """The one place that hands vLLM a prompt. Its prefix is shared among requests of the same version only."""
        final = self._vllm.sampling_params.RequestOutputKind.FINAL_ONLY
        parameters = self._vllm.SamplingParams(**asked, output_kind=final)
        prompt = {"prompt_token_ids": tokens, "cache_salt": f"v{self.version}"}
        self._core.add_request(name, prompt, parameters)

    def _advance(self) -> Floats | None:
        """One step of vLLM; the probe's log-probs, if it was answered."""
        answer = None
        for output in self._core.step():
            if output.request_id == PROBE:
                given = output.prompt_logprobs
                answer = np.array(
                    [each[int(token)].logprob for each, token in zip(given[1:], self.probe.tokens[1:], strict=True)],
                    np.float32,
                )
            elif output.finished:
                self._note(output)
        return answer

    def _note(self, output: Any) -> None:
        entry, index = self._running.pop(output.request_id)
        made = output.outputs[0]
        listed = [{id: each.logprob for id, each in told.items()} for told in made.logprobs]
        entry.done[index] = sample_of(
            made.token_ids,
            (each[token].logprob for each, token in zip(made.logprobs, made.token_ids, strict=True)),
            ((int(span.version), span.start, span.end) for span in made.weight_versions or ()),
            made.finish_reason,
            entry.job,
            lambda count: request.head_of(listed[:count], entry.job),
        )
        group = entry.group()
        if group is not None:
            del self._entries[entry.job.group]
            self._finished.append(group)

    def _switch(self) -> None:
        """Take over weights that wait, once nothing runs."""
        if self._waiting is not None and not self._running:
            (weights, version), self._waiting = self._waiting, None
            self._take(weights, version)

    def _take(self, weights: Mapping[str, Tensor], version: int) -> None:
        if self.rollout.in_flight == "recompute" and self._running:
            self._core.reset_prefix_cache(reset_running_requests=True)
        self._update(weights)
        self._core.set_weight_version(str(version))
        self.version = version
        self._verify(weights)
        self._updates += 1

    def _update(self, weights: Mapping[str, Tensor]) -> None:
        info = {"tensors": weights, "ties": self.skeleton.ties}
        self._core.collective_rpc("start_weight_update")
        self._core.collective_rpc("update_weights", kwargs={"update_info": info})
        self._core.collective_rpc("finish_weight_update")

    def _verify(self, weights: Mapping[str, Tensor]) -> None:
        """Score the probe with the weights given and with the engine; what runs goes on beside it."""
        if self._updates % self.rollout.verify:
            return
        expected = self.probe.expect(weights, self.version)
        asked = {"max_tokens": 1, "prompt_logprobs": 0, "temperature": 0.0, "detokenize": False}
        self._ask(PROBE, self.probe.tokens.tolist(), asked)
        answer = None
        while answer is None:
            answer = self._advance()
        self.differences.append(expected.compare(answer, "vLLM"))


def _started(architecture: PretrainedConfig, rollout: Rollout) -> tuple[Any, Any]:
    """vLLM's engine with random weights, and its module. The folder it reads the architecture from is needed no longer than that."""
    os.environ |= requirements.variables(rollout) | {"VLLM_ENABLE_V1_MULTIPROCESSING": "0"}
    with (
        _for_now(requirements.UNCOMPILED if requirements.on_cpu() else {}),
        tempfile.TemporaryDirectory(prefix="trimtab-") as folder,
    ):
        vllm: Any = importlib.import_module("vllm")
        arguments: Any = importlib.import_module("vllm.engine.arg_utils")
        engines: Any = importlib.import_module("vllm.v1.engine.llm_engine")
        register()
        architecture.save_pretrained(folder)
        options = dict(requirements.engine_options(architecture, rollout))
        core = engines.LLMEngine.from_engine_args(
            arguments.EngineArgs(model=folder, disable_log_stats=True, async_scheduling=False, **options)
        )
    core.collective_rpc("init_weight_transfer_engine", kwargs={"init_info": {}})
    return core, vllm


@contextlib.contextmanager
def _for_now(variables: Mapping[str, str]) -> Generator[None]:
    """Environment variables that hold inside only."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ |= variables
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            os.environ |= {} if value is None else {name: value}
