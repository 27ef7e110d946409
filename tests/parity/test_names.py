"""Every setting of the installed frameworks that by a word of its name may concern the subject is read, named, or listed here."""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from trimtab.dialects import DIALECTS
from trimtab.dialects.topics import SAMPLING, speaks_of_age, speaks_of_bits, speaks_of_groups
from trimtab.dialects.unread import SECTIONS, concerns

WORDS = {
    "kl", "clip", "cliprange", "ratio", "importance", "correction", "mask", "masking", "adv", "advantage", "advantages", "entropy",
    "staleness", "offpolicy", "offpolicyness", "logprob", "logprobs", "teacher", "distill", "distillation", "loss", "baseline",
    "discount", "gamma", "lam", "lambda", "reward", "rewards", "normalize", "normalization", "norm", "ref", "reference", "icepop",
    "tis", "whiten", "async", "filter", "filters", "filtering", "dynamic", "resample", "penalty", "quantization", "fp8", "batches",
}  # fmt: skip
"""A wide net: what it catches and no rule reads or names is looked at one by one."""

ELSEWHERE: dict[str, set[str]] = {
    "the optimiser, the model, its kernels": {
        "clip_grad", "grad_clip", "lr_warmup_steps_ratio", "min_lr_ratio", "router_aux_loss_coef", "aux_loss_coef",
        "entropy_checkpointing", "entropy_from_logits_chunk_size", "entropy_from_logits_with_chunking",
    },
    "how the batch is split": {"use_dynamic_bsz", "log_prob_use_dynamic_bsz", "dynamic_batch_enable"},
    "what is logged": {"calculate_entropy", "log_entropy"},
    "the critic": {"value_clip"},
    "where rewards come from": {"reward_funcs", "reward_model", "reward_model_plugin"},
    "processes and memory": {
        "async_save", "colocate_actor_ref", "colocate_critic_reward", "offload_teacher_model", "vllm_use_async_engine",
        "use_dynamic_resource_scheduling", "dynamic_schedule_policy", "dynamic_schedule_enable_rebalance",
    },
    "which teacher answers, where one is read": {"teacher_tag_key"},
}  # fmt: skip
"""Names that are neither read nor named, by what they are about instead."""


def _folder(package: str) -> Path:
    found = importlib.util.find_spec(package)
    assert found is not None
    assert found.submodule_search_locations
    return Path(next(iter(found.submodule_search_locations)))


def _fields(path: Path, classes: str) -> Iterator[str]:
    """The annotated fields of classes of these names."""
    for each in ast.walk(ast.parse(path.read_text())):
        if isinstance(each, ast.ClassDef) and re.fullmatch(classes, each.name):
            targets = [one.target for one in each.body if isinstance(one, ast.AnnAssign)]
            yield from (one.id for one in targets if isinstance(one, ast.Name))


def _paths(tree: dict[str, Any], above: str = "") -> Iterator[str]:
    for name, value in tree.items():
        yield from _paths(value, f"{above}{name}.") if isinstance(value, dict) and value else (f"{above}{name}",)


def _verl() -> Iterator[str]:
    whole = yaml.safe_load((_folder("verl") / "trainer" / "config" / "_generated_ppo_trainer.yaml").read_text())
    ours = ("actor_rollout_ref.actor.", "actor_rollout_ref.rollout.", "algorithm.")
    yield from (path for path in _paths(whole) if path.startswith(ours))
    apart = _folder("verl") / "experimental" / "fully_async_policy" / "config" / "fully_async_ppo_trainer.yaml"
    yield from _paths({"async_training": yaml.safe_load(apart.read_text())["async_training"]})


def _areal() -> Iterator[str]:
    return _fields(
        _folder("areal") / "api" / "cli_args.py", r"PPOActorConfig|RejectionSampling\w*|NormConfig|GenerationHyper\w*"
    )


def _trl() -> Iterator[str]:
    yield from _fields(_folder("trl") / "trainer" / "grpo_config.py", "GRPOConfig")
    yield from _fields(_folder("trl") / "experimental" / "async_grpo" / "async_grpo_config.py", "AsyncGRPOConfig")


def _skyrl() -> Iterator[str]:
    classes = r"(Algorithm|OffPolicyCorrection|FullyAsync|SamplingParams|Generator|DAPO|Cispo|Sapo|\w*Cov)\w*Config"
    for file in _folder("skyrl").rglob("config.py"):
        yield from _fields(file, classes)


def _openrlhf() -> Iterator[str]:
    text = (_folder("openrlhf") / "cli" / "train_ppo_ray.py").read_text()
    yield from re.findall(r'add_argument\(\s*"--([\w.]+)"', text)


def _swift() -> Iterator[str]:
    for file in _folder("swift").rglob("*.py"):
        if re.search(r"args?|argument|config", file.name):
            yield from _fields(file, r".*(GRPO|Rollout).*(Config|Arguments|Mixin)")


SETTINGS: dict[str, Callable[[], Iterator[str]]] = {
    "verl": _verl,
    "areal": _areal,
    "trl": _trl,
    "skyrl": _skyrl,
    "openrlhf": _openrlhf,
    "ms-swift": _swift,
}
"""Where each keeps the settings of its policy gradient."""


def _is_told(framework: str, path: str) -> bool:
    name = path.rpartition(".")[2]
    known = {each.rpartition(".")[2] for key in DIALECTS[framework].keys for each in key.paths}
    inside = any(SECTIONS & set(section.split("_")) for section in path.split(".")[:-1])
    named = concerns(path) or speaks_of_age(path) or speaks_of_groups(path) or speaks_of_bits(path, "fp8")
    return name in known or inside or named or SAMPLING.fullmatch(name) is not None


@pytest.mark.parametrize("framework", SETTINGS)
def test_no_setting_that_may_concern_the_subject_is_dropped_without_a_word(framework: str) -> None:
    caught = {path for path in SETTINGS[framework]() if WORDS & set(path.rpartition(".")[2].lower().split("_"))}
    assert len(caught) > 15  # of 18 (AReaL) to 39 (verl): a file that has moved must not pass
    silent = {path.rpartition(".")[2] for path in caught if not _is_told(framework, path)}
    assert silent <= set().union(*ELSEWHERE.values())


def test_no_name_is_listed_that_a_rule_reads_or_names() -> None:
    assert [
        each for names in ELSEWHERE.values() for each in sorted(names) if concerns(each) or speaks_of_age(each)
    ] == []
