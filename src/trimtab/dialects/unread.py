"""Keys that concern a correction, a loss or an advantage and change nothing that is shown.

No rule reads them, and their names say that they matter; or they are written for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Set
from typing import Any, cast, get_args

from trimtab.dialects.given import Given, parents
from trimtab.dialects.reading import Finding, PartName, Reading
from trimtab.dialects.sources.unknown import Unknown
from trimtab.dialects.topics import (
    SAMPLING,
    has_pair,
    has_topic,
    is_switched_off,
    one_note,
    pairs_in,
    words_in,
    words_of,
)

MOST_NAMED = 12
CONCERNS = words_in(
    "kl ratio clip cliprange tis mis icepop kpop opsm importance correction correct rejection veto behav behave decoupled proximal off "
    "offpolicy truncated distill distillation gold overlong mask masks masking baseline discount adv advantage advantages"
)
"""Words of a key that are worth a word."""
ALGORITHMS = words_in("kd opd mopd opsd cispo gspo sapo dppo cppo gmpo fipo vespo topr gpg tvpo chord rlsd sdar hicra")
"""Names of an algorithm, which are worth it whatever stands beside them."""
ALWAYS = pairs_in(
    "reward post, routing replay, router replay, old logprobs, logprobs mode, adaptive entropy, entropy target, pf ppo, "
    "routed experts, reward manager, repetition reward"
)
"""Pairs that are worth it likewise: a function in place of the framework's, `custom_reward_post_process_path`; experts that the
trainer's log-probs take over from the sampler; which log-probs these are."""
TOGETHER = (
    (
        words_in("function func fn"),
        words_in("rollout generate loss advantage advantages adv tis kl correction mask reducer"),
    ),
    (words_in("ref reference"), words_in("sync update mixup ema")),
)
"""Words of one table beside one of another: what a function of the user's own may compute in the framework's place, whatever its file
is called; a reference that moves, from which the KL is then measured anew."""
PAIRS = pairs_in(
    "is weight, is level, is mode, is threshold, rollout is, rollout rs, vllm is, score centering, loss variant, entropy loss, "
    "entropy coef, entropy coeff, entropy bonus, entropy weight, entropy beta, token loss, loss scale, loss agg, loss aggregation, "
    "loss reduction, loss denominator, masked mean, trust region, divergence threshold, prox logp, sampling mask, vllm logprobs, "
    "rollout logprobs"
)
REWARDS, ADVANTAGES = words_in("reward rewards score scores"), words_in("adv advantage advantages")
"""Beside these `norm` says what is done with them."""
CHANGED = words_in(
    "normalize normalise normalization norm scale scaling shaping bias whiten zero penalty threshold alpha weight weights coef coeff "
    "shift discount decay"
)
"""And these beside rewards, which then reach the advantage as something else."""
PASSED = words_in(
    "grad gradient norm warmup gpu memory mem eval val value sampling_ratio decay lr offload critic image video split mix min dropout "
    "train cutoff steps max filter trim prefill cache router expert capacity lambda lora quant qk activation logits file path dir name "
    "optimizer adam embedding wandb data log metrics cross attention attn causal id fp16 initial"
)
"""Words beside which those mean something else: `max_grad_norm`, `warmup_ratio`, `gpu_memory_ratio`."""
SECTIONS = words_in("loss distill distillation opd mopd opsd icepop tis mis correction overlong")
"""Words of a section every key of which is worth a word, unless it is switched off."""
REWARD_SECTIONS = pairs_in("reward kwargs, reward manager")
"""Pairs of words of a section whose keys say what becomes of a score."""
COMMON = words_in("grpo ppo gae rloo default none token sequence batch group mean custom auto")
"""Names of a loss or an estimator that any key may begin with."""
OF_ONE_REWARD = words_in("format accuracy language tool tools style action actions think thinking invalid")
"""What a single reward looks at: its weight is the reward function's own affair, and nothing the advantage is made of."""
WEIGHED = words_in("penalty reward rewards weight weights coef coeff scale score")


def concerns(key: str) -> bool:
    """Whether a key by its name concerns a correction, a ratio, a clip, a KL or what goes with them."""
    named = words_of(key)
    said = set(named)
    if ALGORITHMS & said or has_pair(named, ALWAYS):
        return True
    if "penalty" in said and not {"eval", "val"} & said and SAMPLING.fullmatch("_".join(named)) is None:
        return True
    if any(one & said and other & said for one, other in TOGETHER):
        return True
    meant = {"norm"} if (ADVANTAGES | REWARDS) & said else set[str]()
    if {"reward", "clip"} <= said or {"entropy", "coef"} <= said:
        meant |= {"max", "min"}
    if (PASSED - meant) & said:
        return False
    section = key.rpartition(".")[0].rpartition(".")[2]
    if (named[0], named[-1]) == ("use", "loss") or _changes_rewards([section, *named]):
        return True
    return bool(CONCERNS & said) or has_pair(named, PAIRS)


def _changes_rewards(named: list[str]) -> bool:
    """Whether a name says that rewards reach the advantage as something else."""
    return bool(REWARDS.intersection(named) and CHANGED.intersection(named))


