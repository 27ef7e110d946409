"""Jobs as vLLM is asked for them, and the heads in its answers: the same for the engine in process and for servers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trimtab.train.messages import Job, SampledHead

SEEDS = 2**32
LOG_NOTHING = -1e3
"""Below any log-prob of a token that can be drawn; servers write −9999 for −inf."""


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
