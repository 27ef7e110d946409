"""Filters of groups: in every framework that has one, by the names it is known by there; data and masks are no groups."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab.dialects import read
from trimtab.dialects.topics import speaks_of_groups

GROUPS, BY_NAME = "which groups of answers reach the step", "Not interpreted: judging by the name"


def told(framework: str, settings: dict[str, Any], words: str = GROUPS) -> list[str]:
    return [each.key for each in read(framework, settings).findings if words in each.text]


SAID: dict[str, dict[str, Any]] = {
    "verl": {"actor_rollout_ref.actor.clip_ratio": 0.2},
    "slime": {"eps_clip": 0.2},
    "miles": {"eps_clip": 0.2},
    "skyrl": {"trainer.algorithm.eps_clip_low": 0.2},
    "openrlhf": {"eps_clip": 0.2},
    "open-instruct": {"beta": 0.0},
    "areal": {"actor.eps_clip": 0.4},
    "prime-rl": {"trainer.loss.type": "ipo"},
    "nemo-rl": {"loss_fn.ratio_clip_min": 0.2},
    "roll": {"pg_clip": 0.2},
    "ms-swift": {"epsilon": 0.2},
}


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("verl", {"algorithm.filter_groups.enable": True, "algorithm.filter_groups.metric": "acc",
                  "algorithm.filter_groups.max_num_gen_batches": 10}),
        ("slime", {"over_sampling_batch_size": 256, "dynamic_sampling_filter_path": "own.check_reward_nonzero_std"}),
        ("slime", {"rollout_sample_filter_path": "own.keep_half", "buffer_filter_path": "own.pop_first"}),
        ("miles", {"dynamic_sampling_filter_path": "own.check_reward_nonzero_std"}),
        ("skyrl", {"trainer.algorithm.dynamic_sampling.type": "filter",
                   "trainer.algorithm.dynamic_sampling.max_sample_batches": 30}),
        ("openrlhf", {"dynamic_filtering": True, "dynamic_filtering_reward_range": [0.0, 1.0]}),
        ("open-instruct", {"active_sampling": True, "no_resampling_pass_rate": 0.875}),
        ("open-instruct", {"no_filter_zero_std_samples": True}),
        ("open-instruct", {"filter_zero_std_samples": False}),  # on unless told otherwise
        ("areal", {"actor.dynamic_sampling": True}),
        ("prime-rl", {"orchestrator.buffer.online_difficulty_filtering": True, "orchestrator.oversampling_factor": 2.0}),
        ("prime-rl", {"orchestrator.post_batch_filters": [{"type": "zero_advantage", "enforce": True}]}),
        ("nemo-rl", {"grpo.use_dynamic_sampling": True, "grpo.dynamic_sampling_max_gen_batches": 10, "grpo.batch_multiplier": 2}),
        ("roll", {"use_additional_prompts": True, "max_running_requests": 256, "max_additional_running_prompts": 16}),
        ("roll", {"rewards.math_rule.query_filter_config.type": "mean_filter",
                  "rewards.math_rule.query_filter_config.filter_config.threshold_up": 0.9}),
        ("ms-swift", {"dynamic_sample": True, "max_resample_times": 3}),
        ("slime", {"own_oversampling_ratio": 1.5}),  # a ratio by its last word, and told once all the same
    ],
)  # fmt: skip
def test_a_filter_of_groups_is_named_and_once(framework: str, settings: dict[str, Any]) -> None:
    expected = [key for key in settings if key != "max_running_requests"]
    asked = {**SAID[framework], **settings}
    found = [name for each in told(framework, asked) for name in each.split(", ")]
    assert found == expected
    assert not [name for each in told(framework, asked, BY_NAME) for name in each.split(", ") if name in found]


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("verl", {"algorithm.filter_groups.enable": False, "algorithm.filter_groups.max_num_gen_batches": 10}),
        ("skyrl", {"trainer.algorithm.dynamic_sampling.type": None, "trainer.algorithm.dynamic_sampling.max_sample_batches": 30}),
        ("nemo-rl", {"grpo.use_dynamic_sampling": False, "grpo.dynamic_sampling_max_gen_batches": 10, "grpo.batch_multiplier": 1}),
        ("nemo-rl", {"grpo.batch_multiplier": 1}),
        ("areal", {"actor.dynamic_sampling": False}),
        ("ms-swift", {"dynamic_sample": False, "max_resample_times": 3}),
        ("roll", {"rewards.math_rule.query_filter_config.type": "no_filter",
                  "rewards.math_rule.query_filter_config.filter_config.threshold_up": 0.9}),
        ("slime", {"over_sampling_batch_size": None}),
    ],
)  # fmt: skip
def test_a_filter_that_is_off_needs_no_word(framework: str, settings: dict[str, Any]) -> None:
    assert told(framework, {**SAID[framework], **settings}) == []


@pytest.mark.parametrize(
    "key", ["data.filter_overlong_prompts", "filter_long_samples", "overlong_filter", "generator.apply_overlong_filtering",
            "dataset_filter_path", "sampling_ratio", "use_dynamic_bsz", "dynamic_batching.enabled", "num_sample_batch_size",
            "reward_filter_dataset", "batch_size", "use_dynamic_batch", "eval_dynamic_sampling", "sampling_params.temperature"],
)  # fmt: skip
def test_filters_of_data_and_batches_by_size_are_no_filters_of_groups(key: str) -> None:
    assert not speaks_of_groups(key)
