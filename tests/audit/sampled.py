"""Rollouts that a small Hugging Face model really sampled, and the model's folder: what a user hands to `trimtab audit`."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.records.dumps.made import Rollouts

VOCABULARY, PROMPT, LENGTH, EACH = 48, 4, 24, 4


def make_model(folder: Path, seed: int = 0) -> Path:
    """A causal LM with sharp and flat distributions, saved as Hugging Face saves it."""
    torch.manual_seed(seed)
    settings = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=0.35,
        bos_token_id=0,
        eos_token_id=1,
    )
    LlamaForCausalLM(settings).save_pretrained(folder)
    return folder


@torch.no_grad()
def sampled(folder: Path, groups: int = 12, *, temperature: float = 1.0, top_p: float = 1.0, seed: int = 0) -> Rollouts:
    """Responses of unequal length with the log-probs they were drawn with, and those of the same weights at temperature 1."""
    model, draw = LlamaForCausalLM.from_pretrained(folder), torch.Generator().manual_seed(seed)
    ids = torch.randint(2, VOCABULARY, (groups, PROMPT), generator=draw).repeat_interleave(EACH, 0)
    told = torch.zeros(len(ids), 0)
    for _ in range(LENGTH):
        drawn_from = truncated((model(input_ids=ids).logits[:, -1] / temperature).log_softmax(-1), top_p)
        token = torch.multinomial(drawn_from.exp(), 1, generator=draw)
        ids, told = torch.cat([ids, token], 1), torch.cat([told, drawn_from.gather(1, token)], 1)
    logits = model(input_ids=ids).logits[:, PROMPT - 1 : -1]
    scored = logits.log_softmax(-1).gather(-1, ids[:, PROMPT:, None])[..., 0]
    ends = torch.randint(LENGTH // 2, LENGTH + 1, (len(ids),), generator=draw).tolist()
    rewards = torch.randint(2, (len(ids),), generator=draw).float()
    advantages = rewards - rewards.view(-1, EACH).mean(1).repeat_interleave(EACH)
    return Rollouts(
        prompts=ids[:, :PROMPT].tolist(),
        responses=[row[:end].tolist() for row, end in zip(ids[:, PROMPT:], ends, strict=True)],
        masks=[[1] * end for end in ends],
        behavior=[row[:end].tolist() for row, end in zip(told, ends, strict=True)],
        proximal=[row[:end].tolist() for row, end in zip(scored, ends, strict=True)],
        advantages=advantages.tolist(),
        rewards=rewards.tolist(),
        groups=[row // EACH for row in range(len(ids))],
    )


def truncated(log_probs: torch.Tensor, top_p: float) -> torch.Tensor:
    """Log-probs over the likeliest tokens that hold `top_p` of the mass."""
    ordered, places = log_probs.sort(-1, descending=True)
    before = ordered.exp().cumsum(-1) - ordered.exp()
    outside = torch.zeros_like(log_probs, dtype=torch.bool).scatter(-1, places, before >= top_p)
    return log_probs.masked_fill(outside, -torch.inf).log_softmax(-1)
