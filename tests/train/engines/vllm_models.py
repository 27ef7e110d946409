"""Models that vLLM can run on a CPU, and what transformers says of a response whose tokens have several versions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from trimtab.config.training import Rollout
from trimtab.train.engines.hf.sampling import cut_log_probs
from trimtab.train.messages import Floats, Job, Sample, Sampling

VOCABULARY = 20
LONGEST = 160
CUT = Sampling(0.7, top_k=8, top_p=0.9)


def policy(seed: int, *, tied: bool = False, **changes: Any) -> PreTrainedModel:
    """A random model with heads of 32; biases are random too, or a lost one would not be seen."""
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "intermediate_size": 48,
        "max_position_embeddings": LONGEST,
        "bos_token_id": None,
        "eos_token_id": None,
        "initializer_range": 0.2,
        "tie_word_embeddings": tied,
    }
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(Qwen2Config(**settings | changes)).eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.normal_(std=0.3)
    torch.set_rng_state(state)
    return model


def named(model: PreTrainedModel) -> dict[str, Tensor]:
    """Weights as the learner publishes them: a tensor of two names once, under its first."""
    return {name: value.detach() for name, value in model.named_parameters()}


def rollout(**changes: Any) -> Rollout:
    return Rollout(**{"engine": "vllm", "slots": 16, **changes})


def jobs(count: int, *, prompt: int = 70, samples: int = 4, max_tokens: int = 24, first: int = 0) -> list[Job]:
    """Groups, every second of them under a cut. A prompt of 70 fills two blocks of the prefix cache."""
    rng = np.random.default_rng(first)
    return [
        Job(
            first + number,
            rng.integers(0, VOCABULARY, prompt).astype(np.int32),
            samples,
            500 + first + number,
            max_tokens,
            CUT if number % 2 else Sampling(),
        )
        for number in range(count)
    ]


@torch.no_grad()
def expected(models: Sequence[PreTrainedModel], job: Job, sample: Sample, *, keep_cache: bool) -> Floats:
    """Log-probs of a response under the distribution it was drawn from, each token by the model of its version.

    `keep_cache`: keys and values stay as the version made them that read the token; otherwise the present one makes all again.
    """
    whole = torch.from_numpy(np.concatenate([job.prompt, sample.tokens])).long().unsqueeze(0)
    at, cache, parts = 0, None, []
    start = len(job.prompt)
    for version, places in groupby(range(len(sample.tokens)), key=lambda place: int(sample.versions[place])):
        last = list(places)[-1]
        end = start + last  # the token before the last one of this version is the last it reads
        model = models[version]
        if keep_cache:
            out = model(whole[:, at:end], past_key_values=cache, use_cache=True)
            logits, cache = out.logits[0], out.past_key_values
            rows = logits[max(0, start - 1 - at) :]
        else:
            rows = model(whole[:, :end]).logits[0][max(at, start - 1) :]
        parts.append(rows)
        at = end
    plain = torch.cat(parts).float().log_softmax(-1)
    chosen = cut_log_probs(plain, job.sampling).gather(-1, torch.from_numpy(sample.tokens).long().unsqueeze(-1))
    return chosen.squeeze(-1).numpy()


def differences(models: Sequence[PreTrainedModel], groups: Sequence[Any], *, keep_cache: bool) -> Floats:
    """Of every token of every response."""
    found = [
        np.abs(expected(models, group.job, sample, keep_cache=keep_cache) - sample.behavior)
        for group in groups
        for sample in group.samples
    ]
    return np.concatenate(found)
