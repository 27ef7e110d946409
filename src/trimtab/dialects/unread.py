"""Keys that by their names concern a correction, a ratio, a clip, a KL or an advantage and are read by no rule here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from trimtab.dialects.dialect import Given, parents
from trimtab.dialects.reading import Finding
from trimtab.dialects.sampled import speaks_of_age

WORDS = {
    "kl", "ratio", "clip", "cliprange", "tis", "mis", "icepop", "kpop", "opsm", "importance", "correction", "correct",
    "rejection", "veto", "behav", "behave", "decoupled", "proximal", "off", "offpolicy", "truncated", "distill", "distillation",
    "gold", "overlong", "mask", "masks", "masking", "baseline", "discount",
}  # fmt: skip
"""Words of a key that are worth a word."""
ALGORITHMS = {
    "kd",
    "opd",
    "mopd",
    "opsd",
    "cispo",
    "gspo",
    "sapo",
    "dppo",
    "cppo",
    "gmpo",
    "fipo",
    "vespo",
    "topr",
    "gpg",
    "tvpo",
    "chord",
    "rlsd",
    "sdar",
    "hicra",
}
"""Names of an algorithm, which are worth it whatever stands beside them."""
ALWAYS = {
    ("reward", "post"),
    ("routing", "replay"),
    ("router", "replay"),
    ("old", "logprobs"),
    ("logprobs", "mode"),
    ("adaptive", "entropy"),
    ("entropy", "target"),
    ("stop", "penalty"),
    ("pf", "ppo"),
}
"""Pairs that are worth it likewise: a function in place of the framework's, `custom_reward_post_process_path`; experts that the
trainer's log-probs take over from the sampler; which log-probs these are."""
REFERENCES = {"ref", "reference"}
MOVED = {"sync", "update", "mixup", "ema"}
"""And these beside the reference, from which the KL is then measured anew."""
FUNCTIONS = {"function", "func", "fn"}
COMPUTED = {"loss", "advantage", "advantages", "adv", "tis", "kl", "correction", "mask", "reducer"}
"""What a function of the user's own may compute in the framework's place, whatever its file is called."""
REWARDS = {"reward", "rewards"}
CHANGED = {
    "normalize", "normalise", "normalization", "norm", "scale", "scaling", "shaping", "bias", "whiten", "zero", "penalty",
}  # fmt: skip
"""And these beside rewards, which then reach the advantage as something else."""
OF_ADVANTAGES = {"adv", "advantage", "advantages"}
"""And so are these, of which `norm` says what is done with them."""
PAIRS = {
    ("is", "weight"),
    ("is", "level"),
    ("is", "mode"),
    ("is", "threshold"),
    ("rollout", "is"),
    ("rollout", "rs"),
    ("vllm", "is"),
    ("score", "centering"),
    ("loss", "variant"),
    ("entropy", "loss"),
    ("entropy", "coef"),
    ("entropy", "coeff"),
    ("entropy", "bonus"),
    ("entropy", "weight"),
    ("entropy", "beta"),
    ("token", "loss"),
    ("loss", "scale"),
    ("loss", "agg"),
    ("loss", "aggregation"),
    ("loss", "reduction"),
    ("loss", "denominator"),
    ("masked", "mean"),
    ("trust", "region"),
    ("divergence", "threshold"),
    ("prox", "logp"),
    ("sampling", "mask"),
    ("vllm", "logprobs"),
    ("rollout", "logprobs"),
}
PASSED = {
    "grad", "gradient", "norm", "warmup", "gpu", "memory", "mem", "eval", "val", "value", "sampling_ratio", "decay", "lr",
    "offload", "critic", "image", "video", "split", "mix", "min", "dropout", "train", "cutoff", "steps", "max", "filter",
    "trim", "prefill", "cache", "router", "expert", "capacity", "lambda", "lora", "quant", "qk", "activation", "logits",
    "file", "path", "dir", "name", "optimizer", "adam", "embedding", "wandb", "data", "log", "metrics", "cross",
    "attention", "attn", "causal", "id", "fp16", "initial",
}  # fmt: skip
"""Words beside which those mean something else: `max_grad_norm`, `warmup_ratio`, `gpu_memory_ratio`."""
SECTIONS = {"loss", "distill", "distillation", "opd", "mopd", "opsd", "icepop", "tis", "mis", "correction", "overlong"}
"""Words of a section every key of which is worth a word, unless it is switched off."""
MOST_NAMED = 12


