"""A Hugging Face causal LM from a folder or hub id, as the policy a run begins with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from trimtab.config.training import Model, Teacher
from trimtab.errors import ConfigError
from trimtab.train.policy.policy import Policy, error_line

PLAIN_TOKENIZERS = ("PreTrainedTokenizerFast", "TokenizersBackend")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A policy and the model it begins with. Whoever trains the model takes it over."""

    policy: Policy
    model: PreTrainedModel


def load_pretrained(config: Model, key: str = "model.path") -> Pretrained:
    """The policy in a folder or on the hub; with `random`, its architecture and tokenizer only. `key`: what the path is called."""
    assert config.path is not None
    dtype = DTYPES[config.dtype]
    try:
        tokenizer = _tokenizer(config.path)
        _check_words(tokenizer, config.path, key)
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
        policy = policy_of(model, tokenizer)
    except ConfigError:
        raise
    except Exception as error:  # a damaged file fails in as many ways as there are readers between it and here
        raise ConfigError(
            f"{key} needs a Hugging Face causal LM with safetensors, got {config.path!r}: {error_line(error)}."
        ) from error
    if unfit:  # these would be drawn at random
        raise ConfigError(
            f"{key} needs the weights its config.json describes, got {unfit[0]} (of {len(unfit)} that do not fit) in "
            f"{config.path!r}. Take the config.json that was saved with them."
        )
    _check_finite(cast("PreTrainedModel", model), config.path, key)
    return Pretrained(policy, cast("PreTrainedModel", model))


def _unfit(found: Any) -> list[str]:
    """Each weight that the file does not have as the model needs it, in words."""
    other = [f"{name} of {list(given)}, not {list(needed)}" for name, given, needed in sorted(found["mismatched_keys"])]
    return other + [f"no {name}" for name in sorted(found["missing_keys"])]


def _check_finite(model: PreTrainedModel, path: str, key: str) -> None:
    """Refuse spoilt weights before anything starts: no step of training mends them."""
    for name, weight in model.named_parameters():
        if not bool(weight.isfinite().all()):
            raise ConfigError(
                f"{key} needs finite weights, got NaN or infinities in {name} of {path!r}. "
                f"Take a checkpoint from before they were spoilt, or {key[:-4]}dtype=fp32 if they are too large for bf16."
            )


def _tokenizer(path: str) -> PreTrainedTokenizerBase:
    """The tokenizer as it was saved; by the architecture's name alone, one of our characters would become Qwen's."""
    settings = Path(path) / "tokenizer_config.json"
    if settings.is_file() and json.loads(settings.read_text("utf-8")).get("tokenizer_class") in PLAIN_TOKENIZERS:
        return PreTrainedTokenizerFast.from_pretrained(path, trust_remote_code=False)
    return cast("PreTrainedTokenizerBase", AutoTokenizer.from_pretrained(path, trust_remote_code=False))


def _check_words(tokenizer: PreTrainedTokenizerBase, path: str, key: str) -> None:
    """Refuse a folder without a tokenizer's files: from the architecture's name alone, one without a single word is made."""
    if not set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
        raise ConfigError(
            f"{key} needs a tokenizer beside the weights, got none in {path!r}. Save that of the model there: "
            f"AutoTokenizer.from_pretrained(MODEL).save_pretrained({path!r})."
        )


def stop_tokens(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """The tokens that end a response: those of the model's generation settings and the tokenizer's own."""
    settings = getattr(model, "generation_config", None)
    named: Any = [] if settings is None else settings.eos_token_id
    listed: Sequence[Any] = named if isinstance(named, (list, tuple)) else [named]
    found = tuple(dict.fromkeys(int(each) for each in [*listed, tokenizer.eos_token_id] if each is not None))
    if not found:
        raise ConfigError("The model needs an end-of-sequence token, got none. Set one in its tokenizer.")
    return found


def policy_of(model: Any, tokenizer: PreTrainedTokenizerBase) -> Policy:
    """What the run keeps of a model beside its weights."""
    vocabulary = int(model.get_input_embeddings().weight.shape[0])
    return Policy(tokenizer, stop_tokens(model, tokenizer), model.config, vocabulary)


def load_teacher(config: Teacher, policy: Policy) -> PreTrainedModel:
    """The model, if every token the policy may sample means the same to it."""
    found = load_pretrained(Model(path=config.path, dtype=config.dtype), key="teacher.path")
    if found.policy.vocabulary < policy.vocabulary:
        raise ConfigError(
            f"teacher.path needs a model that knows the policy's {policy.vocabulary} tokens, got one of {found.policy.vocabulary} in "
            f"{config.path!r}. Take a teacher of the same family."
        )
    other = _first_other_token(policy, found.policy)
    if other is not None:
        raise ConfigError(
            f"teacher.path needs the policy's own tokens, got another id for {other!r} in {config.path!r}. Log-probs of sampled ids would "
            "be those of other text: take a teacher with the same tokenizer."
        )
    return found.model


def _first_other_token(policy: Policy, teacher: Policy) -> str | None:
    """A token of the policy that the teacher numbers otherwise; None: there is none."""
    theirs = teacher.tokenizer.get_vocab()
    return next((token for token, place in policy.tokenizer.get_vocab().items() if theirs.get(token) != place), None)
