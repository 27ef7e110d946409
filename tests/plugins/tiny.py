"""A model of a few thousand weights with a tokenizer, on disk as trainers want it, and batches sampled by another policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

VOCABULARY = 32
PAD, EOS = 0, 1


def save_model(path: Path, seed: int = 0) -> Path:
    """A random Qwen2 of 6,320 weights and its tokenizer."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        initializer_range=0.3,  # far from uniform, so that gradients are worth comparing
        bos_token_id=EOS,
        eos_token_id=EOS,
        pad_token_id=PAD,
        tie_word_embeddings=False,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    save_tokenizer(path)
    return path


def save_tokenizer(path: Path) -> None:
    words = {"<pad>": PAD, "<eos>": EOS} | {f"w{i}": i for i in range(2, VOCABULARY)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w2"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>")
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    fast.save_pretrained(path)


@dataclass(frozen=True)
class Rollouts:
    """Padded rows of unequal length: prompts of one width, then responses."""

    prompts: Tensor
    responses: Tensor
    mask: Tensor
    noise: Tensor
    """What is added to the trainer's log-probs to make those of the sampler."""
    advantages: Tensor
    rewards: Tensor
    group: Tensor

    @property
    def tokens(self) -> Tensor:
        return torch.cat([self.prompts, self.responses], 1)

    @property
    def attention(self) -> Tensor:
        return torch.cat([torch.ones_like(self.prompts), self.mask.long()], 1)


def rollouts(rows: int = 8, width: int = 10, prompt: int = 4, spread: float = 0.4, seed: int = 1) -> Rollouts:
    """Rows of 3 to `width` tokens, the first of each pair near the sampler and the second far from it."""
    make = torch.Generator().manual_seed(seed)
    lengths = torch.randint(3, width + 1, (rows,), generator=make)
    lengths[0], lengths[-1] = width, 3
    mask = torch.arange(width) < lengths[:, None]
    scale = torch.where(torch.arange(rows) % 2 == 0, 0.25 * spread, spread)[:, None]
    responses = torch.randint(2, VOCABULARY, (rows, width), generator=make)
    return Rollouts(
        prompts=torch.randint(2, VOCABULARY, (rows, prompt), generator=make),
        responses=torch.where(mask, responses, PAD),
        mask=mask,
        noise=scale * torch.randn(rows, width, generator=make),
        advantages=torch.randn(rows, generator=make),
        rewards=torch.rand(rows, generator=make).round(decimals=2),
        group=torch.arange(rows) // 2,
    )