def unread_findings(asked: Given) -> Iterator[Finding]:
    """One note with every such key that says something."""
    unread = [key for key in asked.unread_keys if not speaks_of_age(key) and _says_something(asked, key)]
    named = [key for key in unread if concerns(key) or _inside(asked, key)]
    if named:
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        yield Finding(
            ", ".join(named[:MOST_NAMED]) + more,
            "note",
            "By the name this concerns a correction, a ratio, a clip, a KL, log-probs, a mask, a loss, rewards, an advantage or a teacher; "
            "it is not read here, so what it does is not in this reading.",
        )


def environment_findings(variables: Mapping[str, str]) -> Iterator[Finding]:
    """One note with the variables that a command is given and that no word of it uses."""
    named = [name for name, value in variables.items() if value and concerns(name)]
    if named:
        yield Finding(
            ", ".join(named[:MOST_NAMED]),
            "note",
            "The command is given this in its environment; by the name it concerns a correction, a ratio, a clip, a KL or a loss, and what "
            "it does is not in this reading.",
        )


def unused_findings(asked: Given) -> Iterator[Finding]:
    """One note with the keys of ours that act on a loss or an advantage of which the file says nothing."""
    if asked.speaks_of("loss") or asked.speaks_of("advantage"):
        return
    written = [name for label, name in asked.places.items() if asked.part_of(label) == "other" and concerns(name)]
    named = [name for name in written if _says_something(asked, name)]
    if named:
        yield Finding(
            ", ".join(named[:MOST_NAMED]),
            "note",
            "This acts on a loss or an advantage that the file leaves to the defaults, which are not shown.",
        )


def _says_something(asked: Given, key: str) -> bool:
    value = asked.value_written(key)
    return value not in (None, {}, []) and not ("discount" in _words(key) and value == 1)


def _inside(asked: Given, key: str) -> bool:
    """Whether a key stands in a section that by its name concerns us and is not switched off."""
    section = next(
        (each for each in parents(key) if SECTIONS & set(_words(each)) or _changes_rewards(_words(each))), None
    )
    return section is not None and not any(
        asked.value_of(f"{section}.{switch}", True) is False for switch in ("enabled", "enable")
    )


def _words(key: str) -> list[str]:
    """The words of a key's own name."""
    return key.rpartition(".")[2].lower().replace("-", "_").split("_")


def _changes_rewards(words: list[str]) -> bool:
    """Whether a name says that rewards reach the advantage as something else."""
    return bool(REWARDS & set(words) and CHANGED & set(words))


def concerns(key: str) -> bool:
    """Whether a key by its name concerns a correction, a ratio, a clip, a KL or what goes with them."""
    words = _words(key)
    said = set(words)
    if ALGORITHMS & said or any(pair in ALWAYS for pair in pairwise(words)):
        return True
    if (FUNCTIONS & said and COMPUTED & said) or (REFERENCES & said and MOVED & said):
        return True
    meant = {"norm"} if (OF_ADVANTAGES | REWARDS) & said else set[str]()
    if {"reward", "clip"} <= said or {"entropy", "coef"} <= said:
        meant |= {"max", "min"}
    if (PASSED - meant) & said:
        return False
    section = key.rpartition(".")[0].rpartition(".")[2]
    if (words[0], words[-1]) == ("use", "loss") or _changes_rewards([section, *words]):
        return True
    return bool((WORDS | OF_ADVANTAGES) & said) or any(pair in PAIRS for pair in pairwise(words))
