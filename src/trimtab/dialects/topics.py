"""Topics of keys that no rule reads: how old samples are, how they are drawn, which groups reach the step, and precision.

A topic is a table of words, and one note with the keys that speak of it. `async_queue_size` speaks of age by the pair "async queue";
`filter_overlong_prompts` does not speak of groups, since "prompt" beside a filter means data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from trimtab.dialects.engines import recording_in, temperature_words
from trimtab.dialects.given import Given, parents
from trimtab.dialects.reading import Finding
from trimtab.dialects.sources.unknown import Unknown


def words_in(text: str) -> frozenset[str]:
    """A table of words."""
    return frozenset(text.split())


def pairs_in(text: str) -> frozenset[tuple[str, str]]:
    """A table of two words that follow each other, separated by commas."""
    return frozenset((first, second) for first, second in (each.split() for each in text.split(",")))


def words_of(key: str) -> list[str]:
    """The words of a key's own name."""
    return key.rpartition(".")[2].lower().replace("-", "_").split("_")


def has_pair(key_words: list[str], table: frozenset[tuple[str, str]]) -> bool:
    """Whether two words that follow each other stand in a table."""
    return not table.isdisjoint(pairwise(key_words))


def is_switched_off(given: Given, key: str) -> bool:
    """Whether a section that a key stands in is switched off, or of a kind that is none."""
    return any(
        given.value_of(f"{section}.enabled", True) is False
        or given.value_of(f"{section}.enable", True) is False
        or given.value_of(f"{section}.type", True) in (None, "no_filter")
        for section in parents(key)
    )


def one_note(keys: list[str], text: str) -> Iterator[Finding]:
    """A note on these keys; none where there are none."""
    if keys:
        yield Finding(", ".join(keys), "note", text)


# ── how old samples are ───────────────────────────────────────────────────────────────────────────────────────────────

AGES = words_in("staleness offpolicyness")
"""Words of a key that bounds how old a sample may be."""
AGE_PAIRS = pairs_in(
    "trajectory age, async steps, async level, async enable, async train, async queue, async generation, async generate, "
    "async training, fully async, queued batches, require batches, inflight updates, weight updates, partial rollout, "
    "parameter sync, lookahead versions"
)
"""Pairs of words that do, or that let weights change while an answer is sampled."""
AGE_AT_THE_END = pairs_in("off policy, weight sync")
"""Pairs that do where the name ends in `steps` or `interval`."""
FUNCTION = re.compile(r"[A-Za-z_]\w*(\.\w+)+")
"""A function by its full name."""


def speaks_of_age(key: str) -> bool:
    """Whether a key by its name bounds how old a sample may be."""
    named = words_of(key)
    if has_pair(named, AGE_AT_THE_END):
        return named[-1] in ("steps", "interval")
    return not AGES.isdisjoint(named) or has_pair(named, AGE_PAIRS)


def trains_on_earlier(program: str) -> bool:
    """Whether a program by its name trains on answers of earlier weights: `train_async.py`, `one_step_off_policy.main_ppo`."""
    named = re.split(r"[^a-z]+", program.lower())
    return "async" in named or ("off", "policy") in pairwise(named)


def _says_age(key: str, value: Any) -> bool:
    """Whether a key speaks of age and says some, or names a function or a program that by its own name does."""
    if FUNCTION.fullmatch(str(value)) and key.endswith(("_path", "_script")):
        return trains_on_earlier(str(value))
    return speaks_of_age(key) and bool(value)


def age_findings(given: Given, program: str = "") -> Iterator[Finding]:
    """One note with the keys that say how old samples may be, and with the program where its name does."""
    named = [program] if trains_on_earlier(program) else []
    named += [
        key for key in given.unread_keys if _says_age(key, given.value_written(key)) and not is_switched_off(given, key)
    ]
    yield from one_note(
        named,
        "Judging by the name, this bounds how old samples may be, or lets weights change while a sample is generated. It decides which "
        "samples reach the step; the formulas shown are the same for every age.",
    )


# ── how answers are sampled ───────────────────────────────────────────────────────────────────────────────────────────

