"""What a run trains for, where that is neither a policy gradient nor anything beside one: fine-tuning, preferences, serving."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from trimtab.dialects.registry import SIGNATURES

SUPERVISED, PREFERENCES, REWARD = "supervised fine-tuning", "learning from preferences", "a reward model"
DISTILLATION, SERVING = "distillation from a teacher", "serving or evaluation"
EVOLUTION = "evolution strategies"
BY_WORD = {
    **dict.fromkeys(("sft", "finetune", "finetuning", "pretrain", "cpt", "pt"), SUPERVISED),
    **dict.fromkeys(("dpo", "kto", "orpo", "simpo", "cpo", "ipo", "bco", "preferences"), PREFERENCES),
    **dict.fromkeys(("rm", "prm", "rw", "reward"), REWARD),
    "es": EVOLUTION,
    **dict.fromkeys(("gkd", "kd", "opd", "opsd", "distill", "distillation", "gold"), DISTILLATION),
    **dict.fromkeys(
        ("serve", "server", "generation", "generate", "infer", "inference", "eval", "rollout", "deploy"), SERVING
    ),
}
"""A word in the name of a program → what it is for."""
POLICY = {"grpo", "ppo", "rloo", "gspo", "dapo", "rl", "rlvr", "rlhf", "agentic", "reinforce"}
"""Words beside which those mean something else."""
TRAINERS = re.compile(r"trl\.(?:.*\.)?(\w+Trainer|[A-Z]{2,}\w*Config)")
GROUPED = re.compile(r"GRPO|RLOO")
BY_KEY: tuple[tuple[str, Mapping[str, str]], ...] = (
    ("rlhf_type", {**BY_WORD, "ppo": "PPO with a critic, by another trainer"}),
    ("train_dataset.type", BY_WORD),
    ("loss_type", {"sft_loss": SUPERVISED, "sigmoid": PREFERENCES}),
    ("trainer.loss.type", {"sft": SUPERVISED}),
)
"""A key whose value says what a run is for."""
BY_TOP = (
    (SUPERVISED, ("sft",), ()),
    (SUPERVISED, ("sft_train",), ()),
    (SUPERVISED, ("data", "model", "optim"), ("orchestrator", "actor_rollout_ref", "algorithm", "actor", "loss")),
    (PREFERENCES, ("dpo",), ()),
    (PREFERENCES, ("chosen_key", "rejected_key"), ()),
    (REWARD, ("rm",), ()),
    (DISTILLATION, ("distillation", "teacher"), ("actor_rollout_ref",)),
    (DISTILLATION, ("student_train", "teacher"), ()),
    (DISTILLATION, ("student", "teacher"), ()),
    (SERVING, ("eval", "generation"), ()),
    (SERVING, ("gconfig", "rollout"), ("actor", "ppo")),
    (SERVING, ("gpu_memory_utilization", "model"), ("trainer", "orchestrator", "actor")),
    (SERVING, ("vllm_extra", "model"), ("trainer", "orchestrator", "actor")),
    (SUPERVISED, ("asft",), ()),
)
"""What a file is for by names at its top, and the names beside which it is something else."""
SETTINGS_OF_POLICY = {"grpo", "ppo", "rlvr"}
"""Names at the top of files that train a policy, whatever else stands beside them."""


def other_training(programs: Iterable[str], keys: Mapping[str, Any], top: Iterable[str]) -> str | None:
    """What a run is for, where it is no reinforcement learning, with what shows it."""
    named = list(programs)
    return _by_class(named) or _by_module(named) or _by_program(named) or _by_value(keys) or _by_top(set(top))


def purpose_of(program: str) -> str | None:
    """What a program is for by the words of its name; None for one that trains a policy, or says nothing."""
    found = [BY_WORD[word] for word in _words(program) if word in BY_WORD]
    return found[0] if found and not _trains_policy(program) else None


def answers_clients(program: str) -> bool:
    """Whether a program trains as its clients ask, request by request."""
    return any(re.fullmatch(each.servers, program) for each in SIGNATURES.values())


def _words(program: str) -> list[str]:
    """The words of a program's own name, without the folders or modules it lies in."""
    last = re.split(r"[./]", program.removesuffix(".py"))[-1]
    return [word for word in re.split(r"[^a-z]+", last.lower()) if word]


def _trains_policy(program: str) -> bool:
    return bool(POLICY & set(_words(program)))


def _by_class(programs: list[str]) -> str | None:
    """A script that imports trainers of TRL, none of which samples groups."""
    classes = [match[1] for each in programs if (match := TRAINERS.fullmatch(each))]
    if not classes or any(GROUPED.search(each) for each in classes):
        return None
    return f"training with {classes[0]}, neither GRPO nor RLOO"


def _by_module(programs: list[str]) -> str | None:
    """A script that imports the module of another kind of training."""
    for kind, module, beside in (row for each in SIGNATURES.values() for row in each.other_modules):
        shown = next((each for each in programs if re.fullmatch(module, each)), None)
        if shown is not None and not any(re.fullmatch(beside, each) for each in programs):
            return f"{kind} ({shown})"
    return None


def _by_program(programs: list[str]) -> str | None:
    """The command that carries the settings, where none beside it trains a policy."""
    purpose = purpose_of(programs[0]) if programs else None
    if purpose is None or purpose == DISTILLATION or any(map(_trains_policy, programs[1:])):
        return None
    return f"{purpose} ({programs[0]})"


def _by_value(keys: Mapping[str, Any]) -> str | None:
    for key, values in BY_KEY:
        value = str(keys.get(key, "")).lower()
        if value in values:
            return f"{values[value]} ({key} {value})"
    return None


def _by_top(top: set[str]) -> str | None:
    for kind, names, without in BY_TOP:
        if top.issuperset(names) and not top & {*without, *SETTINGS_OF_POLICY}:
            return f"{kind} ({', '.join(names)})"
    return None
