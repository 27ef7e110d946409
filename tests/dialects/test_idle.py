"""Keys that a file writes down and that change nothing, and those that go with a part that is refused: each gets a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trimtab.dialects import read
from trimtab.dialects.recognise import framework_of, recognise
from trimtab.errors import NotSettingsError

IDLE = "has no effect with these settings"
GONE = "Belongs to the"
FILES = Path(__file__).parent / "files"


def told(framework: str, settings: Any, words: str) -> list[str]:
    return [each.key for each in read(framework, settings).findings if words in each.text]


def script(folder: Path, text: str) -> Path:
    path = folder / "run.sh"
    path.write_text(text)
    return path


A = "trainer.algorithm"


@pytest.mark.parametrize(
    ("framework", "settings", "named"),
    [
        ("skyrl", {f"{A}.policy_loss_type": "regular", f"{A}.clip_ratio_c": 10.0}, f"{A}.clip_ratio_c"),
        ("skyrl", {f"{A}.use_kl_loss": False, f"{A}.kl_loss_coef": 0.02}, f"{A}.kl_loss_coef"),
        ("verl", {"algorithm.adv_estimator": "gae", "algorithm.kl_ctrl.kl_coef": 0.002}, "algorithm.kl_ctrl.kl_coef"),
        ("verl", {"rollout_is": None, "rollout_is_threshold": 3.0}, "rollout_is_threshold"),
    ],
)
def test_a_key_that_changes_nothing_is_named(framework: str, settings: dict[str, Any], named: str) -> None:
    assert told(framework, settings, IDLE) == [named]


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("skyrl", {f"{A}.policy_loss_type": "dual_clip", f"{A}.clip_ratio_c": 10.0}),
        ("skyrl", {f"{A}.use_kl_loss": True, f"{A}.kl_loss_coef": 0.02}),
        ("skyrl", {f"{A}.use_kl_loss": False, f"{A}.kl_loss_coef": 0.0}),
        ("verl", {"algorithm.use_kl_in_reward": True, "algorithm.kl_ctrl.kl_coef": 0.002}),
        ("verl", {"rollout_is": "token", "rollout_is_threshold": 3.0}),
        ("verl", {"actor_rollout_ref.actor.use_kl_loss": False, "actor_rollout_ref.actor.kl_loss_type": "mse"}),
    ],
)
def test_a_key_that_acts_or_is_zero_is_not_named(framework: str, settings: dict[str, Any]) -> None:
    assert told(framework, settings, IDLE) == []


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("slime", FILES / "slime" / "recipe_beside.sh"),  # custom_tis_function_path chooses the recipe that is shown
        ("areal", FILES / "areal" / "grpo.yaml"),  # recompute_logprob
        ("tunix", {"degenerate_group_masking": True}),
    ],
)
def test_a_switch_may_be_taken_for_granted_by_a_rule_and_is_not_called_idle(framework: str, settings: Any) -> None:
    assert told(framework, settings, IDLE) == []


def test_a_default_is_named_where_a_command_says_it_and_not_in_a_file_of_every_setting(tmp_path: Path) -> None:
    file = script(
        tmp_path, "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=gae algorithm.kl_ctrl.kl_coef=0.001\n"
    )
    assert told("verl", file, IDLE) == ["algorithm.kl_ctrl.kl_coef"]
    assert told("verl", {"algorithm": {"adv_estimator": "gae", "kl_ctrl": {"kl_coef": 0.001}}}, IDLE) == []


def test_a_kl_that_goes_with_a_refused_part_is_named() -> None:
    settings = {"advantage_estimator": "rloo", "n_samples_per_prompt": 1, "init_kl_coef": 1e-4, "eps_clip": 0.3}
    found = read("openrlhf", settings)
    assert [each.part for each in found.refused] == ["advantage"]
    assert [each.key for each in found.findings if GONE in each.text] == ["init_kl_coef"]
    assert told("openrlhf", {**settings, "n_samples_per_prompt": 2}, GONE) == []
    in_loss = read("openrlhf", {**settings, "use_kl_loss": True})
    assert in_loss.kl is not None
    assert not any(GONE in each.text for each in in_loss.findings)  # the loss, which is read, pays it
    assert (
        told("slime", {"advantage_estimator": "grpo", "use_opd": True, "eps_clip": 0.2}, GONE) == []
    )  # the reason itself


def test_names_of_an_algorithm_are_worth_a_word_whatever_stands_beside_them() -> None:
    by_name = "judging by the name"
    assert told("slime", {"advantage_estimator": "grpo", "fipo_decay_rate": 32.0}, by_name) == ["fipo_decay_rate"]
    assert told("slime", {"advantage_estimator": "grpo", "weight_decay_ratio": 0.1}, by_name) == []
    cross = {
        "actor_rollout_ref.actor.clip_ratio": 0.2,
        "actor_rollout_ref.actor.x.cross_entropy_loss_implementation": "y",
    }
    assert told("verl", cross, by_name) == []


def test_advantages_from_elsewhere_and_losses_by_a_switch_are_named() -> None:
    plain = {"algorithm.adv_estimator": "grpo", "actor_rollout_ref.actor.clip_ratio": 0.2}
    assert told("verl", {**plain, "atropos.use_atropos_advantages": True}, "judging by the name") == [
        "atropos.use_atropos_advantages"
    ]
    assert told("verl", {**plain, "actor_rollout_ref.actor.use_own_loss": True}, "judging by the name") == [
        "actor_rollout_ref.actor.use_own_loss"
    ]
    assert told("verl", {**plain, "logging.log_advantages": True}, "judging by the name") == []


def test_a_loss_by_a_switch_of_old_is_not_read_as_the_default() -> None:
    found = read("verl", {"algorithm.adv_estimator": "gpg", "actor_rollout_ref.actor.use_gpg_loss": True})
    assert found.loss is None
    assert [each.part for each in found.refused] == ["loss"]
    assert read("verl", {"actor_rollout_ref.actor.use_gpg_loss": False}).loss is not None


def test_shaping_by_length_that_is_not_read_is_named_and_not_where_it_is_off() -> None:
    section = "reward_model.overlong_buffer"
    plain = {"algorithm.adv_estimator": "grpo", f"{section}.len": 512}
    assert told("verl", {**plain, f"{section}.enable": True}, "judging by the name") == [
        f"{section}.len, {section}.enable"
    ]
    assert told("verl", {**plain, f"{section}.enable": False}, "judging by the name") == []
    assert (
        told("verl", {"algorithm.adv_estimator": "grpo", "data.filter_overlong_prompts": True}, "judging by the name")
        == []
    )


def test_distillation_without_a_sampler_says_what_it_is(tmp_path: Path) -> None:
    file = script(tmp_path, "torchrun -m openrlhf.cli.train_kd --pretrain m --teacher_model t --kd_coef 0.4\n")
    said = [str(each) for each in read(framework_of(file), file).findings]
    assert any("distils a teacher" in each for each in said)
    assert any("kd_coef" in each and "judging by the name" in each for each in said)


def test_a_word_that_any_command_has_shows_no_framework(tmp_path: Path) -> None:
    file = script(tmp_path, 'CMD=("$CLI" job create --name "job-$(date +%H)" --nodes 3)\n"${CMD[@]}"\n')
    with pytest.raises(NotSettingsError):
        recognise(file)
    named = script(tmp_path, "python run.py --grpo.adv_estimator.name=gdpo\n")
    assert recognise(named).framework == "nemo-rl"


def test_the_section_of_a_critic_alone_is_no_reading_of_the_policy(tmp_path: Path) -> None:
    critic, actor = tmp_path / "critic.yaml", tmp_path / "actor.yaml"
    critic.write_text(
        "_target_: verl.workers.config.FSDPCriticConfig\nloss_agg_mode: seq-mean-token-sum\ncliprange_value: 0.5\n"
    )
    actor.write_text(
        "_target_: verl.workers.config.FSDPActorConfig\nloss_agg_mode: seq-mean-token-sum\nclip_ratio: 0.2\n"
    )
    with pytest.raises(NotSettingsError, match="the section of a FSDPCriticConfig"):
        read("verl", critic)
    assert read("verl", actor).reduction is not None
