"""Which groups of answers reach the step, from keys of no rule here: filters by reward, and sampling more until enough are left."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trimtab.dialects.framework import Given, parents
from trimtab.dialects.reading import Finding
from trimtab.dialects.sampled import is_switched_off, words_of

FILTERS = {"filter", "filters", "filtering"}
KEPT_BY = {
    "group", "groups", "reward", "rewards", "score", "dynamic", "sampling", "std", "zero", "variance", "advantage", "batch",
    "difficulty", "query", "degenerate", "pass", "rollout", "sample", "buffer", "online",
}  # fmt: skip
"""And these beside it: what a group is kept by, or where."""
PAIRS = {
    ("dynamic", "sampling"),
    ("dynamic", "sample"),
    ("active", "sampling"),
    ("over", "sampling"),
    ("over", "sample"),
    ("zero", "variance"),
    ("zero", "std"),
    ("constant", "reward"),
    ("degenerate", "group"),
    ("gen", "batches"),
    ("sample", "batches"),
    ("max", "resample"),
    ("resampling", "pass"),
    ("additional", "prompts"),
    ("running", "prompts"),
    ("batch", "multiplier"),
}
"""Pairs of words that say so by themselves."""
ALONE = {"oversampling", "resample", "resampling"}
OTHERS = {
    "data", "dataset", "datasets", "prompt", "overlong", "long", "length", "log", "logs", "eval", "val", "validation", "test",
    "image", "video", "weights", "state", "workers",
}  # fmt: skip
"""Words beside which a filter is one of data or of masks: `filter_overlong_prompts`."""
ON_BY_DEFAULT = ("zero", "std")
"""What some framework leaves out unless told otherwise, so that saying no says something."""
PLAIN = ("", "none", "null", "no_filter", "off")


def speaks_of_groups(key: str) -> bool:
    """Whether a key by its name, or a section it stands in, decides which groups reach the step."""
    return any(_filters(words_of(part)) for part in key.split("."))


def group_findings(asked: Given) -> Iterator[Finding]:
    """One note with the keys that decide which groups reach the step."""
    found = [key for key in asked.unread_keys if speaks_of_groups(key) and not is_switched_off(asked, key)]
    switches = {key: asked.value_written(key) for key in found if isinstance(asked.value_written(key), bool)}
    off = {key.rpartition(".")[0] for key in switches} - {key.rpartition(".")[0] for key, on in switches.items() if on}
    named = [key for key in found if _says_so(asked, key) and (key.rpartition(".")[0] not in off or key in switches)]
    named = [key for key in named if not set(parents(key)) & set(named)]
    if named:
        yield Finding(
            ", ".join(named),
            "note",
            "By the name this decides which groups of answers reach the step: those whose rewards are all alike are left out or kept, "
            "or more are sampled until enough are left. Baselines, denominators and the share of rejected tokens are of what is left; "
            "the formulas here are the same.",
        )


def _says_so(asked: Given, key: str) -> bool:
    """Whether a value filters, or keeps what is left out by default."""
    value = asked.value_written(key)
    if value is False:
        return ON_BY_DEFAULT in pairwise(words_of(key))
    is_one = value == 1 and "multiplier" in words_of(key)
    return not (value in (None, 0, {}, []) or is_one or (isinstance(value, str) and value.lower() in PLAIN))


def _filters(words: list[str]) -> bool:
    said = set(words)
    if any(pair in PAIRS for pair in pairwise(words)) or ALONE & said:
        return not OTHERS & said
    return bool(FILTERS & said and KEPT_BY & said) and not OTHERS & said
