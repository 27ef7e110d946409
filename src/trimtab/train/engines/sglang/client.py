"""Calls to one SGLang server: tokens in, tokens out with their log-probs and versions, and a swap of weights.

pause ──► flush ──► update_weights_from_disk (a folder, its version) ──► continue

| in_flight | pause | flush | what runs |
|---|---|---|---|
| keep_cache | in place | no | goes on with its keys; new prompts have a cache key per version |
| recompute, finish | retract | yes | is read anew by the new weights |

The other two pairs are never sent: a flush under a pause in place ends the scheduler, and a retraction without a flush mixes keys of
both versions. The flush is a call of its own, which can fail; inside the update it is an assertion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimtab.config.training import Rollout
from trimtab.errors import RunError
from trimtab.train.engines.jobs import Span, check_answer, sample_of
from trimtab.train.engines.probe import Expected, Skeleton, mean_difference
from trimtab.train.engines.served import InFlight, MixedError, RefusedError, ServerClient
from trimtab.train.messages import Floats, Group, Ints, Job, Sample, SampledHead, Sampling
from trimtab.train.weights.files import LinkedFile
from trimtab.train.weights.protocol import Snapshot

LARGEST_MASK = 4096
"""Ids that SGLang names of a cut distribution."""
CONTINUED = 8
"""Tokens sampled after the probe's text, to see whether its keys are those of the new weights."""
ROUNDING = 1e-3
"""How far above 0 the log of a probability may lie."""
PLAIN = {
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
    "min_new_tokens": 0,
}
"""Sent with every request: a server may have other defaults, and a learner's log-probs know no penalties."""


