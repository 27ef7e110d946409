"""Small random models of several families, jobs for them, and what their full forward says of a response."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.messages import Group, Job, Sample, Sampling

VOCABULARY = 20
SIZE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 96,
    "bos_token_id": None,
    "eos_token_id": None,
    "initializer_range": 0.2,  # wide enough that the distributions are far from flat
}
FAMILIES: dict[str, Callable[[], PreTrainedModel]] = {
    "qwen2": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZE, num_key_value_heads=4)),
    "qwen2 tied": lambda: Qwen2ForCausalLM(Qwen2Config(**SIZE, num_key_value_heads=2, tie_word_embeddings=True)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SIZE, num_key_value_heads=2)),
    "llama biased": lambda: LlamaForCausalLM(
        LlamaConfig(**SIZE, num_key_value_heads=1, attention_bias=True, mlp_bias=True, head_dim=6)
    ),
    "qwen3": lambda: Qwen3ForCausalLM(Qwen3Config(**SIZE, num_key_value_heads=2, head_dim=8)),
    "mistral, sliding window": lambda: MistralForCausalLM(
        MistralConfig(**SIZE, num_key_value_heads=2, sliding_window=5)
    ),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY,
            n_embd=32,
            n_layer=2,
            n_head=4,
            n_positions=96,
            bos_token_id=None,
            eos_token_id=None,
            initializer_range=0.2,
        )
    ),
}
FAST = ("qwen2", "qwen2 tied", "llama", "llama biased")


def model_of(family: str, seed: int = 0) -> PreTrainedModel:
    """A random model; biases are random too, or a lost one would not be seen."""
    torch.manual_seed(seed)
    model = FAMILIES[family]().eval()
    with torch.no_grad():
        for name, value in model.named_parameters():
            if name.endswith("bias"):
                value.normal_(std=0.3)
    return model


PLAIN = Sampling()


def jobs_of(
    sizes: Sequence[int],
    *,
    samples: int = 3,
    max_tokens: int = 12,
    first: int = 0,
    sampling: Sampling = PLAIN,
) -> list[Job]:
    """Jobs with prompts of these lengths."""
    rng = np.random.default_rng(first)
    return [
        Job(
            first + i,
            rng.integers(0, VOCABULARY, size).astype(np.int32),
            samples,
            1000 + first + i,
            max_tokens,
            sampling,
        )
        for i, size in enumerate(sizes)
    ]


def finished(engine: HfEngine, jobs: Sequence[Job] = ()) -> dict[int, Group]:
    """Submit jobs and step until nothing is pending."""
    engine.submit(jobs)
    result: dict[int, Group] = {}
    for _ in range(10_000):
        if not engine.pending:
            return result
        result |= {group.job.group: group for group in engine.step()}
    raise AssertionError("the engine does not come to an end")


def full(model: PreTrainedModel, job: Job, sample: Sample) -> Tensor:
    """Logits [tokens, vocabulary] of one forward over prompt and response, where each response token is predicted."""
    sequence = torch.from_numpy(np.concatenate([job.prompt, sample.tokens])).long().unsqueeze(0)
    with torch.no_grad():
        return model(sequence).logits[0, len(job.prompt) - 1 : -1].float()


def of_tokens(log_probs: Tensor, sample: Sample) -> Tensor:
    """The entries of a response's tokens."""
    return log_probs.gather(-1, torch.from_numpy(sample.tokens).long().unsqueeze(-1)).squeeze(-1)


def tensor(values: Any) -> Tensor:
    """A host array as a tensor."""
    return torch.from_numpy(np.ascontiguousarray(values))


def weights_of(model: PreTrainedModel) -> dict[str, Tensor]:
    """The learner's weights by name."""
    return {name: value.detach() for name, value in model.named_parameters()}
