"""Jobs as vLLM is asked for them, and its answers as samples: the same for the engine in process and for servers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab.errors import InputError
from trimtab.train.messages import Floats, Group, Ints, Job, Sample, SampledHead, Sampling

SEEDS = 2**32
LOG_NOTHING = -1e3
"""Below any log-prob of a token that can be drawn; servers write −9999 for −inf."""


def check_job(job: Job, *, vocabulary: int, longest: int) -> None:
    """Refuse a job that vLLM would refuse in its own words, or worse, take."""
    name = f"Job {job.group}"
    if not len(job.prompt):
        raise InputError(f"{name} needs a prompt of at least one token, got none. Begin it with a start token.")
    if job.samples < 1 or job.max_tokens < 1:
        raise InputError(
            f"{name} needs at least one sample of at least one token, got samples {job.samples}, max_tokens {job.max_tokens}."
        )
    if len(job.prompt) >= longest:
        raise InputError(
            f"{name} needs a prompt shorter than the engine's {longest} tokens, got {len(job.prompt)}. "
            "Shorten it, or raise rollout.vllm.longest."
        )
    least, most = int(job.prompt.min()), int(job.prompt.max())
    if least < 0 or most >= vocabulary:
        raise InputError(
            f"{name} needs token ids from 0 to {vocabulary - 1}, got {least} to {most}. "
            "Use the tokenizer that belongs to the model."
        )


@dataclass(eq=False)
class Unfinished:
    """A job and those of its samples that are done."""

    job: Job
    done: dict[int, Sample] = field(default_factory=dict[int, Sample])

    def group(self) -> Group | None:
        """The group, once it is whole."""
        if len(self.done) < self.job.samples:
            return None
        return Group(self.job, tuple(self.done[index] for index in range(self.job.samples)))


def asked_of(job: Job, stop: Sequence[int], *, longest: int, samples: int, first: int = 0) -> dict[str, Any]:
    """Sampling parameters of `samples` responses from `first` on. vLLM gives the i-th of one request the seed + i."""
    cut = job.sampling
    asked: dict[str, Any] = {
        "n": samples,
        "temperature": cut.temperature,
        "seed": (job.seed + first) % SEEDS,
        "max_tokens": min(job.max_tokens, longest - len(job.prompt)),
        "logprobs": ids_asked(job),
        "stop_token_ids": list(stop),
        "ignore_eos": True,
        "detokenize": False,
    }
    if cut.top_k is not None:
        asked["top_k"] = cut.top_k
    if cut.top_p is not None:
        asked["top_p"] = max(cut.top_p, 1e-6)  # vLLM refuses 0, which means the likeliest token
    return asked


def ids_asked(job: Job) -> int:
    """How many ids vLLM is to list at each token. After top-k none but its own have a probability.

    The token drawn is the first of them, likely or not, so that for the likeliest one more is asked for.
    """
    if job.head == "top-k":
        return job.head_size + 1
    return job.sampling.top_k or 0 if job.head == "mask" else 0


def head_of(told: Sequence[Mapping[int, float]], job: Job) -> SampledHead | None:
    """The head of a response from what was listed at each token; ids without probability are not of it."""
    if not ids_asked(job):
        return None
    likely = [
        sorted(((id, value) for id, value in each.items() if value > LOG_NOTHING), key=lambda pair: -pair[1])
        for each in told
    ]
    kept = [each[: job.head_size] if job.head == "top-k" else each for each in likely]
    return SampledHead(
        counts=np.array([len(each) for each in kept], np.int32),
        ids=np.array([id for each in kept for id, _ in each], np.int32),
        log_probs=np.array([value for each in kept for _, value in each], np.float32),
        log_mass=None,
    )


def sample_of(
    tokens: Sequence[int],
    log_probs: Iterable[float],
    spans: Iterable[tuple[int, int, int]],
    finish: str,
    job: Job,
    told: Sequence[Mapping[int, float]] = (),
) -> Sample:
    """One response. `spans`: version, first token and one past the last. `told`: log-probs by id listed at each token.

    It ends before the first token whose log-prob is not finite: its logits were not either. vLLM reports one kind of log-prob,
    that of the distribution drawn from; the plain one is known where they are the same.
    """
    ids: Ints = np.asarray(tokens, np.int32)
    behavior: Floats = np.fromiter(log_probs, np.float32, len(ids))
    versions: Ints = np.full(len(ids), -1, np.int32)
    for version, start, end in spans:
        versions[start:end] = version
    broken = np.flatnonzero(~np.isfinite(behavior))
    if len(broken):
        end = int(broken[0])
        ids, behavior, versions, finish = ids[:end], behavior[:end], versions[:end], "error"
    if job.sampling.temperature == 0:
        behavior = np.zeros_like(behavior)
    raw = behavior if job.sampling == Sampling() else None
    head = head_of(told[: len(ids)], job)
    return Sample(ids, behavior, raw, versions, "error" if finish not in ("stop", "length") else finish, head)