class SglangClient(ServerClient):
    """Calls to one SGLang server."""

    def __init__(
        self,
        address: str,
        key: str | None,
        label: str | None,
        folder: LinkedFile,
        skeleton: Skeleton,
        rollout: Rollout,
        *,
        stop: Sequence[int],
        longest: int,
        vocabulary: int,
    ) -> None:
        """`label`: what a server of the run's own calls its first weights. `folder`: the weights file in a folder of this server alone."""
        super().__init__(address, key)
        self._label, self._file, self._skeleton, self._rollout = label, folder, skeleton, rollout
        self._stop, self._longest, self._vocabulary = stop, longest, vocabulary
        self._sent = -1

    @property
    def newest(self) -> int:
        """The newest version there is to send."""
        return self._file.version

    def connect(self) -> None:
        """See that it is a server of SGLang's, and the one that the run started."""
        try:
            info = self.call("/model_info", method="GET")
        except RefusedError as error:
            raise RunError(
                f"{error} Where the server was started with --api-key, set TRIMTAB_SGLANG_KEY to that key; "
                "--admin-api-key beside it is not supported: see docs/scale.md."
            ) from error
        if not isinstance(info, dict) or "weight_version" not in info:
            raise RunError(
                f"{self.address} needs to be a server of SGLang 0.5.21 or newer, got another. See rollout.servers."
            )
        if self._label is not None and info["weight_version"] != self._label:
            raise RunError(
                f"{self.address} needs to be the server that this run started, got another process on its port."
            )

    def take(self) -> Snapshot:
        """The newest weights."""
        return self._file.take()

    def swap(self, weights: Snapshot, in_flight: InFlight) -> None:
        """Update from the folder. Before the first nothing of this run is there, but perhaps keys of another's."""
        is_kept = in_flight == "keep_cache" and self._sent >= 0
        self._sent = weights.version
        self.call("/pause_generation", {"mode": "in_place" if is_kept else "retract"})
        try:
            if not is_kept:
                self.call("/flush_cache", {}, is_text=True)
            self.call(
                "/update_weights_from_disk",
                {
                    "model_path": str(self._file.path.parent),
                    "load_format": "safetensors",
                    "flush_cache": False,
                    "weight_version": str(weights.version),
                },
            )
        except RefusedError as error:
            self.call("/continue_generation", {}, is_text=True)  # without a body it answers 400 and stays paused
            raise RunError(f"{error} It has to see {self._file.path.parent} under the same path.") from error
        self.call("/continue_generation", {}, is_text=True)

    def generate(self, job: Job, version: int) -> Group:
        """Sample a whole group."""
        cut = job.sampling
        if cut.temperature > 0 and cut.top_p is not None and cut.top_p < 1 and cut.top_k is None:
            raise RunError(
                f"SGLang needs top_k beside top_p to report what was left, got top_p {cut.top_p:g} alone. Set top_k too."
            )
        answers = self.call("/generate", asked_of(job, self._stop, self._longest, version), timeout=24 * 3600.0)
        answers = answers if isinstance(answers, list) else [answers]
        if len(answers) != job.samples:
            raise RunError(
                f"{self._who} needs to answer group {job.group} with {job.samples} responses, got {len(answers)}."
            )
        return Group(job, tuple(self._sample(answer, job) for answer in answers))

    def prove(self, expected: Expected, weights: Mapping[str, Tensor], who: str) -> list[float]:
        """By the log-probs of a prompt, which it works out anew, and by those of what it samples after it, with the keys it has."""
        scored = expected.compare(self.score(expected.tokens), who)
        sampling = Sampling(self._rollout.temperature, self._rollout.top_k, self._rollout.top_p)
        count = max(1, min(CONTINUED, self._longest - len(expected.tokens)))
        job = Job(-1, expected.tokens, 1, 0, count, sampling, head="mask")
        sample = self.generate(job, expected.version).samples[0]
        off = mean_difference(sample.behavior, self._likely(weights, job, sample))
        if off > expected.tolerance:
            raise RunError(
                f"{who} needs to sample with the weights of version {expected.version} and report log-probs at temperature "
                f"{sampling.temperature:g}, got ones that are off by {off:.2g} on average (more than {expected.tolerance:g}) though a "
                "prompt alone is scored right: its prefix cache holds keys of other weights, or it reports another kind of log-prob "
                "(SGLANG_RETURN_ORIGINAL_LOGPROB). The run stops."
            )
        return [scored, off]

    def score(self, tokens: Ints) -> Floats:
        """Log-probs of each token but the first, under the weights it has now. They are worked out anew: no cache is read."""
        asked = {
            "input_ids": tokens.tolist(),
            "sampling_params": {"max_new_tokens": 0, "temperature": 1.0},
            "return_logprob": True,
            "logprob_start_len": 0,
        }
        given = self.call("/generate", asked)["meta_info"]["input_token_logprobs"][1:]
        if len(given) != len(tokens) - 1:  # their ids say little: SGLang writes 0 for the last one of the vocabulary
            raise RunError(
                f"{self._who} needs to score {len(tokens)} tokens, got {len(given)} log-probs after the first."
            )
        return np.array([each[0] for each in given], np.float32)

    def release(self) -> None:
        """Remove what was taken."""
        self._file.close()

    @property
    def _who(self) -> str:
        return f"The server at {self.address}"

    def _sample(self, answer: Mapping[str, Any], job: Job) -> Sample:
        meta, tokens = answer["meta_info"], answer["output_ids"]
        kind = meta["finish_reason"]["type"]
        if kind == "abort":
            raise RefusedError(f"{self._who} needs to finish group {job.group}, got an abort: {meta['finish_reason']}.")
        told = meta["output_token_logprobs"]
        log_probs = meta["output_token_sampling_logprobs"] if _is_cut(job) else [each[0] for each in told]
        spans = [(int(each["version"]), int(each["start"]), int(each["end"])) for each in meta["weight_versions"]]
        check_answer(self._who, job, tokens, log_probs, spans, vocabulary=self._vocabulary)
        self._check_values(job, tokens, told, log_probs, spans, kind)
        if self._rollout.in_flight == "keep_cache" and meta["num_retractions"] and len(spans) > 1:
            raise MixedError  # for want of memory: it came back with some keys of before, and others made anew
        if job.sampling.top_k == 1:
            log_probs = [0.0] * len(tokens)
        return sample_of(
            tokens, log_probs, spans, kind, job, lambda count: head_of(meta, job, tokens, self._vocabulary)
        )

    def _check_values(
        self,
        job: Job,
        tokens: Sequence[int],
        told: Sequence[Sequence[Any]],
        log_probs: Sequence[Any],
        spans: Sequence[Span],
        kind: str,
    ) -> None:
        """Refuse log-probs of other tokens, or that are none, and an end at a token that is no stop token."""
        wrong = next((each for each in log_probs if not _is_log_prob(each)), None)
        if wrong is not None or None in log_probs:
            raise RunError(
                f"{self._who} needs finite log-probs of at most 0 for group {job.group}, got {wrong}. Its weights may hold NaN."
            )
        if [each[1] for each in told] != list(tokens):
            raise RunError(
                f"{self._who} needs log-probs of the tokens it sampled for group {job.group}, got those of others."
            )
        newest = max(version for version, _, _ in spans)
        if newest > self._sent:
            raise RunError(
                f"{self._who} needs to mark group {job.group} with versions of the weights that it was sent, got {newest}."
            )
        if kind == "stop" and tokens[-1] not in self._stop:
            raise RunError(
                f"{self._who} needs to stop group {job.group} at one of {list(self._stop)}, got {tokens[-1]}. Its folder's config.json "
                "or generation_config.json names that eos_token_id: take it out."
            )

    @torch.no_grad()
    def _likely(self, weights: Mapping[str, Tensor], job: Job, sample: Sample) -> Floats:
        """Log-probs of a response under these weights and the job's sampling, over the ids that the server says were left."""
        rows = self._skeleton.distributions(weights, np.concatenate([job.prompt, sample.tokens]))[len(job.prompt) - 1 :]
        if sample.head is not None:
            left = torch.full_like(rows, -math.inf)
            at = np.repeat(np.arange(len(rows)), sample.head.counts)
            left[at, sample.head.ids] = 0.0
            rows = rows + left
        tokens = torch.from_numpy(sample.tokens).long().unsqueeze(-1).to(rows.device)
        if job.sampling.temperature == 0 or job.sampling.top_k == 1:
            return np.zeros(len(tokens), np.float32)
        return (rows / job.sampling.temperature).log_softmax(-1).gather(-1, tokens).squeeze(-1).cpu().numpy()