def unread_findings(given: Given) -> Iterator[Finding]:
    """One note with every such key that says something and has no topic of its own."""
    chosen = tuple(_chosen(given))
    named = [
        key
        for key in given.unread_keys
        if not has_topic(key, given.value_written(key))
        and not _is_of_one_reward(key)
        and _says_something(given, key)
        and (concerns(key) or _inside(given, key) or _is_of(key, chosen))
    ]
    if named:
        text = "Not interpreted: judging by the name, this may change the correction, the loss or the advantages."
        yield Finding(_listed(named), "note", text)


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
    named = words_of(key)
    return bool(OF_ONE_REWARD.intersection(named) and WEIGHED.intersection(named))


def _chosen(given: Given) -> Iterator[str]:
    """The names of the loss and the estimator that the file asks for: `disco_beta` belongs to `disco`."""
    for label, place in given.places.items():
        value = given.value_written(place)
        if given.part_of(label) != "other" and isinstance(value, str) and value.isidentifier() and value not in COMMON:
            yield value.lower()


def _is_of(key: str, chosen: tuple[str, ...]) -> bool:
    """Whether a key begins with one of these names, or stands in a section called so."""
    section, _, name = key.lower().replace("-", "_").rpartition(".")
    return any(name.startswith(f"{each}_") or section.rpartition(".")[2] == each for each in chosen)


def _inside(given: Given, key: str) -> bool:
    """Whether a key stands in a section that by its name concerns us and is not switched off."""
    return any(map(_is_section_of_ours, parents(key))) and not is_switched_off(given, key)


def _is_section_of_ours(section: str) -> bool:
    named = words_of(section)
    return bool(SECTIONS.intersection(named)) or _changes_rewards(named) or has_pair(named, REWARD_SECTIONS)


def _says_something(given: Given, key: str) -> bool:
    """Whether a value says something; `naive` names what does nothing to a reward."""
    value, named = given.value_written(key), words_of(key)
    if value in (None, {}, [], "naive") or ("discount" in named and value == 1):
        return False
    return not ("penalty" in named and value in (0, False))


def environment_findings(variables: Mapping[str, str]) -> Iterator[Finding]:
    """One note with the variables that a command is given and that no word of it uses."""
    named = [name for name, value in variables.items() if value and (concerns(name) or has_topic(name, value))]
    yield from one_note(
        named[:MOST_NAMED],
        "Set in the environment of the command and not interpreted: judging by the name, it may change the correction, the loss, the "
        "advantages, or the age or precision of samples.",
    )


# ── keys of ours that are written for nothing ─────────────────────────────────────────────────────────────────────────

ASKS_NOTHING = (None, False, 0, "", "none", "off", "null")
"""Values that ask for nothing, so that it is no news that they do nothing."""


def unused_findings(given: Given) -> Iterator[Finding]:
    """One note with the keys of ours that act on a loss or an advantage of which the file says nothing."""
    if given.speaks_of("loss") or given.speaks_of("advantage"):
        return
    written = [name for label, name in given.places.items() if given.part_of(label) == "other" and concerns(name)]
    yield from one_note(
        [name for name in written if _says_something(given, name)][:MOST_NAMED],
        "Acts on the loss or the advantage, which this file leaves at defaults that are not shown.",
    )


def idle_findings(given: Given, reading: Reading, acting: Set[str], *, is_command: bool) -> Iterator[Finding]:
    """One note with the numbers that change nothing here. A default is one of them in a command only.

    A number that no rule asks for, and so is not among the `acting`, is not in the formula that is shown. Of a switch that says nothing:
    it chooses the formula, and a rule may take it for granted. Where a framework ignores a switch, a remark of its own says so.
    """
    refused = {each.part for each in reading.refused}
    read = {part for part in get_args(PartName) if given.speaks_of(part)} - refused
    named = [
        name
        for label, name in given.places.items()
        if label not in acting
        and given.part_of(label) in read
        and _is_amount(given.values.get(label))
        and _asks(given, label, is_command)
        and not _is_told(name, reading)
    ]
    yield from one_note(named[:MOST_NAMED], "Set, but has no effect with these settings.")


def gone_findings(given: Given, reading: Reading, acting: Set[str]) -> Iterator[Finding]:
    """For each part that is refused, one note with what of a clip, a ratio or a KL goes with it."""
    for refusal in reading.refused:
        named = [
            name
            for label, name in given.places.items()
            if given.part_of(label) == refusal.part
            and label not in acting
            and _asks(given, label, True)
            and name.rpartition(".")[2] not in refusal.text.replace("-", "_")
        ]
        text = f"Belongs to the {refusal.part}, which could not be read, so it is not shown."
        yield from one_note(named[:MOST_NAMED], text)


def _asks(given: Given, label: str, is_command: bool) -> bool:
    """Whether a key was given a value that asks for a correction, a clip or a KL; a word alone, as low_var_kl, only says how."""
    value = given.values.get(label)
    if isinstance(value, Unknown) or value in ASKS_NOTHING:
        return False
    if given.part_of(label) != "correction" and (isinstance(value, str) or not concerns(given.places[label])):
        return False
    return is_command or value != given.dialect.by_label[label].default


def _is_amount(value: Any) -> bool:
    """Whether a value is a number, numbers, or bounds in one word, as 0.5_2.0."""
    if isinstance(value, list):
        return all(map(_is_amount, cast("list[Any]", value)))
    if isinstance(value, str):
        return re.match(r"[-+.]?\d", value) is not None
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_told(name: str, reading: Reading) -> bool:
    """Whether a finding of the framework's own speaks of the key already."""
    return any(name == each.key or name.rpartition(".")[2] in each.text for each in reading.findings)
