"""Keys that by their names concern a correction, a ratio, a clip, a KL or an advantage and are read by no rule here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise

from trimtab.dialects.few_bits import speaks_of_bits
from trimtab.dialects.filtered import speaks_of_groups
from trimtab.dialects.framework import Given, parents
from trimtab.dialects.reading import Finding
from trimtab.dialects.sampled import SAMPLING, is_switched_off, speaks_of_age, words_of

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
    ("pf", "ppo"),
    ("routed", "experts"),
    ("reward", "manager"),
    ("repetition", "reward"),
}
"""Pairs that are worth it likewise: a function in place of the framework's, `custom_reward_post_process_path`; experts that the
trainer's log-probs take over from the sampler; which log-probs these are."""
REFERENCES = {"ref", "reference"}
MOVED = {"sync", "update", "mixup", "ema"}
"""And these beside the reference, from which the KL is then measured anew."""
FUNCTIONS = {"function", "func", "fn"}
COMPUTED = {
    "rollout",
    "generate",
    "loss",
    "advantage",
    "advantages",
    "adv",
    "tis",
    "kl",
    "correction",
    "mask",
    "reducer",
}
"""What a function of the user's own may compute in the framework's place, whatever its file is called."""
REWARDS = {"reward", "rewards", "score", "scores"}
CHANGED = {
    "normalize", "normalise", "normalization", "norm", "scale", "scaling", "shaping", "bias", "whiten", "zero", "penalty",
    "threshold", "alpha", "weight", "weights", "coef", "coeff", "shift", "discount", "decay",
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
REWARD_SECTIONS = {("reward", "kwargs"), ("reward", "manager")}
"""Pairs of words of a section whose keys say what becomes of a score."""
PLAIN_NAMES = ("naive",)
"""Names of what does nothing to a reward."""
COMMON = {
    "grpo",
    "ppo",
    "gae",
    "rloo",
    "default",
    "none",
    "token",
    "sequence",
    "batch",
    "group",
    "mean",
    "custom",
    "auto",
}
"""Names of a loss or an estimator that any key may begin with."""
SECTIONS = {"loss", "distill", "distillation", "opd", "mopd", "opsd", "icepop", "tis", "mis", "correction", "overlong"}
"""Words of a section every key of which is worth a word, unless it is switched off."""
MOST_NAMED = 12
OF_ONE_REWARD = {
    "format",
    "accuracy",
    "language",
    "tool",
    "tools",
    "style",
    "action",
    "actions",
    "think",
    "thinking",
    "invalid",
}
"""What a single reward looks at: its weight is the reward function's own affair, and nothing the advantage is made of."""
WEIGHED = {"penalty", "reward", "rewards", "weight", "weights", "coef", "coeff", "scale", "score"}


def unread_findings(asked: Given) -> Iterator[Finding]:
    """One note with every such key that says something."""
    chosen = tuple(_chosen(asked))
    named = [
        key
        for key in asked.unread_keys
        if not _is_told_apart(asked, key)
        and not _is_of_one_reward(key)
        and _says_something(asked, key)
        and (concerns(key) or _inside(asked, key) or _is_of(key, chosen))
    ]
    if named:
        yield Finding(_listed(named), "note", UNREAD)


UNREAD = "Not interpreted: judging by the name, this may change the correction, the loss or the advantages."


def _listed(keys: list[str]) -> str:
    """The keys, each name once: the environments of one file share theirs."""
    named: dict[str, list[str]] = {}
    for key in keys:
        named.setdefault(key.rpartition(".")[2], []).append(key)
    once = [
        same[0] if len(same) == 1 else f"{same[0]} and {len(same) - 1} more of this name" for same in named.values()
    ]
    more = f" and {len(once) - MOST_NAMED} more" if len(once) > MOST_NAMED else ""
    return ", ".join(once[:MOST_NAMED]) + more


def _is_of_one_reward(key: str) -> bool:
    """Whether a key weighs one reward among others, as `format_penalty` does."""
    words = set(words_of(key))
    return bool(OF_ONE_REWARD & words and WEIGHED & words)


def _is_told_apart(asked: Given, key: str) -> bool:
    """Whether a key has a note of its own: of age, of groups, of few bits."""
    return speaks_of_age(key) or speaks_of_groups(key) or speaks_of_bits(key, asked.value_written(key))


def _chosen(asked: Given) -> Iterator[str]:
    """The names of the loss and the estimator that the file asks for: `disco_beta` belongs to `disco`."""
    for label, place in asked.places.items():
        value = asked.value_written(place)
        if asked.part_of(label) != "other" and isinstance(value, str) and value.isidentifier() and value not in COMMON:
            yield value.lower()


def _is_of(key: str, chosen: tuple[str, ...]) -> bool:
    """Whether a key begins with one of these names, or stands in a section called so."""
    section, _, name = key.lower().replace("-", "_").rpartition(".")
    return any(name.startswith(f"{each}_") or section.rpartition(".")[2] == each for each in chosen)


def environment_findings(variables: Mapping[str, str]) -> Iterator[Finding]:
    """One note with the variables that a command is given and that no word of it uses."""
    named = [name for name, value in variables.items() if value and _speaks(name, value)]
    if named:
        yield Finding(
            ", ".join(named[:MOST_NAMED]),
            "note",
            "The command is given this in its environment; by the name it concerns a correction, a ratio, a clip, a KL, a loss, or the age "
            "or the precision of answers, and what it does is not in this reading.",
        )


def _speaks(name: str, value: str) -> bool:
    """Whether a variable by its name concerns us."""
    return concerns(name) or speaks_of_age(name) or speaks_of_groups(name) or speaks_of_bits(name, value)


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
    value, words = asked.value_written(key), words_of(key)
    if value in (None, {}, [], *PLAIN_NAMES) or ("discount" in words and value == 1):
        return False
    return not ("penalty" in words and value in (0, False))


def _inside(asked: Given, key: str) -> bool:
    """Whether a key stands in a section that by its name concerns us and is not switched off."""
    return any(map(_is_section_of_ours, parents(key))) and not is_switched_off(asked, key)


def _is_section_of_ours(section: str) -> bool:
    words = words_of(section)
    return (
        bool(SECTIONS & set(words))
        or _changes_rewards(words)
        or any(pair in REWARD_SECTIONS for pair in pairwise(words))
    )


def _changes_rewards(words: list[str]) -> bool:
    """Whether a name says that rewards reach the advantage as something else."""
    return bool(REWARDS & set(words) and CHANGED & set(words))


def concerns(key: str) -> bool:
    """Whether a key by its name concerns a correction, a ratio, a clip, a KL or what goes with them."""
    words = words_of(key)
    said = set(words)
    if ALGORITHMS & said or any(pair in ALWAYS for pair in pairwise(words)):
        return True
    if "penalty" in said and not {"eval", "val"} & said and SAMPLING.fullmatch("_".join(words)) is None:
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
