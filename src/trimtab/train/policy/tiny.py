"""A tiny policy made on the spot, with a tokenizer of the task's own characters."""

from __future__ import annotations

from typing import cast

import torch
from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from trimtab.config.training import Tiny
from trimtab.errors import ConfigError
from trimtab.train.policy.model import Pretrained
from trimtab.train.policy.policy import Policy

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"


def tiny_policy(config: Tiny, characters: str, positions: int, seed: int) -> Pretrained:
    """A small Qwen2 policy over these characters, its weights drawn from `seed`."""
    if config.width % config.heads or (config.width // config.heads) % 2:
        raise ConfigError(f"Tiny needs heads that divide width into even parts, got {config.heads} for {config.width}.")
    tokenizer = character_tokenizer(characters)
    pad, stop = (int(cast("int", tokenizer.convert_tokens_to_ids(name))) for name in (PAD, EOS))
    settings = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=config.width,
        intermediate_size=config.mlp,
        num_hidden_layers=config.layers,
        num_attention_heads=config.heads,
        num_key_value_heads=config.heads,
        max_position_embeddings=positions,
        initializer_range=config.width
        ** -0.5,  # the usual 0.02 belongs to wide models; here it costs 200 steps of warm start
        tie_word_embeddings=config.tied,
        bos_token_id=None,
        eos_token_id=stop,
        pad_token_id=pad,
    )
    state = torch.get_rng_state()
    torch.manual_seed(seed)
    model = Qwen2ForCausalLM(settings)
    torch.set_rng_state(state)
    return Pretrained(Policy(tokenizer, (stop,), model.config, len(tokenizer)), model)


def character_tokenizer(characters: str) -> PreTrainedTokenizerFast:
    """One token per character; text and tokens are in one-to-one correspondence."""
    vocabulary = {name: place for place, name in enumerate([PAD, EOS, UNKNOWN, *dict.fromkeys(characters)])}
    whole = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    whole.pre_tokenizer = Split(Regex("[\\s\\S]"), "isolated")  # pyright: ignore[reportAttributeAccessIssue]
    whole.decoder = decoders.Fuse()  # pyright: ignore[reportAttributeAccessIssue]
    return PreTrainedTokenizerFast(tokenizer_object=whole, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN)
