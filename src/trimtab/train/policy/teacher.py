"""A teacher from a folder or hub id: a model that knows the policy's own tokens."""

from __future__ import annotations

from transformers import PreTrainedModel

from trimtab.config.training import Model, Teacher
from trimtab.errors import ConfigError
from trimtab.train.policy.policy import Policy
from trimtab.train.policy.pretrained import load_pretrained


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