PLAIN_SAMPLING: dict[str, tuple[float, ...]] = {
    "temperature": (1,),
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "repetition_penalty": (1,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
}
"""Names of keys that shape the distribution answers are drawn from → values under which it is the model's own."""
SAMPLING = re.compile(
    rf"(?:(?:rollout|generate|generation|sampling|gen|train|vllm|sglang)_)?({'|'.join(PLAIN_SAMPLING)})"
)
NO_VOCABULARY = 1_000_000
"""No model has so many ids: a top_k from here on keeps them all, as AReaL's default of 1e8 does."""
OTHERS = words_in(
    "eval evaluation evaluator val valid validation test judge reward rewards genrm teacher distill distillation opd data env envs "
    "environment simulator user"
)
"""Words of a section in which other answers are sampled than those trained on."""


def is_of_others(key: str) -> bool:
    """Whether a key stands in a section in which other answers are sampled than those trained on."""
    named = set(re.split(r"[._]", key.rpartition(".")[0].lower()))
    trained = {"env", "envs"} if "train" in named else set[str]()
    return bool((OTHERS - trained) & named)


def sampling_findings(given: Given) -> Iterator[Finding]:
    """One note with what sharpens or cuts off the distribution that answers are drawn from."""
    shaped = {key: given.value_written(key) for key in given.unread_keys if _shapes(key, given.value_written(key))}
    if shaped:
        *front, last = dict.fromkeys(f"{key.rpartition('.')[2]} {value}" for key, value in shaped.items())
        said = temperature_words(recording_in(given))
        cut = " Tokens come from a part of the vocabulary." if truncations(given) else ""
        yield Finding(
            ", ".join(shaped),
            "note",
            f"Answers are sampled with {', '.join(front)}{' and ' if front else ''}{last}.{cut} {said}",
        )


def truncations(given: Given) -> dict[str, Any]:
    """The keys that cut off a part of the vocabulary, with their values."""
    cut = {key: value for key, value in given.all_written.items() if _shapes(key, value)}
    return {key: value for key, value in cut.items() if key.endswith(("top_p", "top_k", "min_p"))}


def _shapes(key: str, value: Any) -> bool:
    """Whether a key makes the distribution another than the model's own."""
    match = SAMPLING.fullmatch(key.rpartition(".")[2])
    if match is None or isinstance(value, bool) or not isinstance(value, int | float):
        return False
    cuts = value not in PLAIN_SAMPLING[match[1]] and not (match[1] == "top_k" and value >= NO_VOCABULARY)
    return cuts and not is_of_others(key)


# ── which groups reach the step ───────────────────────────────────────────────────────────────────────────────────────

FILTERS = words_in("filter filters filtering")
KEPT_BY = words_in(
    "group groups reward rewards score dynamic sampling std zero variance advantage batch difficulty query degenerate pass rollout "
    "sample buffer online"
)
"""And these beside it: what a group is kept by, or where."""
GROUP_PAIRS = pairs_in(
    "dynamic sampling, dynamic sample, active sampling, over sampling, over sample, zero variance, zero std, constant reward, "
    "degenerate group, gen batches, sample batches, max resample, resampling pass, additional prompts, running prompts, "
    "batch multiplier"
)
"""Pairs of words that say so by themselves."""
RESAMPLING = words_in("oversampling resample resampling")
OF_DATA = words_in(
    "data dataset datasets prompt overlong long length log logs eval val validation test image video weights state workers"
)
"""Words beside which a filter is one of data or of masks: `filter_overlong_prompts`."""
ON_BY_DEFAULT = ("zero", "std")
"""What some framework leaves out unless told otherwise, so that saying no says something."""
NO_FILTER = ("", "none", "null", "no_filter", "off")


def speaks_of_groups(key: str) -> bool:
    """Whether a key by its name, or a section it stands in, decides which groups reach the step."""
    return any(_names_a_filter(words_of(part)) for part in key.split("."))


def _names_a_filter(named: list[str]) -> bool:
    both = FILTERS.intersection(named) and KEPT_BY.intersection(named)
    return bool(both or has_pair(named, GROUP_PAIRS) or RESAMPLING.intersection(named)) and OF_DATA.isdisjoint(named)


def group_findings(given: Given) -> Iterator[Finding]:
    """One note with the keys that decide which groups reach the step."""
    keys = [key for key in given.unread_keys if speaks_of_groups(key) and not is_switched_off(given, key)]
    switches = {key: given.value_written(key) for key in keys if isinstance(given.value_written(key), bool)}
    off = {key.rpartition(".")[0] for key in switches} - {key.rpartition(".")[0] for key, on in switches.items() if on}
    named = [key for key in keys if _filters(given, key) and (key.rpartition(".")[0] not in off or key in switches)]
    yield from one_note(
        [key for key in named if not set(parents(key)) & set(named)],
        "Judging by the name, this decides which groups of answers reach the step: groups whose rewards are all equal are dropped or "
        "kept, or more are sampled until enough remain. Baselines, denominators and rejected fractions are those of the groups that "
        "remain; the formulas shown are the same.",
    )


def _filters(given: Given, key: str) -> bool:
    """Whether a value filters, or keeps what is left out by default."""
    value, named = given.value_written(key), words_of(key)
    if value is False:
        return ON_BY_DEFAULT in pairwise(named)
    is_one = value == 1 and "multiplier" in named
    return not (value in (None, 0, {}, []) or is_one or (isinstance(value, str) and value.lower() in NO_FILTER))


# ── precision ─────────────────────────────────────────────────────────────────────────────────────────────────────────

FEW_BITS = re.compile(
    r"(?:nv|mx)?(?:fp|int)[468]\w*|nf4|[48]bit|w\d+a\d+|e4m3\w*|e5m2\w*|(?:fp8|int8)_\w+|qat|qlora|quantization|quantized"
)
"""Words of a name, or values, that speak of fewer than 16 bits or of weights made so."""
PRECISIONS = words_in("dtype precision quantization quant type")
"""And names whose values may."""
SENT = {"serialized_weight_sync_mode"}
"""Names that send weights to the sampler in the form of another precision."""
METHODS = words_in("bnb bitsandbytes gptq awq hqq eetq quanto")
"""Values of `quant_method` that are no precision but come to one."""
OUTPUTS = words_in("dir directory folder output outputs save log logs results")
"""Names of what a run writes: what it is called says nothing of how it computes."""
MODELS = words_in("checkpoint model pretrain")
"""And names whose values are models, which may be called for their precision."""
CALLED = re.compile(r"(?:nv|mx)?fp[468]|int[48]|awq|gptq|w\d+a\d+")
NOT_FORWARD = words_in(
    "optimizer optim adam moment moments grad grads lora peft save checkpoint ckpt router mtp reduce allreduce comm log draft dispatch"
)
"""Words beside which it is not the forward pass that is meant."""
MANY_BITS = (
    "",
    "none",
    "disabled",
    "null",
    "auto",
    "false",
    "0",
    "bf16",
    "bfloat16",
    "fp16",
    "float16",
    "half",
    "fp32",
    "float32",
)


def speaks_of_bits(key: str, value: Any) -> bool:
    """Whether a key, by its name or its value, has something computed in few bits."""
    said = (value.written or value.name if isinstance(value, Unknown) else str(value)).lower()
    if value in (None, False, 0, {}, []) or said in MANY_BITS:
        return False
    named = set(words_of(key))
    if OUTPUTS & named:
        return False
    if _names_model(key):
        return any(CALLED.fullmatch(word) for word in re.split(r"[^a-z0-9]+", said))
    if named >= {"quant", "bits"}:
        return said in ("1", "2", "3", "4", "5", "6", "8")
    if named >= {"quant", "method"}:
        return said in METHODS or FEW_BITS.fullmatch(said) is not None
    if NOT_FORWARD & set(re.split(r"[._]", key.lower())):
        return False
    section = words_of(key.rpartition(".")[0]) if key.endswith(".mode") else []
    by_name = any(FEW_BITS.fullmatch(word) for word in (*named, *section)) or key.rpartition(".")[2] in SENT
    return by_name or bool(named & PRECISIONS and FEW_BITS.fullmatch(said))


def _names_model(key: str) -> bool:
    """Whether a key holds a model of the run itself, by its name or by that of its section."""
    section, _, name = key.lower().rpartition(".")
    named = set(words_of(section if name in ("path", "name") else key))
    return bool(MODELS & named) and not OTHERS & named


def low_precision_keys(given: Given) -> list[str]:
    """The keys that have something computed in few bits."""
    named = [
        key
        for key in given.unread_keys
        if speaks_of_bits(key, given.value_written(key)) and not is_of_others(key) and not is_switched_off(given, key)
    ]
    return named if any("bnb" not in words_of(key) for key in named) else []  # bnb_4bit_* says how, another key whether


def bits_findings(given: Given) -> Iterator[Finding]:
    """One note with the keys that have something computed in few bits."""
    yield from one_note(
        low_precision_keys(given),
        "Judging by the name, this puts weights, caches or matrix products in low precision, in the sampler or in the trainer. Two "
        "precisions give the same token two log-probs, so ratios differ from 1 even for fresh samples; settings do not tell how much.",
    )


def has_topic(key: str, value: Any) -> bool:
    """Whether a key speaks of age, of groups or of few bits."""
    return speaks_of_age(key) or speaks_of_groups(key) or speaks_of_bits(key, value)