def asked_of(job: Job, stop: Sequence[int], longest: int, version: int) -> dict[str, Any]:
    """A request for all responses of a job. It has no seed: without deterministic mode SGLang takes one and ignores it."""
    cut = job.sampling
    greedy = cut.temperature == 0 or cut.top_k == 1
    asked: dict[str, Any] = {
        "input_ids": job.prompt.tolist(),
        "sampling_params": PLAIN
        | {
            "n": job.samples,
            "temperature": 0.0 if greedy else cut.temperature,
            "top_k": cut.top_k if _is_cut(job) else -1,
            "top_p": max(cut.top_p, 1e-6) if _is_cut(job) and cut.top_p is not None else 1.0,
            "max_new_tokens": min(job.max_tokens, longest - len(job.prompt)),
            "stop_token_ids": list(stop),
            "ignore_eos": not stop,  # it would ignore the stop tokens too
        },
        "return_logprob": True,
        "extra_key": f"v{version}",
    }
    if _is_cut(job):
        # One request per response: for n of them SGLang first reads the prompt alone, and fails for want of that request's mask.
        asked |= {"return_sampling_mask": True, "sampling_logprobs_mode": "selected"}
        asked |= {"input_ids": [asked["input_ids"]] * job.samples}
        asked["sampling_params"]["n"] = 1
    if job.head == "top-k":
        asked["top_logprobs_num"] = job.head_size
    return asked


def head_of(meta: Mapping[str, Any], job: Job, tokens: Sequence[int], vocabulary: int) -> SampledHead | None:
    """The ids that each token could be drawn from, or the likeliest with their log-probs; as the job asks."""
    log_probs = None
    if job.head == "top-k":
        listed = meta["output_top_logprobs"]
        ids = [[each[1] for each in row] for row in listed]
        log_probs = np.array([each[0] for row in listed for each in row], np.float32)
    elif job.head == "mask" and _is_cut(job):
        ids = meta["output_token_sampling_mask"]
    else:
        return None
    flat = [id for row in ids for id in row]
    is_told = len(ids) == len(tokens) and all(type(id) is int and 0 <= id < vocabulary for id in flat)
    if not is_told or (log_probs is None and any(token not in row for token, row in zip(tokens, ids, strict=True))):
        raise RunError(
            f"The answer to group {job.group} needs ids from 0 to {vocabulary - 1} for each of {len(tokens)} tokens, its own among those "
            "that were left, got others."
        )
    return SampledHead(np.array([len(row) for row in ids], np.int32), np.array(flat, np.int32), log_probs, None)


def _is_cut(job: Job) -> bool:
    """Whether a distribution is cut that has more than one id."""
    cut = job.sampling
    return cut.temperature > 0 and cut.top_k is not None and cut.top_k > 1


def _is_log_prob(value: object) -> bool:
    return isinstance(value, int | float) and -math.inf < value <= ROUNDING
