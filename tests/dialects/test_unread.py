"""Keys of no rule here that by their names concern the subject: each gets a word, with what it does and does not change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.config.advantages import WHITEN, Gae
from trimtab.config.losses import Clip, Gspo
from trimtab.dialects import read
from trimtab.dialects.unread import concerns

BY_NAME, AGE, SAMPLED, GIVEN = (
    "Not interpreted: judging by the name",
    "how old samples may be",
    "Answers are sampled with",
    "environment",
)


def told(framework: str, settings: Any, words: str) -> list[str]:
    return [each.key for each in read(framework, settings).findings if words in each.text]


def text(framework: str, settings: Any, words: str) -> str:
    return next(each.text for each in read(framework, settings).findings if words in each.text)


def script(folder: Path, body: str) -> Path:
    path = folder / "run.sh"
    path.write_text(body)
    return path


# ── how old samples may be ──


@pytest.mark.parametrize(
    ("framework", "settings", "named"),
    [
        ("areal", {"actor.eps_clip": 0.4, "rollout.max_head_offpolicyness": 4}, "rollout.max_head_offpolicyness"),
        ("open-instruct", {"beta": 0.0, "async_steps": 8, "inflight_updates": True}, "async_steps, inflight_updates"),
        ("prime-rl", {"trainer.loss.type": "ipo", "orchestrator.max_off_policy_steps": 32}, "orchestrator.max_off_policy_steps"),
        ("skyrl", {"trainer.algorithm.eps_clip_low": 0.2, "trainer.fully_async.max_staleness_steps": 4},
         "trainer.fully_async.max_staleness_steps"),
        ("roll", {"pg_clip": 0.2, "async_generation_ratio": 1}, "async_generation_ratio"),
        ("slime", {"eps_clip": 0.2, "fully_async_max_queued_batches": 2}, "fully_async_max_queued_batches"),
        ("openrlhf", {"eps_clip": 0.2, "async_train": True}, "async_train"),
        ("ms-swift", {"epsilon": 0.2, "async_generate": True}, "async_generate"),
        ("trl", {"epsilon": 0.2, "weight_sync_steps": 4}, "weight_sync_steps"),
        ("prime-rl", {"trainer.loss.type": "ipo", "max_async_level": 2}, "max_async_level"),
        ("verl", {"actor_rollout_ref.actor.clip_ratio": 0.2, "async_training.trigger_parameter_sync_step": 4},
         "async_training.trigger_parameter_sync_step"),
        ("verl", {"actor_rollout_ref.actor.clip_ratio": 0.2, "async_training.require_batches": 4},
         "async_training.require_batches"),
        ("nemo-rl", {"loss_fn.ratio_clip_min": 0.2, "async_rl.sampler.max_lookahead_versions": 1},
         "async_rl.sampler.max_lookahead_versions"),
        ("nemo-rl", {"loss_fn.ratio_clip_min": 0.2, "grpo.async_grpo.enabled": True,
                     "grpo.async_grpo.max_trajectory_age_steps": 2}, "grpo.async_grpo.max_trajectory_age_steps"),
    ],
)  # fmt: skip
def test_how_old_samples_may_be_is_named(framework: str, settings: dict[str, Any], named: str) -> None:
    assert told(framework, settings, AGE) == [named]
    assert told(framework, settings, BY_NAME) == []


@pytest.mark.parametrize(
    "settings",
    [
        {"grpo.async_grpo.enabled": False, "grpo.async_grpo.max_trajectory_age_steps": 2},
        {"grpo.async_grpo.enabled": True, "grpo.async_grpo.max_trajectory_age_steps": 0},
        {"grpo.val_period": 8},
    ],
)
def test_lockstep_needs_no_word_about_age(settings: dict[str, Any]) -> None:
    assert told("nemo-rl", {"loss_fn.ratio_clip_min": 0.2, **settings}, AGE) == []


# ── from which distribution they come ──


@pytest.mark.parametrize(
    ("framework", "settings", "named", "values"),
    [
        ("ms-swift", {"epsilon": 0.2, "temperature": 0.9, "top_k": 80, "top_p": 1.0}, "temperature, top_k",
         "temperature 0.9 and top_k 80"),
        ("roll", {"pg_clip": 0.2, "actor_infer.generating_args.top_p": 0.99, "validation.generating_args.top_p": 0.6},
         "actor_infer.generating_args.top_p", "top_p 0.99"),
        ("slime", {"eps_clip": 0.2, "rollout_temperature": 0.8, "eval_temperature": 0.6}, "rollout_temperature",
         "rollout_temperature 0.8"),
        ("areal", {"actor.eps_clip": 0.4, "actor.temperature": 0.7, "gconfig.temperature": 0.7},
         "actor.temperature, gconfig.temperature", "temperature 0.7."),
    ],
)  # fmt: skip
def test_a_sampler_that_is_sharpened_or_cut_off_is_named_with_its_values(
    framework: str, settings: dict[str, Any], named: str, values: str
) -> None:
    assert told(framework, settings, SAMPLED) == [named]
    assert values in text(framework, settings, SAMPLED)


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0},
        {"temperature": 1, "top_k": 0},
        {"temperature": 1.0, "top_k": 100_000_000},
        {"temperature": None, "top_k": None},
        {"eval_temperature": 0.6, "llm_judge_temperature": 0.1, "econfig.user_llm_args.temperature": 0.0},
    ],
)
def test_plain_sampling_and_that_of_evaluations_need_no_word(sampling: dict[str, Any]) -> None:
    assert told("ms-swift", {"epsilon": 0.2, **sampling}, SAMPLED) == []


def test_sampling_that_a_framework_has_a_rule_for_is_told_by_that_rule_alone() -> None:
    cut = {"trainer.algorithm.eps_clip_low": 0.2, "generator.sampling_params.top_p": 0.9}
    assert told("skyrl", cut, SAMPLED) == []
    assert told("skyrl", cut, "drawn from a part of the vocabulary") != []


# ── masks, rewards, replayed routes ──


@pytest.mark.parametrize(
    "key", ["difficulty_mask", "actor.masking", "normalize_reward", "reward_scale", "use_rollout_routing_replay",
            "trainer.enable_router_replay", "reward_bias", "custom_pg_loss_reducer_function_path", "custom_advantage_fn",
            "group_baseline", "turn_discount", "entropy_bonus", "sync_ref_model", "ref_model_mixup_alpha", "ref_model_sync_steps",
            "ref_update_interval", "ref_policy_update_freq", "use_adaptive_entropy", "entropy_coef_max", "entropy_target",
            "rollout.logprobs_mode", "recompute_old_logprobs_per_minibatch", "reward.normalize_enable", "zero_reward_on_non_stop",
            "non_stop_penalty", "algorithm.use_pf_ppo", "chord_mu_peak", "tvpo_truncation_cap", "calculate_per_token_loss",
            "loss_scale", "masked_mean_axis", "normalize_rubric_scores", "code_pass_rate_reward_threshold",
            "behavior_reward_alpha", "reward_weights", "enable_return_routed_experts", "response_length_penalty_coef",
            "repetition_max_penalty", "format_penalty",
            "own.loss_agg_mode", "trust_region_delta", "tv_divergence_threshold"],
)  # fmt: skip
def test_names_of_masks_of_changed_rewards_and_of_replayed_routes_concern_us(key: str) -> None:
    assert concerns(key)


@pytest.mark.parametrize(
    "key", ["attention_mask", "mask_token_id", "reward_model_path", "log_reward_scale", "reward_funcs", "eval_reward_norm",
            "moe_router_dtype", "replay_buffer_size", "reward_fn", "custom_rm_path", "entropy_checkpointing",
            "fp16.initial_loss_scale", "mtp_loss_scaling_factor", "calculate_entropy", "weight_sync_backend", "ema_beta", "ref_load",
            "logprobs_chunk_size", "optimizer.scale", "repetition_penalty", "rollout.presence_penalty"],
)  # fmt: skip
def test_names_that_only_resemble_them_do_not(key: str) -> None:
    assert not concerns(key)


def test_a_section_of_rewards_is_named_where_it_is_switched_on() -> None:
    section = "grpo.reward_scaling"
    asked = {"grpo.adv_estimator.name": "grpo", f"{section}.enabled": True, f"{section}.target_min": -1.0}
    assert told("nemo-rl", asked, BY_NAME) == [f"{section}.enabled, {section}.target_min"]
    assert told("nemo-rl", {**asked, f"{section}.enabled": False}, BY_NAME) == []


def test_what_becomes_of_a_score_in_a_reward_manager_is_named_unless_it_is_the_plain_one() -> None:
    asked = {
        "algorithm.adv_estimator": "grpo",
        "reward.reward_manager.name": "dapo",
        "reward.reward_kwargs.max_resp_len": 4096,
    }
    assert told("verl", asked, BY_NAME) == ["reward.reward_manager.name, reward.reward_kwargs.max_resp_len"]
    assert told("verl", {"algorithm.adv_estimator": "grpo", "reward_model.reward_manager": "naive"}, BY_NAME) == []
    assert told("verl", {"algorithm.adv_estimator": "grpo", "reward_model.reward_manager": "dapo"}, BY_NAME) == [
        "reward_model.reward_manager"
    ]


# ── the parameters of what a file asks for by name ──


def test_keys_that_begin_with_the_name_of_the_chosen_estimator_or_loss_are_named() -> None:
    asked = {"advantage_estimator": "disco", "disco_tau": 0.1, "discover_port": 1, "eps_clip": 0.2}
    assert told("openrlhf", asked, BY_NAME) == ["disco_tau"]
    chosen = {"advantage_estimator": "disco", "eps_clip": 0.2, "algo.disco.bound": 3, "algo.port": 1}
    assert told("openrlhf", chosen, BY_NAME) == ["algo.disco.bound"]


def test_names_that_any_key_may_begin_with_choose_nothing() -> None:
    asked = {"advantage_estimator": "grpo", "grpo_workers": 4, "eps_clip": 0.2}
    assert told("slime", asked, BY_NAME) == []


# ── settings inside lists ──


def test_settings_of_sections_in_a_list_are_named_by_their_number() -> None:
    env = {"id": "own", "args": {"behavior_reward_alpha": 0.5}, "sampling": {"temperature": 0.7}}
    asked = {"trainer": {"loss": {"type": "ipo"}}, "orchestrator": {"train": {"env": [{"id": "first"}, env]}}}
    assert told("prime-rl", asked, BY_NAME) == ["orchestrator.train.env.1.args.behavior_reward_alpha"]
    assert told("prime-rl", asked, SAMPLED) == ["orchestrator.train.env.1.sampling.temperature"]
    judged = {"trainer": {"loss": {"type": "ipo"}}, "orchestrator": {"eval": {"env": [env]}}}
    assert told("prime-rl", judged, SAMPLED) == []


# ── programs that train on answers of earlier weights ──


@pytest.mark.parametrize(
    ("framework", "command"),
    [
        ("verl", "python3 -m verl.experimental.one_step_off_policy.main_ppo algorithm.adv_estimator=grpo"),
        ("verl", "python3 -m verl.experimental.fully_async_policy.fully_async_main algorithm.adv_estimator=grpo"),
        ("slime", "python3 train_async.py --hf-checkpoint x --eps-clip 0.2 --advantage-estimator grpo"),
    ],
)
def test_a_program_that_is_asynchronous_by_its_name_is_named(tmp_path: Path, framework: str, command: str) -> None:
    program = next(word for word in command.split() if word.startswith(("verl.", "train_")))
    risks = [each.key for each in read(framework, script(tmp_path, command + "\n")).findings if each.level == "risk"]
    assert risks == [program]


def test_one_that_is_not_needs_no_word_nor_a_class_of_which_a_remark_speaks(tmp_path: Path) -> None:
    assert told("verl", script(tmp_path, RUN), AGE) == []
    file = tmp_path / "train.py"
    file.write_text("from trl.experimental.async_grpo import AsyncGRPOConfig\nAsyncGRPOConfig(epsilon=0.2)\n")
    assert told("trl", file, AGE) == []
    assert told("trl", file, "max_staleness") == ["max_staleness"]


LAUNCHER = """import miles.utils.external_utils.command_utils as U
flags = "--hf-checkpoint m --eps-clip 0.2 --use-tis {more}"
U.execute_train(train_args=flags, num_gpus_per_node=8{script})
"""


@pytest.mark.parametrize(
    ("more", "script", "named"),
    [
        ("--fully-async ", "", ["fully_async"]),
        ("", ', train_script="train_async.py"', ["train_script"]),
        ("--fully-async", ', train_script="train_async.py"', ["fully_async, train_script"]),
        ("", ', train_script="train.py"', []),
        ("", "", []),
    ],
)
def test_a_launcher_says_by_a_flag_or_by_its_program_that_it_is_asynchronous(
    tmp_path: Path, more: str, script: str, named: list[str]
) -> None:
    path = tmp_path / "launch.py"
    path.write_text(LAUNCHER.format(more=more, script=script))
    found = told("miles", path, AGE)
    assert [", ".join(sorted(each.split(", "))) for each in found] == named


def test_a_function_for_rollouts_is_named_and_for_its_age_where_its_name_says_so() -> None:
    asked = {"eps_clip": 0.2, "rollout_function_path": "own.fully_async_rollout.generate"}
    assert told("slime", asked, AGE) == ["rollout_function_path"]
    plain = {"eps_clip": 0.2, "custom_generate_function_path": "own.search.generate"}
    assert told("slime", plain, AGE) == []
    assert told("slime", plain, BY_NAME) == ["custom_generate_function_path"]


# ── what a command is given beside its words ──

RUN = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo actor_rollout_ref.actor.clip_ratio=0.2\n"


@pytest.mark.parametrize(
    "body",
    [
        'export OWN_LOSS_VARIANT="clip_only"\n' + RUN,
        "kind=clip_only\nexport OWN_LOSS_VARIANT=${kind}\n" + RUN,
        "OWN_LOSS_VARIANT=clip_only\nexport OWN_LOSS_VARIANT\n" + RUN,
        "OWN_LOSS_VARIANT=clip_only " + RUN,
    ],
)
def test_a_variable_of_the_environment_that_names_a_loss_is_named(tmp_path: Path, body: str) -> None:
    assert told("verl", script(tmp_path, body), GIVEN) == ["OWN_LOSS_VARIANT"]


@pytest.mark.parametrize("glue", ["=", " "])
def test_variables_that_ray_hands_on_are_named_even_where_the_json_is_not_sound(tmp_path: Path, glue: str) -> None:
    json = '{"env_vars": {"NCCL_DEBUG": "WARN" "INT4_FAKE_QAT": "1", "OWN_KL_COEF": "0.1", "OWN_CLIP_RATIO": ""}}'
    body = f"ray job submit --runtime-env-json{glue}'{json}' -- {RUN}"
    assert told("verl", script(tmp_path, body), GIVEN) == ["INT4_FAKE_QAT, OWN_KL_COEF"]


@pytest.mark.parametrize(
    "body",
    [
        "OWN_LOSS_VARIANT=clip_only\n" + RUN,  # the script's own
        "export CLIP_RATIO=0.2\n" + RUN.replace("=0.2", "=$CLIP_RATIO"),
        "export CLIP_RATIO=0.2\n" + RUN.replace("=0.2", "=${CLIP_RATIO:-0.3}"),
        "export NCCL_DEBUG=WARN VLLM_USE_V1=1 HF_HUB_OFFLINE=1\n" + RUN,
        "export KL_COEF=\n" + RUN,
    ],
)
def test_a_variable_that_the_words_use_or_that_says_nothing_needs_no_word(tmp_path: Path, body: str) -> None:
    assert told("verl", script(tmp_path, body), GIVEN) == []


# ── a KL that a file pays without writing it down ──


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("skyrl", {"trainer.algorithm.advantage_estimator": "grpo"}),
        ("open-instruct", {"exp_name": "x", "use_rho_correction": True}),
        ("openrlhf", {"algo.advantage.is_correction_level": "token", "actor.eps_clip": 0.2}),
    ],
)
def test_a_kl_by_default_is_told_though_the_file_says_nothing_of_its_part(
    framework: str, settings: dict[str, Any]
) -> None:
    assert (
        len(
            [
                each
                for each in read(framework, settings).findings
                if each.text.startswith("By default") and "KL" in each.text
            ]
        )
        == 1
    )


def test_no_kl_by_default_is_told_of_a_section_alone() -> None:
    assert told("skyrl", {"tis_ratio_type": "token"}, "By default a KL") == []


def test_a_penalty_of_nothing_needs_no_word() -> None:
    key = "rewards.boxed.response_length_penalty_coef"
    assert told("roll", {"pg_clip": 0.2, key: 0.0}, BY_NAME) == []
    assert told("roll", {"pg_clip": 0.2, key: 0.1}, BY_NAME) == [key]


def test_a_discount_of_one_discounts_nothing() -> None:
    key = "rollout.agent.openai.turn_discount"
    assert told("areal", {"actor.eps_clip": 0.4, key: 1.0}, BY_NAME) == []
    assert told("areal", {"actor.eps_clip": 0.4, key: 0.9}, BY_NAME) == [key]


# ── parts that are left to the defaults ──


@pytest.mark.parametrize(
    ("words", "told_of"),
    [
        ("algorithm.adv_estimator=grpo", "No loss settings in the file"),
        ("actor_rollout_ref.actor.clip_ratio=0.2", "No advantage settings in the file"),
        ("algorithm.rollout_correction.rollout_is=token", "No loss or advantage settings in the file"),
        ("data.train_batch_size=8", "No correction, loss or advantage settings in the file"),
    ],
)
def test_a_file_that_leaves_a_part_to_the_defaults_says_which(tmp_path: Path, words: str, told_of: str) -> None:
    file = script(tmp_path, f"python3 -m verl.trainer.main_ppo {words}\n")
    assert [each.key for each in read("verl", file).findings if told_of in each.text] == ["defaults"]


@pytest.mark.parametrize(
    ("framework", "body", "name", "default"),
    [
        (
            "verl",
            "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo\n",
            "loss",
            Clip(low=0.2, high=0.2, dual=3.0, log_limit=20.0),
        ),
        (
            "verl",
            "python3 -m verl.trainer.main_ppo actor_rollout_ref.actor.clip_ratio_low=0.1\n",
            "advantage",
            Gae(gamma=1.0, lam=1.0, normalise=WHITEN, baseline="all"),
        ),
        (
            "slime",
            "python3 train.py --hf-checkpoint m --use-tis --advantage-estimator gspo\n",
            "loss",
            Gspo(low=0.2, high=0.2, scope="trained"),
        ),
    ],
)
def test_a_whole_file_is_read_with_the_default_of_what_it_leaves_out(
    tmp_path: Path, framework: str, body: str, name: str, default: Any
) -> None:
    reading = read(framework, script(tmp_path, body))
    assert getattr(reading, name) is None
    assert reading.defaults is not None
    assert getattr(reading.defaults, name) == default


@pytest.mark.parametrize(
    "body",
    [
        "python3 -m verl.trainer.main_ppo --config-name mine algorithm.adv_estimator=grpo\n",
        "python3 -m recipe.mine.main_ppo algorithm.adv_estimator=grpo\n",
    ],
)
def test_a_default_that_a_parent_or_a_recipe_may_replace_is_not_shown(tmp_path: Path, body: str) -> None:
    reading = read("verl", script(tmp_path, body))
    assert reading.defaults is None


def test_a_section_alone_has_no_defaults() -> None:
    assert read("verl", {"adv_estimator": "grpo"}).defaults is None


def test_explain_prints_the_default_and_every_bound_of_another_frameworks_loss(tmp_path: Path) -> None:
    def besides(body: str) -> list[str]:
        done = CliRunner().invoke(app, ["explain", "--from", "verl", str(script(tmp_path, body))])
        return [" ".join(line.split()) for line in done.output.partition("Loss and advantage")[2].splitlines()]

    run = "python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo"
    left = besides(f"{run}\n")
    assert "loss kind clip, low 0.2, high 0.2, dual 3.0, log_limit 20.0 (verl's default)" in left
    assert "reduction mode token-mean (verl's default)" in left
    said = besides(f"{run} actor_rollout_ref.actor.clip_ratio_high=0.28\n")
    assert "loss kind clip, low 0.2, high 0.28, dual 3.0, log_limit 20.0" in said


def test_a_file_that_says_both_or_a_section_alone_leaves_nothing_to_tell(tmp_path: Path) -> None:
    assert told("verl", script(tmp_path, RUN), "settings in the file") == []
    assert told("verl", {"rollout_is": "token"}, "settings in the file") == []


def test_names_that_environments_share_are_listed_once_and_the_weight_of_one_reward_is_nobodys_concern() -> None:
    envs = {
        f"custom_envs.env{place}.{name}": 0.5 for place in range(6) for name in ("format_penalty", "overlong_penalty")
    }
    rest = {"rewards.math.format_reward_weight": 0.1, "rewards.math.accuracy_reward_weight": 0.9, "is_pure_opd": True}
    found = [each for each in read("roll", {"pg_clip": 0.2, **envs, **rest}).findings if BY_NAME in each.text]
    assert [each.key for each in found] == ["custom_envs.env0.overlong_penalty and 5 more of this name, is_pure_opd"]
    assert found[0].text == (
        "Not interpreted: judging by the name, this may change the correction, the loss or the advantages."
    )
