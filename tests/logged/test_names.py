"""The rows that explain logged names: complete, true of what is computed, and found as people type them."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import trimtab
from tests.logged.test_logged import SETTINGS, batch
from trimtab.dialects import read
from trimtab.errors import ConfigError, UnknownNameError
from trimtab.logged import logged
from trimtab.logged.names import ask, framework_logging, logged_names, rows_of

MISLEADING = [
    "slime:tis",
    "slime:ois",
    "slime:tis_clipfrac",
    "miles:tis_clipfrac",
    "verl:rollout_corr/k3_kl",
    "ms-swift:rollout_correction/k3_kl",
    "verl:rollout_corr/chi2_seq",
    "verl:rollout_corr/rollout_is_max",
    "verl:rollout_corr/rollout_is_eff_sample_size",
    "verl:training/rollout_probs_diff_mean",
    "trl:sampling/importance_sampling_ratio/mean",
    "trl-async:kl",
    "nemo-rl:token_mult_prob_error",
    "nemo-rl:gen_kl_error",
    "nemo-rl:policy_kl_error",
    "nemo-rl:sampling_importance_ratio",
    "areal:behave_imp_weight/avg",
    "areal:importance_weight/avg",
    "prime-rl:mismatch_kl",
    "skyrl:is_ratio_min",
    "open-instruct:debug/vllm_local_reverse_kl",
    "miles:ess_ratio",
    "tinker:optim/entropy",
]
MORE: dict[str, list[dict[str, Any]]] = {
    "verl": [{"rollout_is": "sequence"}],
    "skyrl": [
        {"policy_loss_type": "cispo", "off_policy_correction": {"tis_ratio_type": "sequence"}},
        {"policy_loss_type": "regular", "off_policy_correction": {"sequence_mask_metric": "geometric"}},
    ],
    "slime": [{"use_opsm": True}],
    "trl": [{"loss_type": "cispo", "vllm_importance_sampling_mode": "sequence_truncate"}],
}
METRICS = set(re.findall(r"^\| `([^`]+)` \|", Path("docs/metrics.md").read_text(encoding="utf-8"), re.MULTILINE))


def computed(framework: str, settings: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, float]]:
    """Their scalars and our metrics of one batch."""
    given, reading = batch(), read(framework, settings)
    if reading.correction is None:
        return {}, {}
    theirs = logged(reading, trimtab.correct(reading.correction, **given).metrics)
    ours = dict(trimtab.correct(reading.correction, **given).metrics)
    if reading.loss is not None and reading.reduction is not None:
        step = trimtab.policy_loss(reading.loss, correction=reading.correction, reduction=reading.reduction, **given)
        theirs, ours = theirs | logged(reading, step.metrics), ours | dict(step.metrics)
    return {name: float(each) for name, each in theirs.items()}, {name: float(each) for name, each in ours.items()}


SETTINGS_TRIED = [(name, each) for name, first in SETTINGS.items() for each in (first, *MORE.get(name, []))]


@pytest.mark.parametrize(("framework", "settings"), SETTINGS_TRIED)
def test_every_computed_scalar_has_a_row(framework: str, settings: Mapping[str, Any]) -> None:
    missing = [name for name in computed(framework, settings)[0] if not rows_of(name, framework)]
    assert missing == []


@pytest.mark.parametrize(("framework", "settings"), SETTINGS_TRIED)
def test_a_name_that_is_said_to_be_ours_has_our_value(framework: str, settings: Mapping[str, Any]) -> None:
    theirs, ours = computed(framework, settings)
    checked = 0
    for name, value in theirs.items():
        row = rows_of(name, framework)[0]
        parts = row.metric.split(" + ")
        if (
            row.relation == "near"
            or row.mask.startswith("a mean per sequence")
            or not all(part in ours for part in parts)
        ):
            continue
        wanted = sum(ours[part] for part in parts)
        wanted = {"negative": -wanted, "complement": 1 - wanted}.get(row.relation, wanted)
        if row.relation == "bound":
            assert math.log(value) >= wanted - 1e-6, name
        else:
            assert value == pytest.approx(wanted, rel=1e-4, abs=1e-5), (name, row.ours)
        checked += 1
    assert checked or framework in ("prime-rl", "miles") or "use_opsm" in settings  # these take means per answer


def test_every_row_says_what_a_reader_needs() -> None:
    names = [(row.framework, row.name) for row in logged_names()]
    assert len(set(names)) == len(names)
    assert {row.framework for row in logged_names()} == {*SETTINGS, "trl-async"}
    for row in logged_names():
        assert all((row.formula, row.hides, row.pair, row.mask, row.when, row.source)), row.name
        for part in row.metric.removesuffix(" + 1").split(" + ") if row.ours else ():
            known = part in METRICS or part.startswith(("gate/…/", "train/", "rollout/"))
            assert known, (row.name, part)


def test_the_names_that_mislead_say_so() -> None:
    for name in MISLEADING:
        (row,) = [each for each in ask(name) if each.framework == name.partition(":")[0]]
        assert row.trap, name


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("train/ois", ["slime:ois", "miles:ois"]),
        ("ppo_actor/update/importance_weight/avg", ["areal:importance_weight/avg"]),
        ("importance_weight", ["areal:importance_weight/avg"]),
        ("mismatch_kl/all/mean", ["prime-rl:mismatch_kl"]),
        ("k3_kl", ["verl:rollout_corr/k3_kl", "ms-swift:rollout_correction/k3_kl"]),
        ("trl:kl", ["trl:kl", "trl-async:kl"]),
        ("policy/loss_metrics/clip_ratio", ["skyrl:clip_ratio"]),
        ("rollout_corr/rollout_rs_seq_mean_k3_seq_max", ["verl:rollout_corr/rollout_rs_*_seq_*"]),
        ("policy/rollout_train_logprobs_abs_diff_max:max", ["skyrl:policy/rollout_train_logprobs_abs_diff_max"]),
    ],
)
def test_prefixes_and_suffixes_of_loggers_are_passed_over(asked: str, found: list[str]) -> None:
    assert [f"{row.framework}:{row.name}" for row in ask(asked)] == found


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'rollout_corr/kl'"):
        ask("rolout_corr/kl")
    with pytest.raises(UnknownNameError, match=r"of verl that is known, but of slime and miles\."):
        ask("verl:tis")
    with pytest.raises(ConfigError, match=r"needs \[FRAMEWORK:\]NAME"):
        ask(":")


def test_a_log_shows_its_framework_by_its_names() -> None:
    assert framework_logging(["actor/ppo_kl", "actor/entropy"]) == "verl"
    assert framework_logging(["kl", "ratio", "sample/staleness_mean", "reward"]) == "trl-async"
    assert framework_logging(["train/tis"]) is None
    assert framework_logging(["speed"]) is None


def test_explaining_a_name_loads_no_torch() -> None:
    script = "import sys; from trimtab.logged.names import ask; ask('train/ois'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
