"""TRL: which of its configs a file is for, what each has, and what it is no longer accused of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimtab import Correction, EntropyBonus, Reduction, Rloo, Weight
from trimtab.dialects import Reading, read, write

P = "vllm_importance_sampling"
RLOO_SCRIPT = """\
from trl import ModelConfig, RLOOConfig, RLOOTrainer, TrlParser

parser = TrlParser((RLOOConfig, ModelConfig))
args, model_args = parser.parse_args_and_config()
args.epsilon = 0.2
RLOOTrainer(model="m", args=RLOOConfig(output_dir="o", beta=0.0, use_vllm=True{more})).train()
"""
OFF = Correction(weight=Weight(level="one"))


def _script(tmp_path: Path, more: str = "") -> Reading:
    file = tmp_path / "rloo.py"
    file.write_text(RLOO_SCRIPT.replace("{more}", more))
    return read("trl", file)


def test_a_script_of_rloo_is_read_without_a_correction_and_without_a_word_of_one(tmp_path: Path) -> None:
    found = _script(tmp_path)
    assert found.correction == OFF
    assert not [each for each in found.findings if P in each.key]
    assert isinstance(found.advantage, Rloo)


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (f', {P}_mode="token_truncate"', "correction"),
        (", off_policy_mask_threshold=0.1", "correction"),
        (', loss_type="dapo"', "loss"),
        (", entropy_coef=0.01", "loss"),
        (', scale_rewards="group"', "advantage"),
    ],
)
def test_a_key_that_rloo_does_not_have_is_refused_by_its_part(tmp_path: Path, more: str, part: str) -> None:
    name = more[2:].partition("=")[0]
    refused = {each.part: each.text for each in _script(tmp_path, more).refused}
    assert f"RLOOConfig with {name} is not supported: RLOOConfig has no such key, and TRL stops on it" in refused[part]


def test_asynchronous_grpo_has_neither_a_loss_type_nor_a_weight() -> None:
    config = {"max_staleness": 4, "epsilon": 0.2}
    assert read("trl", config).correction == OFF.but(policies="bypass")
    for key, value, part in ((f"{P}_clip_max", 2.0, "correction"), ("loss_type", "dapo", "loss")):
        refused = {each.part: each.text for each in read("trl", config | {key: value}).refused}
        assert f"AsyncGRPOConfig with {key}" in refused[part]


def test_rloo_is_written_with_keys_that_its_config_has() -> None:
    found = write("trl", OFF, advantage=Rloo(baseline="all"))
    assert set(found.settings) == {"normalize_advantages", "use_vllm"}
    assert not found.omissions


@pytest.mark.parametrize("loss_type", ["grpo", "dapo", "dr_grpo"])
def test_the_entropy_bonus_is_a_token_mean_under_every_loss_type(loss_type: str) -> None:
    found = read("trl", {"loss_type": loss_type, "entropy_coef": 0.01})
    assert found.entropy == EntropyBonus(coefficient=0.01, reduction=Reduction(mode="token-mean"))
    assert read("trl", {"loss_type": loss_type}).entropy is None


def test_an_adaptive_entropy_is_read_where_it_starts_and_named() -> None:
    found = read(
        "trl", {"loss_type": "dapo", "entropy_coef": 0.02, "use_adaptive_entropy": True, "entropy_target": 0.3}
    )
    assert found.entropy is not None
    assert found.entropy.coefficient == 0.02
    said = [each.text for each in found.findings if each.key == "use_adaptive_entropy"]
    assert len(said) == 1
    assert "0.02 is only where the coefficient starts" in said[0]
    assert "at most 0.3" in said[0]
    assert not any("judging by" in each.text for each in found.findings)


@pytest.mark.parametrize(
    ("framework", "settings", "words", "is_accused"),
    [
        (
            "trl",
            {"loss_type": "grpo"},
            "how the batch is split",
            False,
        ),  # a mean over rows: as many in each micro-batch
        ("trl", {"loss_type": "dr_grpo"}, "how the batch is split", False),
        ("trl", {"loss_type": "bnpo"}, "how the batch is split", True),
        ("ms-swift", {"loss_type": "grpo", "beta": 0.0}, "how the batch is split", False),
        ("trl", {"loss_type": "dapo", "delta": 4.0}, "dual clip elsewhere", False),  # is a dual clip
        ("trl", {"loss_type": "dapo", "delta": 1.1}, "dual clip elsewhere", True),
        ("ms-swift", {"loss_type": "dapo", "beta": 0.0, "delta": 4.0}, "dual clip elsewhere", False),
        ("trl", {"use_vllm": True, f"{P}_mode": "token_mask", f"{P}_clip_max": None}, "can overflow", False),
        ("trl", {"use_vllm": True, f"{P}_mode": "sequence_mask", f"{P}_clip_max": None}, "can overflow", True),
        ("ms-swift", {"rollout_importance_sampling_mode": "token_mask", "beta": 0.0}, "KL term too", False),
        ("ms-swift", {"rollout_importance_sampling_mode": "token_mask", "beta": 0.1}, "KL term too", True),
        ("openrlhf", {"policy_loss_type": "gspo", "loss_agg_mode": "seq-mean-token-mean"}, "is ignored", False),
        ("openrlhf", {"policy_loss_type": "gspo", "loss_agg_mode": "token-mean"}, "is ignored", True),
        ("openrlhf", {"policy_loss_type": "gspo", "is_correction_level": "seq"}, "unbounded", False),
        ("openrlhf", {"is_correction_level": "seq"}, "unbounded", True),
        ("open-instruct", {"rho_mask_tv_divergence": True}, "per packed row", False),  # no bound: nothing is masked
        ("open-instruct", {"rho_mask_tv_divergence": True, "rho_mask_upper_bound": 0.1}, "per packed row", True),
    ],
)
def test_an_accusation_is_raised_where_the_framework_does_so(
    framework: str, settings: dict[str, Any], words: str, is_accused: bool
) -> None:
    found = read(framework, settings).findings
    assert any(words in each.text for each in found if each.level != "note") == is_accused
