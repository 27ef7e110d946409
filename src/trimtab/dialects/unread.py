"""Keys that by their names concern a correction, a ratio, a clip or a KL and are read by no rule here."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from trimtab.dialects.dialect import Given
from trimtab.dialects.reading import Finding

WORDS = {
    "kl", "ratio", "clip", "cliprange", "tis", "mis", "icepop", "kpop", "opsm", "importance", "correction", "correct",
    "rejection", "veto", "behav", "behave", "decoupled", "proximal", "off", "offpolicy", "truncated", "distill", "distillation",
    "gold", "opd", "mopd", "opsd", "cispo", "gspo", "sapo", "dppo", "cppo", "gmpo", "fipo", "vespo", "topr",
}  # fmt: skip
"""Words of a key that are worth a word."""
PAIRS = {
    ("is", "weight"),
    ("is", "level"),
    ("is", "mode"),
    ("is", "threshold"),
    ("rollout", "is"),
    ("rollout", "rs"),
    ("vllm", "is"),
    ("score", "centering"),
    ("entropy", "loss"),
    ("entropy", "coef"),
    ("entropy", "coeff"),
    ("sampling", "mask"),
}
PASSED = {
    "grad", "gradient", "norm", "warmup", "gpu", "memory", "mem", "eval", "val", "value", "sampling_ratio", "decay", "lr",
    "offload", "critic", "image", "video", "split", "mix", "min", "dropout", "train", "cutoff", "steps", "max", "filter",
    "trim", "prefill", "cache", "router", "expert", "capacity", "lambda", "lora", "quant", "qk", "activation", "logits",
    "file", "path", "dir", "name", "optimizer", "adam", "embedding", "wandb", "data", "log", "metrics",
}  # fmt: skip
"""Words beside which those mean something else: `max_grad_norm`, `warmup_ratio`, `gpu_memory_ratio`."""
MOST_NAMED = 12


def unread_findings(asked: Given) -> Iterator[Finding]:
    """One note with every such key that says something."""
    named = [key for key in asked.unread_keys if _concerns(key) and asked.value_written(key) not in (None, {}, [])]
    if named:
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        yield Finding(
            ", ".join(named[:MOST_NAMED]) + more,
            "note",
            "By the name this concerns a correction, a ratio, a clip, a KL, a loss or a teacher; it is not read here, so what it does is "
            "not in this reading.",
        )


def _concerns(key: str) -> bool:
    words = key.rpartition(".")[2].lower().replace("-", "_").split("_")
    if PASSED & set(words):
        return False
    return bool(WORDS & set(words)) or any(pair in PAIRS for pair in pairwise(words))
