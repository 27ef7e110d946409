"""What engines of other projects share: jobs checked before they leave us, and answers as samples."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from transformers import PretrainedConfig

from trimtab.config.training import Rollout
from trimtab.errors import InputError, RunError
from trimtab.train.messages import Floats, Group, Ints, Job, Sample, SampledHead, Sampling

Span = tuple[int, int, int]
"""A version, the first token that it drew, and one past the last."""


def longest_of(architecture: PretrainedConfig, rollout: Rollout) -> int:
    """The longest sequence, prompt and response, that an engine is built for."""
    text: Any = architecture.get_text_config()
    most = int(getattr(text, "max_position_embeddings", None) or 4096)
    return min(most, rollout.longest or most)


def check_job(job: Job, *, vocabulary: int, longest: int) -> None:
    """Refuse a job that an engine would refuse in its own words, or worse, take: an id it has no embedding for can end it."""
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
            "Shorten it, or raise rollout.longest."
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


def check_answer(
    who: str, job: Job, tokens: Sequence[Any], log_probs: Sequence[Any], spans: Sequence[Span], *, vocabulary: int
) -> None:
    """Refuse a server's answer that no sampling can have produced, before it is trained on."""

    def refuse(rule: str, got: object) -> RunError:
        return RunError(
            f"{who} needs to answer group {job.group} with {rule}, got {got}. Nothing that it samples can be trusted: the run stops."
        )

    if not 1 <= len(tokens) <= job.max_tokens:
        raise refuse(f"1 to {job.max_tokens} tokens", len(tokens))
    wrong = [each for each in tokens if type(each) is not int or not 0 <= each < vocabulary]
    if wrong:
        raise refuse(f"token ids from 0 to {vocabulary - 1}", repr(wrong[0]))
    if len(log_probs) != len(tokens):
        raise refuse(f"a log-prob for each of {len(tokens)} tokens", len(log_probs))
    at = 0
    for version, start, end in spans:
        if version < 0 or start != at or end < start:
            raise refuse("versions of the weights that cover its tokens", list(spans))
        at = end
    if at != len(tokens):
        raise refuse(f"versions of the weights for {len(tokens)} tokens", list(spans))


def sample_of(
    tokens: Sequence[int],
    log_probs: Iterable[float],
    spans: Iterable[Span],
    finish: str,
    job: Job,
    head: Callable[[int], SampledHead | None] = lambda count: None,
) -> Sample:
    """One response. `head`: what was recorded of the distributions of so many tokens.

    It ends before the first token whose log-prob is not finite: its logits were not either. Engines report one kind of log-prob,
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
    return Sample(ids, behavior, raw, versions, "error" if finish not in ("stop", "length") else finish, head(len(ids)))
