"""Where a sampler or a trainer computes in few bits, from keys of no rule here: the same token then has two log-probs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from trimtab.dialects.files.unknown import Unknown
from trimtab.dialects.framework import Given
from trimtab.dialects.reading import Finding
from trimtab.dialects.sampled import OTHERS, is_of_others, is_switched_off, words_of

FEW = re.compile(
    r"(?:nv|mx)?(?:fp|int)[468]\w*|nf4|[48]bit|w\d+a\d+|e4m3\w*|e5m2\w*|(?:fp8|int8)_\w+|qat|qlora|quantization|quantized"
)
"""Words of a name, or values, that speak of fewer than 16 bits or of weights made so."""
PRECISIONS = {"dtype", "precision", "quantization", "quant", "type"}
"""And names whose values may."""
SENT = {"serialized_weight_sync_mode"}
"""Names that send weights to the sampler in the form of another precision."""
METHODS = {"bnb", "bitsandbytes", "gptq", "awq", "hqq", "eetq", "quanto"}
"""Values of `quant_method` that are no precision but come to one."""
OUTPUTS = {"dir", "directory", "folder", "output", "outputs", "save", "log", "logs", "results"}
"""Names of what a run writes: what it is called says nothing of how it computes."""
MODELS = {"checkpoint", "model", "pretrain"}
"""And names whose values are models, which may be called for their precision."""
CALLED = re.compile(r"(?:nv|mx)?fp[468]|int[48]|awq|gptq|w\d+a\d+")
PASSED = {
    "optimizer", "optim", "adam", "moment", "moments", "grad", "grads", "lora", "peft", "save", "checkpoint", "ckpt", "router", "mtp",
    "reduce", "allreduce", "comm", "log", "draft", "dispatch",
}  # fmt: skip
"""Words beside which it is not the forward pass that is meant."""
PLAIN = ("", "none", "null", "auto", "false", "0", "bf16", "bfloat16", "fp16", "float16", "half", "fp32", "float32")


def speaks_of_bits(key: str, value: Any) -> bool:
    """Whether a key, by its name or its value, has something computed in few bits."""
    said = (value.written or value.name if isinstance(value, Unknown) else str(value)).lower()
    if value in (None, False, 0, {}, []) or said in PLAIN:
        return False
    words = set(words_of(key))
    if OUTPUTS & words:
        return False
    if _names_model(key):
        return _is_called_so(said)
    if words >= {"quant", "bits"}:
        return said in ("1", "2", "3", "4", "5", "6", "8")
    if words >= {"quant", "method"}:
        return said in METHODS or FEW.fullmatch(said) is not None
    if PASSED & set(re.split(r"[._]", key.lower())):
        return False
    named = any(FEW.fullmatch(word) for word in words) or key.rpartition(".")[2] in SENT
    return named or bool(words & PRECISIONS and FEW.fullmatch(said))


def _names_model(key: str) -> bool:
    """Whether a key holds a model of the run itself, by its name or by that of its section."""
    section, _, name = key.lower().rpartition(".")
    words = set(words_of(section if name in ("path", "name") else key))
    return bool(MODELS & words) and not OTHERS & words


def _is_called_so(value: str) -> bool:
    return any(CALLED.fullmatch(word) for word in re.split(r"[^a-z0-9]+", value))


def bits_findings(asked: Given) -> Iterator[Finding]:
    """One note with the keys that have something computed in few bits."""
    named = [
        key
        for key in asked.unread_keys
        if speaks_of_bits(key, asked.value_written(key)) and not is_of_others(key) and not is_switched_off(asked, key)
    ]
    if any("bnb" not in words_of(key) for key in named):  # bnb_4bit_* says how, and another key whether
        yield Finding(
            ", ".join(named),
            "note",
            "By the name this has weights, caches or products in few bits, in the sampler or in the trainer. Two precisions give the "
            "same token two log-probs, so that ratios leave 1 without any age; how far is not in this reading.",
        )
