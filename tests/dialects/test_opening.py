"""What a file leaves open, what is said on top of it, whose it is, and what it may not do."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.dialects import read
from trimtab.dialects.recognise import framework_of, recognise
from trimtab.errors import ConfigError, ConfigFileError, NotSettingsError

SCRIPT = """\
CAP=$1
python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo \\
  algorithm.rollout_correction.rollout_is=token algorithm.rollout_correction.rollout_is_threshold=$CAP \\
  trainer.experiment_name=$NAME
"""
KEY = "algorithm.rollout_correction.rollout_is_threshold"


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_key_that_is_needed_and_not_known_is_one_line_with_its_remedy(tmp_path: Path) -> None:
    refused = read("verl", written(tmp_path, "run.sh", SCRIPT)).refused
    assert [each.text for each in refused] == [
        f"verl: {KEY} depends on $1 (line 1), which the file does not set. Pass --set {KEY}=VALUE."
    ]


def test_a_key_that_is_not_needed_stops_nothing(tmp_path: Path) -> None:
    file = written(tmp_path, "run.sh", SCRIPT.replace("rollout_is=token", "rollout_is=null"))
    assert read("verl", file).refused == ()


@pytest.mark.parametrize(
    "overrides",
    [[f"{KEY}=3.0"], ["rollout_is_threshold=3.0"], {KEY: 3.0}, {"rollout_correction": {"rollout_is_threshold": 3.0}}],
)
def test_what_is_set_on_top_of_a_file_takes_the_place_of_its_key(tmp_path: Path, overrides: list[str]) -> None:
    found = read("verl", written(tmp_path, "run.sh", SCRIPT), overrides=overrides)
    assert found.refused == ()
    assert found.correction == read("verl", {"rollout_is": "token", "rollout_is_threshold": 3.0}).correction


def test_a_word_that_is_no_key_and_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--set needs KEY=VALUE, got 'three'"):
        read("verl", written(tmp_path, "run.sh", SCRIPT), overrides=["three"])


def test_a_file_of_which_nothing_is_left_is_an_error(tmp_path: Path) -> None:
    file = written(tmp_path, "run.sh", "python3 -m verl.trainer.main_ppo algorithm.rollout_correction.rollout_is=$1\n")
    with pytest.raises(ConfigError, match=r"depends on \$1 \(line 1\)"):
        read("verl", file)


def test_a_script_that_only_starts_another_sends_there(tmp_path: Path) -> None:
    text = "set -e\nuv run examples/gsm8k_dataset.py --output_dir $HOME/data\nbash tests/gsm8k_async.sh\n"
    with pytest.raises(ConfigError, match=r"with the settings of tests/gsm8k_async\.sh\. Pass that file"):
        read("skyrl", written(tmp_path, "ci.sh", text))


def test_a_command_that_only_names_a_file_of_settings_sends_there(tmp_path: Path) -> None:
    text = "python examples/start_rlvr_pipeline.py --config_path conf --config_name rlvr_config\n"
    with pytest.raises(ConfigError, match=r"with the settings of rlvr_config\. Pass that file"):
        read("roll", written(tmp_path, "run.sh", text))


def test_a_job_that_only_runs_another_script_sends_there(tmp_path: Path) -> None:
    file = written(tmp_path, "job.sh", 'srun --container-image=a.img bash -c "\ncd /x\nbash examples/run_it.sh\n"\n')
    with pytest.raises(NotSettingsError, match=r"It runs with examples/run_it\.sh: pass that file"):
        framework_of(file)


def test_a_whole_file_of_which_every_part_is_refused_is_read_in_part(tmp_path: Path) -> None:
    file = written(tmp_path, "rl.toml", '[trainer.loss]\ntype = "mine"\n[orchestrator]\nbatch_size = 8\n')
    assert {"correction", "loss"} <= {each.part for each in read("prime-rl", file).refused}


def test_a_name_beside_the_sections_of_a_file_is_no_key_inside_one(tmp_path: Path) -> None:
    text = "experiment_name: x\ngroup_size: 8\nactor: {path: m, eps_clip: 0.3}\nref: {path: m}\n"
    found = read("areal", written(tmp_path, "a.yaml", text))
    assert (found.advantage, found.refused) == (None, ())
    inside = read("areal", written(tmp_path, "b.yaml", text.replace("eps_clip: 0.3", "reward_norm: {group_size: 8}")))
    assert inside.advantage is not None or inside.refused != ()


def test_what_is_set_on_top_of_a_file_with_sections_may_be_a_name_alone(tmp_path: Path) -> None:
    file = written(
        tmp_path, "a.yaml", "algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {actor: {clip_ratio: 0.2}}\n"
    )
    found = read("verl", file, overrides=["rollout_is=token", "rollout_is_threshold=3.0"])
    assert found.correction == read("verl", {"rollout_is": "token", "rollout_is_threshold": 3.0}).correction


def test_a_whole_file_whose_advantage_alone_is_said_and_refused_is_read_in_part(tmp_path: Path) -> None:
    file = written(tmp_path, "a.yaml", "exp_name: x\nactor_train: {model_args: {dtype: bf16}}\nadv_estimator: gigpo\n")
    assert [each.part for each in read("roll", file).refused] == ["advantage"]


# ── whose a file is ──


def test_a_file_of_another_framework_is_recognised(tmp_path: Path) -> None:
    file = written(tmp_path, "run.sh", SCRIPT)
    with pytest.raises(
        ConfigError, match=r"looks like verl \(it starts or imports verl.trainer.main_ppo\). Use --from verl"
    ):
        read("skyrl", file)


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("ci.yml", "on: [push]\njobs: {a: {steps: []}}\n", "a GitHub workflow"),
        ("compose.yaml", "services: {web: {image: x}}\n", "a Docker Compose file"),
        ("job.yaml", "apiVersion: v1\nkind: Pod\n", "a Kubernetes object"),
        ("sky.yaml", "resources: {accelerators: H100}\nrun: bash train.sh\n", "a SkyPilot task"),
        ("zero3.yaml", "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n", "an accelerate"),
        ("ds.json", '{"zero_optimization": {"stage": 3}}', "a DeepSpeed configuration"),
        ("pyproject.toml", '[project]\nname = "x"\n[build-system]\nrequires = []\n', "a Python project"),
    ],
)
def test_a_file_that_holds_no_settings_is_told_apart(tmp_path: Path, name: str, text: str, kind: str) -> None:
    file = written(tmp_path, name, text)
    for ask in (lambda: read("verl", file), lambda: framework_of(file)):
        with pytest.raises(ConfigFileError, match=f"is {kind} .* holds no training settings") as raised:
            ask()
        assert "\n" not in str(raised.value)


PURPOSES = [
    (
        "dpo.sh",
        "read -r -d '' cmd <<EOF\nopenrlhf.cli.train_dpo \\\n  --beta 0.1\nEOF\ntorchrun -m $cmd\n",
        "preferences",
    ),
    ("sft.sh", "swift sft --model m --train_type lora --learning_rate 1e-4\n", "supervised fine-tuning"),
    (
        "slime.sh",
        "ray job submit -- python3 train.py --loss-type sft_loss --rollout-max-response-len 5\n",
        "supervised",
    ),
    (
        "generate.sh",
        "uv run -m skyrl.train.entrypoints.main_generate generator.inference_engine.backend=vllm\n",
        "serving",
    ),
    ("swift.sh", "swift rlhf --rlhf_type dpo --model m --beta 0.1\n", "preferences"),
    (
        "dpo.py",
        "from trl import DPOConfig, DPOTrainer\nDPOTrainer(args=DPOConfig(beta=0.1))\n",
        "neither GRPO nor RLOO",
    ),
    (
        "sft.yaml",
        "sft: {max_num_epochs: 1}\npolicy: {model_name: m}\ncluster: {num_nodes: 1}\n",
        "supervised fine-tuning",
    ),
    ("dpo.yaml", "dpo: {reference_policy_kl_penalty: 0.05}\npolicy: {model_name: m}\n", "preferences"),
    ("roll.yaml", "exp_name: x\nchosen_key: a\nrejected_key: b\nbeta: 0.1\nactor_train: {}\n", "preferences"),
    ("areal.yaml", "actor: {path: m}\ntrain_dataset: {type: sft}\nexperiment_name: x\n", "supervised fine-tuning"),
    ("prime.toml", '[model]\nname = "m"\n[data]\nbatch_size = 2\n[optim]\nlr = 1e-5\n', "supervised fine-tuning"),
    ("es.sh", "python -m openrlhf.cli.train_es_ray --population_size 8 --es_std 0.001\n", "evolution strategies"),
    ("rollouts.yaml", "gconfig: {n_samples: 4}\nrollout: {queue_size: null}\nexperiment_name: x\n", "serving"),
    ("prime_sft.toml", '[trainer.loss]\ntype = "sft"\n[orchestrator]\nbatch_size = 8\n', "supervised fine-tuning"),
    ("student.yaml", "exp_name: x\nlogits_topk: 4\nstudent: {}\nteacher: {}\n", "distillation"),
    ("teacher.yaml", "distillation: {topk: 4}\nteacher: {}\nloss_fn: {kl_type: mixed}\n", "distillation"),
    (
        "serve.toml",
        'output_dir = "out"\ngpu_memory_utilization = 0.75\n[model]\nname = "m"\n[deployment]\nnum_replicas = 2\n',
        "serving",
    ),
    (
        "sl.py",
        "from tinker_cookbook.supervised import train\ntrain.main(train.Config(learning_rate=1e-4))\n",
        "supervised fine-tuning",
    ),
    (
        "pairs.py",
        "from tinker_cookbook.preference import train_dpo\ntrain_dpo.main(train_dpo.Config(dpo_beta=0.1))\n",
        "preferences",
    ),
    (
        "taught.py",
        "from tinker_cookbook.distillation import taught\nfrom tinker_cookbook.rl import data\ntaught.Config(topk=8)\n",
        "distillation",
    ),
]


@pytest.mark.parametrize(("name", "text", "purpose"), PURPOSES)
def test_a_file_that_trains_otherwise_is_told_apart(tmp_path: Path, name: str, text: str, purpose: str) -> None:
    file = written(tmp_path, name, text)
    samples = purpose in (
        "neither GRPO nor RLOO",
        "distillation",
        "evolution strategies",
    )  # a teacher's student samples too, and so does PPO
    why = "whose gradient is not read here" if samples else "which has no sampler to correct for"
    with pytest.raises(NotSettingsError, match=f"is for .*{purpose}.*, {why}") as raised:
        framework_of(file)
    assert "\n" not in str(raised.value)
    done = CliRunner().invoke(app, ["explain", str(file)])
    assert done.exit_code == 2
    assert why in " ".join(done.output.split())


def test_a_script_that_fine_tunes_first_is_read_for_the_policy(tmp_path: Path) -> None:
    text = "python -m verl.trainer.fsdp_sft_trainer data.x=1 optim.lr=1 model.path=m trainer.y=2\n" + SCRIPT
    found = read("verl", written(tmp_path, "run.sh", text), overrides=[f"{KEY}=2.0"])
    assert found.correction is not None


def test_a_file_without_a_key_of_any_framework_is_told_apart(tmp_path: Path) -> None:
    file = written(tmp_path, "mix.yaml", "sources: [a, b]\nweights: [1, 2]\n")
    with pytest.raises(NotSettingsError, match=r"has no settings of a correction.* It sets sources, weights\."):
        framework_of(file)


def test_a_file_of_ours_with_a_fault_is_still_ours(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["explain", str(written(tmp_path, "rule.yaml", "gates: 3\nwieght: {}\n"))])
    assert done.exit_code == 2
    assert "framework" not in done.output


def test_a_key_misspelt_in_a_file_refuses_its_part_alone(tmp_path: Path) -> None:
    text = "actor_rollout_ref: {actor: {clip_ratio_low: 0.1}}\nalgorithm: {rollout_correction: {rollout_si: token}}\n"
    found = read("verl", written(tmp_path, "a.yaml", text))
    assert [each.part for each in found.refused] == ["correction"]
    assert "has no key 'rollout_si'" in found.refused[0].text
    assert found.loss == read("verl", {"clip_ratio_low": 0.1}).loss


def test_a_key_of_no_rule_that_switches_nothing_on_is_passed_in_a_file(tmp_path: Path) -> None:
    text = "algorithm: {rollout_correction: {rollout_is: token, some_new_test: false}}\nactor_rollout_ref: {}\n"
    assert (
        read("verl", written(tmp_path, "a.yaml", text)).correction == read("verl", {"rollout_is": "token"}).correction
    )


def test_why_a_framework_was_taken_is_said(tmp_path: Path) -> None:
    file = written(tmp_path, "a.yaml", "actor_rollout_ref: {actor: {clip_ratio_low: 0.2}}\n")
    assert recognise(file).why == "it sets actor_rollout_ref.actor.clip_ratio_low"


# ── the command line ──


def test_the_first_names_of_the_estimators_bring_the_defaults_of_their_versions() -> None:
    early, today = ({"exp_name": "x", "beta": 0.1, "kl_estimator": name} for name in ("kl4", 3))
    first, now = read("open-instruct", early), read("open-instruct", today)
    assert first.kl == now.kl
    assert (first.correction, now.correction is None) == (None, False)
    assert read("open-instruct", {**early, "clip_higher": 0.272}).loss == now.loss != first.loss


def test_a_kl_beside_a_loss_that_is_named_as_broken_is_read() -> None:
    asked = {"policy_loss_type": "clip_cov", "use_kl_loss": True, "kl_loss_coef": 0.002}
    found = read("skyrl", {"trainer": {"algorithm": asked}})
    assert (found.loss, found.kl and found.kl.coefficient) == (None, 0.002)


def test_explain_without_from_says_which_framework_it_took_and_why(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["explain", str(written(tmp_path, "run.sh", SCRIPT)), "--set", f"{KEY}=2.0"])
    assert done.exit_code == 0, done.output
    assert "Recognised as verl: it starts or imports verl.trainer.main_ppo" in " ".join(done.stdout.split())


def test_a_part_that_cannot_be_read_leaves_the_rest_and_exit_code_3(tmp_path: Path) -> None:
    file = str(written(tmp_path, "run.sh", SCRIPT))
    for command in (["explain", "--from", "verl", file], ["convert", "--from", "verl", file]):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 3, done.output
        told = " ".join(done.output.split())
        assert "correction:" in told
        assert "$1 (line 1)" in told
        assert "grpo" in told


def test_compare_takes_settings_for_one_side_or_both(tmp_path: Path) -> None:
    file = f"verl:{written(tmp_path, 'run.sh', SCRIPT)}"
    done = CliRunner().invoke(app, ["compare", file, file, "--set", f"A:{KEY}=2.0", "--set", f"B:{KEY}=3.0"])
    assert done.exit_code == 1, done.output
    assert CliRunner().invoke(app, ["compare", file, file, "--set", f"{KEY}=2.0"]).exit_code == 0
    assert CliRunner().invoke(app, ["compare", file, file]).exit_code == 3


# ── parents ──


def test_a_file_among_its_own_parents_is_refused(tmp_path: Path) -> None:
    written(tmp_path, "b.yaml", "defaults: a.yaml\nloss_fn: {ratio_clip_min: 0.2}\n")
    file = written(tmp_path, "a.yaml", "defaults: b.yaml\nloss_fn: {ratio_clip_max: 0.2}\n")
    with pytest.raises(ConfigFileError, match="needs parents that end"):
        read("nemo-rl", file)


def test_generations_without_end_are_refused(tmp_path: Path) -> None:
    for place in range(20):
        written(tmp_path, f"{place}.yaml", f"defaults: {place + 1}.yaml\nloss_fn: {{ratio_clip_min: 0.2}}\n")
    with pytest.raises(ConfigFileError, match="at most 10 generations"):
        read("nemo-rl", tmp_path / "0.yaml")


def test_an_absolute_parent_is_not_followed(tmp_path: Path) -> None:
    secret = written(tmp_path / "other", "secret.yaml", "loss_fn: {ratio_clip_min: 0.9}\n")
    file = written(tmp_path / "mine", "a.yaml", f"defaults: {secret}\nloss_fn: {{ratio_clip_max: 0.2}}\n")
    found = read("nemo-rl", file)
    assert any("is not available" in each.text for each in found.findings)
    assert found.loss == read("nemo-rl", {"loss_fn": {"ratio_clip_max": 0.2}}).loss


def test_a_script_reads_no_other_file(tmp_path: Path) -> None:
    written(tmp_path, "more.sh", "CAP=9\n")
    file = written(tmp_path, "run.sh", f"source {tmp_path}/more.sh\n" + SCRIPT.replace("CAP=$1\n", ""))
    assert "depends on $CAP" in read("verl", file).refused[0].text


# ── nothing that names a correction is dropped without a word ──


@pytest.mark.parametrize(
    ("framework", "settings", "key"),
    [
        ("verl", {"algorithm": {"adv_estimator": "grpo", "my_kl_weight": 0.1}}, "algorithm.my_kl_weight"),
        ("slime", {"eps_clip": 0.2, "icepop_alpha": 0.5}, "icepop_alpha"),
        ("trl", {"beta": 0.1, "importance_ratio_bound": 2.0}, "importance_ratio_bound"),
    ],
)
def test_a_key_that_names_a_correction_and_is_not_read_is_noted(
    framework: str, settings: dict[str, object], key: str
) -> None:
    found = [each for each in read(framework, settings).findings if "judging by the name" in each.text]
    assert [each.key for each in found] == [key]


def test_every_key_of_a_section_named_for_a_teacher_is_noted_unless_it_is_off() -> None:
    section = {"self_distillation": {"update_rate": 0.05, "template": "a"}}
    found = read("areal", {"actor": {"eps_clip": 0.2, **section}}).findings
    assert any("actor.self_distillation.update_rate" in each.key for each in found)
    section["self_distillation"]["enabled"] = False
    assert not any(
        "self_distillation" in each.key for each in read("areal", {"actor": {"eps_clip": 0.2, **section}}).findings
    )


def test_a_key_of_a_penalty_is_named_where_nothing_else_is_said_of_the_loss() -> None:
    found = read("slime", {"kl_loss_type": "k2", "use_tis": True}).findings
    assert [each.key for each in found if "leaves at defaults" in each.text] == ["kl_loss_type"]
    beside = read("slime", {"kl_loss_type": "k2", "use_kl_loss": True, "kl_loss_coef": 0.1}).findings
    assert not any("leaves at defaults" in each.text for each in beside)


def test_keys_of_other_things_are_not_noted() -> None:
    found = read("verl", {"algorithm": {"adv_estimator": "grpo"}, "trainer": {"warmup_ratio": 0.1, "grad_clip": 1.0}})
    assert not [each for each in found.findings if "judging by the name" in each.text]


@pytest.mark.parametrize(
    ("framework", "settings", "keys"),
    [
        ("areal", {"actor": {"eps_clip": 0.2, "adv_scale": 0.5}}, "actor.adv_scale"),
        (
            "areal",
            {"ppo": {"eps_clip": 0.2, "adv_norm": True, "max_reward_clip": 20}},
            "ppo.adv_norm, ppo.max_reward_clip",
        ),
        ("nemo-rl", {"loss_fn": {"ratio_clip_max": 0.2, "shifted": True}}, "loss_fn.shifted"),
    ],
)
def test_a_key_of_an_advantage_and_any_key_of_a_loss_is_noted_too(
    framework: str, settings: dict[str, object], keys: str
) -> None:
    found = [each.key for each in read(framework, settings).findings if "judging by the name" in each.text]
    assert found == [keys]


def test_a_norm_or_a_bound_of_something_else_is_not_noted() -> None:
    found = read("areal", {"actor": {"eps_clip": 0.2, "grad_norm": 1.0, "max_clip_frames": 8, "log_advantages": True}})
    assert not [each for each in found.findings if "judging by the name" in each.text]


# ── what a file that is not there may say ──


def test_a_length_beside_a_file_that_is_not_there_says_nothing_of_the_advantage(tmp_path: Path) -> None:
    file = written(
        tmp_path, "run.sh", "python3 -m areal.launcher.local train.py --config grpo.yaml gconfig.max_new_tokens=64\n"
    )
    found = read("areal", file)
    assert found.advantage is None
    assert found.reward_kl is None
    said = read("areal", written(tmp_path, "said.sh", file.read_text().replace("gconfig", "actor.kl_ctl=0.2 gconfig")))
    assert said.reward_kl is not None


def test_what_may_stand_in_a_file_that_is_not_there_is_no_mistake_of_this_one(tmp_path: Path) -> None:
    text = (
        "grpo: {seed: 1}\nloss_fn: {use_importance_sampling_correction: true, truncated_importance_sampling_ratio: 2}\n"
    )
    alone = read("nemo-rl", written(tmp_path, "alone.yaml", text)).refused[0].text
    beside = read("nemo-rl", written(tmp_path, "child.yaml", f"defaults: base.yaml\n{text}")).refused[0].text
    assert "the first loss call fails" in alone
    assert "may be in the file that this one builds on" in beside
    written(tmp_path, "base.yaml", "loss_fn: {truncated_importance_sampling_type: tis}\n")
    assert not read("nemo-rl", tmp_path / "child.yaml").refused


def test_the_environments_of_roll_are_defaults_of_its_own(tmp_path: Path) -> None:
    text = "defaults:\n  - ../config/envs@_here_\nadv_estimator: grpo\npg_clip: 0.1\nactor_train: {}\n"
    found = read("roll", written(tmp_path, "agentic.yaml", text))
    assert not found.refused
    assert any("../config/envs" in each.text for each in found.findings)


# ── files of one part of a framework ──


def test_the_orchestrators_own_file_sends_to_the_trainers(tmp_path: Path) -> None:
    text = 'max_steps = 9\nrollouts_per_example = 16\nmask_truncated_completions = false\n[model]\nname = "m"\n[sampling]\nn = 1\n'
    file = written(tmp_path, "orch.toml", text)
    assert framework_of(file) == "prime-rl"
    found = read("prime-rl", file)
    assert found.correction is None
    assert all("the loss stands in the trainer's" in each.text for each in found.refused)
    assert not any("today's default holds" in each.text for each in found.findings)
    said = read("prime-rl", file, overrides=["trainer.loss.type=ipo"])
    assert said.correction is not None
    assert not said.refused


@pytest.mark.parametrize(
    "own", ["max_off_policy_steps = 1", "max_inflight_rollouts = 2", '[[train.env]]\nname = "own"']
)
def test_one_of_its_keys_shows_the_orchestrators_file_and_group_size_is_nobodys(tmp_path: Path, own: str) -> None:
    text = f"max_steps = 3\nbatch_size = 2\ngroup_size = 2\nseq_len = 512\n{own}\n"
    file = written(tmp_path, "orchestrator.toml", text)
    assert framework_of(file) == "prime-rl"
    assert all("the loss stands in the trainer's" in each.text for each in read("prime-rl", file).refused)
    bare = written(tmp_path, "bare.toml", text.replace(own, ""))
    with pytest.raises(NotSettingsError, match="has no settings of a correction"):
        framework_of(bare)


def test_rloo_has_no_kl_term_to_multiply(tmp_path: Path) -> None:
    script = "from trl import {0}Config, {0}Trainer\n{0}Trainer(args={0}Config(beta=0.05, use_vllm=True))\n"
    noted = {
        name: any("By default the KL term" in each.text for each in read("trl", file).findings)
        for name in ("RLOO", "GRPO")
        if (file := written(tmp_path, f"{name}.py", script.format(name)))
    }
    assert noted == {"RLOO": False, "GRPO": True}


@pytest.mark.parametrize(("scaled", "noted"), [("group", True), (True, True), ("none", False), (False, False)])
def test_what_is_added_to_a_deviation_is_said_where_one_is_divided_by(scaled: object, noted: bool) -> None:
    found = read("trl", {"scale_rewards": scaled, "beta": 0.0}).findings
    assert any("1e-4 is added" in each.text for each in found) == noted


@pytest.mark.parametrize(
    ("worker", "noted"),
    [
        ("roll.pipeline.rlvr.actor_pg_worker.ActorPGWorker", False),
        ("roll.pipeline.base_worker.ActorWorker", False),
        ("roll.pipeline.mine.workers.MyActor", True),
    ],
)
def test_a_worker_with_a_loss_of_its_own_is_named(worker: str, noted: bool) -> None:
    found = read("roll", {"pg_clip": 0.2, "actor_train": {"worker_cls": worker}}).findings
    assert any(each.key == "actor_train.worker_cls" for each in found) == noted


def test_answers_that_did_not_end_are_said_to_vote() -> None:
    flagged = read("open-instruct", {"beta": 0.1, "mask_truncated_completions": True}).findings
    assert any("still vote in the baseline" in each.text for each in flagged)
    assert not any(
        "mask_truncated" in each.key
        for each in read("open-instruct", {"beta": 0.1, "mask_truncated_completions": False}).findings
    )


def test_a_key_with_a_word_more_is_no_misspelling() -> None:
    assert read("slime", {"n_samples_per_eval_prompt": 16, "eps_clip": 0.2}).loss is not None
    with pytest.raises(ConfigError, match="Did you mean 'n_samples_per_prompt'"):
        read("slime", {"n_samples_per_promt": 16, "eps_clip": 0.2})


def test_a_template_is_told_apart_and_a_broken_file_is_not(tmp_path: Path) -> None:
    template, broken = tmp_path / "template.yaml", tmp_path / "broken.yaml"
    template.write_text("algorithm:\n  adv_estimator: {{ estimator }}\n  gamma: {% if far %}0.9{% endif %}\n")
    broken.write_text("algorithm:\n  adv_estimator: [grpo\n")
    with pytest.raises(NotSettingsError, match="is a template"):
        read("verl", template)
    with pytest.raises(ConfigFileError, match="needs to be YAML"):
        read("verl", broken)


def test_flags_at_the_top_of_a_file_are_no_sections_of_the_same_names(tmp_path: Path) -> None:
    flags = written(tmp_path, "run.yaml", "model: m\noutput_dir: out\nnum_generations: 8\ndataset: d\n")
    assert framework_of(flags) == "ms-swift"
    sections = written(tmp_path, "run.toml", 'output_dir = "out"\n[model]\nname = "m"\n[kv]\ntype = "disk"\n')
    with pytest.raises(NotSettingsError, match="has no settings of a correction"):
        framework_of(sections)


def test_a_script_that_learns_from_rewards_may_import_modules_of_other_training(tmp_path: Path) -> None:
    text = "from tinker_cookbook.preference import env\nfrom tinker_cookbook.rl import train\ntrain.Config(loss_fn='ppo')\n"
    assert framework_of(written(tmp_path, "run.py", text)) == "tinker"
