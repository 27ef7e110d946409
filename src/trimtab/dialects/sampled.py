"""How the answers came about that a step trains on, from keys of no rule here: how old they may be, and how they are sampled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trimtab.dialects.framework import Given, parents
from trimtab.dialects.reading import Finding

AGES = {"staleness", "offpolicyness"}
"""Words of a key that bounds how old a sample may be."""
AGE_PAIRS = {
    ("trajectory", "age"),
    ("async", "steps"),
    ("async", "level"),
    ("async", "enable"),
    ("async", "train"),
    ("async", "queue"),
    ("async", "generation"),
    ("async", "generate"),
    ("async", "training"),
    ("fully", "async"),
    ("queued", "batches"),
    ("require", "batches"),
    ("inflight", "updates"),
    ("weight", "updates"),
    ("partial", "rollout"),
    ("parameter", "sync"),
    ("lookahead", "versions"),
}
"""Pairs of words that do, or that let weights change while an answer is sampled."""
SAMPLING = re.compile(
    r"(?:(?:rollout|generate|generation|sampling|gen|train|vllm|sglang)_)?"
    r"(temperature|top_p|top_k|min_p|repetition_penalty|presence_penalty|frequency_penalty)"
)
"""Names of keys that shape the distribution answers are drawn from."""
PLAIN: dict[str, tuple[float, ...]] = {
    "temperature": (1,),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
"""Values under which the distribution is the model's own."""
NO_VOCABULARY = 1_000_000
"""No model has so many ids: a top_k from here on keeps them all, as AReaL's default of 1e8 does."""
OTHERS = {
    "eval", "evaluation", "evaluator", "val", "valid", "validation", "test", "judge", "reward", "rewards", "genrm", "teacher",
    "distill", "distillation", "opd", "data", "env", "envs", "environment", "simulator", "user",
}  # fmt: skip
"""Words of a section in which other answers are sampled than those trained on."""


def words_of(key: str) -> list[str]:
    """The words of a key's own name."""
    return key.rpartition(".")[2].lower().replace("-", "_").split("_")


def is_switched_off(asked: Given, key: str) -> bool:
    """Whether a section that a key stands in is switched off, or of a kind that is none."""
    return any(
        asked.value_of(f"{section}.{switch}", True) is False
        for section in parents(key)
        for switch in ("enabled", "enable")
    ) or any(asked.value_of(f"{section}.type", True) in (None, "no_filter") for section in parents(key))


def is_of_others(key: str) -> bool:
    """Whether a key stands in a section in which other answers are sampled than those trained on."""
    words = set(re.split(r"[._]", key.rpartition(".")[0].lower()))
    trained = {"env", "envs"} if "train" in words else set[str]()
    return bool((OTHERS - trained) & words)


FUNCTION = re.compile(r"[A-Za-z_]\w*(\.\w+)+")
"""A function by its full name."""


def speaks_of_age(key: str) -> bool:
    """Whether a key by its name bounds how old a sample may be."""
    words = words_of(key)
    pairs = set(pairwise(words))
    if {("off", "policy"), ("weight", "sync")} & pairs:
        return words[-1] in ("steps", "interval")
    return bool(AGES & set(words) or AGE_PAIRS & pairs)


def trains_on_earlier(program: str) -> bool:
    """Whether a program by its name trains on answers of earlier weights: `train_async.py`, `one_step_off_policy.main_ppo`."""
    words = re.split(r"[^a-z]+", program.lower())
    return "async" in words or ("off", "policy") in pairwise(words)


def _says_age(key: str, value: Any) -> bool:
    """Whether a key speaks of age and says some, or names a function or a program that by its own name does."""
    if FUNCTION.fullmatch(str(value)) and key.endswith(("_path", "_script")):
        return trains_on_earlier(str(value))
    return speaks_of_age(key) and bool(value)


def age_findings(asked: Given, program: str = "") -> Iterator[Finding]:
    """One note with the keys that say how old samples may be, and with the program where its name does."""
    named = [program] if trains_on_earlier(program) else []
    named += [
        key for key in asked.unread_keys if _says_age(key, asked.value_written(key)) and not is_switched_off(asked, key)
    ]
    if named:
        yield Finding(
            ", ".join(named),
            "note",
            "By the name this says how old samples may be, or that weights change while one is sampled: it decides which of them reach "
            "the step, and the formulas here are the same for every age.",
        )


def sampling_findings(asked: Given) -> Iterator[Finding]:
    """One note with what sharpens or cuts off the distribution that answers are drawn from."""
    found = {key: asked.value_written(key) for key in asked.unread_keys if _shapes(key, asked.value_written(key))}
    if found:
        said = list(dict.fromkeys(f"{key.rpartition('.')[2]} {value}" for key, value in found.items()))
        *front, last = said
        yield Finding(
            ", ".join(found),
            "note",
            f"Answers are sampled with {', '.join(front)}{' and ' if front else ''}{last}. The log-probs of sampler and trainer compare "
            "like with like only at one temperature and over the same ids; whether they are is not in this reading.",
        )


def _shapes(key: str, value: Any) -> bool:
    """Whether a key makes the distribution another than the model's own."""
    name = key.rpartition(".")[2]
    match = SAMPLING.fullmatch(name)
    if match is None or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    cuts = value not in PLAIN[match[1]] and not (match[1] == "top_k" and value >= NO_VOCABULARY)
    return cuts and not is_of_others(key)
