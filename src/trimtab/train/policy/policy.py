"""The policy: a Hugging Face causal LM from a folder or hub id, or a tiny one made here with a tokenizer of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from tokenizers import Regex, Tokenizer, decoders
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

from trimtab.config.training import Model, Task, Tiny
from trimtab.errors import ConfigError
from trimtab.train.messages import Ints, Problem

PAD, EOS, UNKNOWN = "<pad>", "<eos>", "<unk>"
PLAIN_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, eq=False)
class Policy:
    """A model and the tokenizer it reads and writes with."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stop: tuple[int, ...]
    """Tokens that end a response."""

    def prompt(self, task: Task, problem: Problem) -> Ints:
        """The tokens of a problem's prompt, through the chat template if the task asks for it."""
        ids: Any = self._chat(task, problem) if task.chat else self.tokenizer(problem.prompt).input_ids
        if not ids:
            raise ConfigError(f"Problem {problem.id!r} needs a prompt with tokens, got none. Check the task's file.")
        return np.asarray(ids, dtype=np.int32)

    def _chat(self, task: Task, problem: Problem) -> Any:
        if not self.tokenizer.chat_template:
            raise ConfigError(
                "task.chat needs a tokenizer with a chat template, got one without. Set task.chat=false, or take a model "
                "that was trained to chat."
            )
        system = [] if task.system is None else [{"role": "system", "content": task.system}]
        messages = [*system, {"role": "user", "content": problem.prompt}]
        try:
            return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        except Exception as error:  # a template is a program of the model's author and raises what it likes
            raise ConfigError(
                f"task.chat needs a chat template that takes {' and '.join(each['role'] for each in messages)} messages, "
                f"got a problem: {_reason(error)}. Mend the template, or set task.chat=false."
            ) from error

    def texts(self, responses: Sequence[Ints]) -> list[str]:
        """Responses as text, without the tokens that ended them."""
        ids = [tokens[:-1] if len(tokens) and int(tokens[-1]) in self.stop else tokens for tokens in responses]
        plain: Any = [each.tolist() for each in ids]
        return self.tokenizer.batch_decode(plain, skip_special_tokens=False, clean_up_tokenization_spaces=False)


def loaded(config: Model) -> Policy:
    """The policy in a folder or on the hub; with `random`, its architecture and tokenizer only."""
    assert config.path is not None
    dtype = DTYPES[config.dtype]
    try:
        tokenizer = _tokenizer(config.path)
        settings = AutoConfig.from_pretrained(config.path, trust_remote_code=False)
        unfit: list[str] = []
        if config.random:
            model = AutoModelForCausalLM.from_config(settings, dtype=dtype, trust_remote_code=False)
        else:
            made: Any = AutoModelForCausalLM.from_pretrained(
                config.path,
                config=settings,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
            model, unfit = made[0], _unfit(made[1])
        stop = stops(model, tokenizer)
    except ConfigError:
        raise
    except Exception as error:  # a damaged file fails in as many ways as there are readers between it and here
        raise ConfigError(
            f"model.path needs a Hugging Face causal LM with safetensors, got {config.path!r}: {_reason(error)}."
        ) from error
    if unfit:  # these would be drawn at random
        raise ConfigError(
            f"model.path needs the weights its config.json describes, got {unfit[0]} (of {len(unfit)} that do not fit) in "
            f"{config.path!r}. Take the config.json that was saved with them."
        )
    _check_finite(cast("PreTrainedModel", model), config.path)
    return Policy(cast("PreTrainedModel", model), tokenizer, stop)


def _unfit(found: Any) -> list[str]:
    """Each weight that the file does not have as the model needs it, in words."""
    other = [f"{name} of {list(given)}, not {list(needed)}" for name, given, needed in sorted(found["mismatched_keys"])]
    return other + [f"no {name}" for name in sorted(found["missing_keys"])]


def _reason(error: Exception) -> str:
    """What a library raised, in one line."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    text = f"{type(error).__name__}: {line}" if line else type(error).__name__
    return (text if len(text) <= 300 else f"{text[:299]}…").rstrip(".:")


def _check_finite(model: PreTrainedModel, path: str) -> None:
    """Refuse spoilt weights before anything starts: no step of training mends them."""
    for name, weight in model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise ConfigError(
                f"model.path needs finite weights, got NaN or infinities in {name} of {path!r}. "
                "Take a checkpoint from before they were spoilt, or model.dtype=fp32 if they are too large for bf16."
            )


def _tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The tokenizer as it was saved; by the architecture's name alone, one of our characters would become Qwen's."""
    settings = Path(path) / "tokenizer_config.json"
    if settings.is_file() and json.loads(settings.read_text("utf-8")).get("tokenizer_class") in PLAIN_TOKENIZERS:
        return PreTrainedTokenizerFast.from_pretrained(path, trust_remote_code=False)
    return cast("PreTrainedTokenizerBase", AutoTokenizer.from_pretrained(path, trust_remote_code=False))


def stops(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """The tokens that end a response: those of the model's generation settings and the tokenizer's own."""
    settings = getattr(model, "generation_config", None)
    named: Any = [] if settings is None else settings.eos_token_id
    listed: Sequence[Any] = named if isinstance(named, (list, tuple)) else [named]
    found = tuple(dict.fromkeys(int(each) for each in [*listed, tokenizer.eos_token_id] if each is not None))
    if not found:
        raise ConfigError("The model needs an end-of-sequence token, got none. Set one in its tokenizer.")
    return found


def tiny(config: Tiny, characters: str, positions: int, seed: int) -> Policy:
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
    return Policy(model, tokenizer, (stop,))


def character_tokenizer(characters: str) -> PreTrainedTokenizerFast:
    """One token per character; text and tokens are in one-to-one correspondence."""
    vocabulary = {name: place for place, name in enumerate([PAD, EOS, UNKNOWN, *dict.fromkeys(characters)])}
    whole = Tokenizer(WordLevel(vocabulary, unk_token=UNKNOWN))
    whole.pre_tokenizer = Split(Regex("[\\s\\S]"), "isolated")  # pyright: ignore[reportAttributeAccessIssue]
    whole.decoder = decoders.Fuse()  # pyright: ignore[reportAttributeAccessIssue]
    return PreTrainedTokenizerFast(tokenizer_object=whole, pad_token=PAD, eos_token=EOS, unk_token=UNKNOWN)
