"""`trimtab convert`, `explain --from` and `compare` on files as their users write them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.config.training import Train
from trimtab.dialects import read
from trimtab.dialects.fields import compared
from trimtab.dialects.registry import dialect_of
from trimtab.dialects.sources.settings import flat_settings

AREAL = """
actor:
  use_decoupled_loss: true
  rejection_sampling:
    level: sequence
    agg: mean
    metric: kl_k2
    upper: 1.0
"""
VERL = """
algorithm:
  rollout_correction:
    rollout_is: token
    rollout_is_threshold: 2.0
    rollout_rs: seq_mean_k1
    rollout_rs_threshold: "0.98_1.05"
"""
SKYRL = """
trainer:
  algorithm:
    off_policy_correction:
      outlier_token_is_threshold_low: 1.0e-4
      outlier_token_is_threshold_high: 100
      sequence_mask_metric: geometric
      tis_ratio_type: token
"""
LEGACY = """# async run
actor:
  lr: 1.0e-6  # warm
  behave_imp_weight_cap: 5.0  # Bound
  behave_imp_weight_mode: sequence_mask

  # clip
  eps_clip: 0.2
"""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, text in {"areal": AREAL, "verl": VERL, "skyrl": SKYRL}.items():
        (tmp_path / f"{name}.yaml").write_text(text)
        found[name] = str(tmp_path / f"{name}.yaml")
    return found


def run(*words: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, list(words))
    return done.exit_code, done.stdout, done.stderr


def test_verl_bounds_turn_over_on_their_way_to_skyrl_and_the_defect_is_said(files: dict[str, str]) -> None:
    code, out, err = run("convert", "--from", "verl", files["verl"], "--to", "skyrl", "--check")
    section = yaml.safe_load(out)["trainer"]["algorithm"]["off_policy_correction"]
    # verl keeps -log r in [log 0.98, log 1.05], so r in [1/1.05, 1/0.98]
    assert section["geo_mask_low"] == pytest.approx(1 / 1.05)
    assert section["geo_mask_high"] == pytest.approx(1 / 0.98)
    assert "inverse ratio" in err
    assert code == 1


def test_areal_to_verl_keeps_the_gate_and_warns_of_unbounded_weights(files: dict[str, str]) -> None:
    code, out, err = run("convert", "--from", "areal", files["areal"], "--to", "verl", "--check")
    assert yaml.safe_load(out)["algorithm"]["rollout_correction"]["rollout_rs"] == "seq_mean_k2"
    assert "unbounded" in err
    assert code == 0


def test_without_a_target_the_settings_are_ours(files: dict[str, str], tmp_path: Path) -> None:
    code, out, _ = run("convert", "--from", "skyrl", files["skyrl"])
    assert code == 0
    own = tmp_path / "own.yaml"
    own.write_text(out)
    assert run("compare", str(own), f"skyrl:{files['skyrl']}")[:2] == (0, "They compute the same thing.\n")


WHOLE = (
    VERL
    + "  adv_estimator: gae\n  lam: 0.95\n  use_kl_in_reward: true\n"
    + "actor_rollout_ref:\n  actor: {clip_ratio_high: 0.28, use_kl_loss: true, entropy_coeff: 0.01}\n"
)


def test_without_a_target_every_part_is_printed_under_the_names_of_a_training_file(tmp_path: Path) -> None:
    file, own = tmp_path / "run.yaml", tmp_path / "own.yaml"
    file.write_text(WHOLE)
    code, out, _ = run("convert", "--from", "verl", str(file))
    assert code == 0
    assert out.startswith("# run.yaml, read as verl 0.9.1: part of a file for `trimtab train`.\n")
    assert "# KL in the reward, which such a file has no name for: {coefficient: 0.001, estimator: k1}\n" in out
    found = yaml.safe_load(out)
    assert list(found) == ["correction", "loss", "reduction", "kl", "entropy_bonus", "advantage"]
    train = Train.from_settings(found)
    reading = read("verl", file)
    assert (train.correction, train.loss, train.kl) == (reading.correction, reading.loss, reading.kl)
    assert (train.entropy_bonus, train.advantage) == (reading.entropy, reading.advantage)
    own.write_text(out)
    code, _, errors = run("train", str(own), "--dry-run")
    assert code == 2
    assert "got gae, which needs a critic's values" in errors  # there is none in a run here
    assert run("explain", str(own))[0] == 0
    code, out, _ = run("compare", str(own), f"verl:{file}")
    assert (code, out) == (1, "The advantage differs: reward_kl none in A, on in B.\n")  # it has no name there


def test_a_comparison_names_the_fields_of_loss_and_advantage_that_differ(tmp_path: Path) -> None:
    one, other, third = (tmp_path / f"{name}.yaml" for name in ("one", "other", "third"))
    one.write_text(WHOLE)
    other.write_text(
        WHOLE.replace("0.28", "0.3").replace("entropy_coeff: 0.01", "entropy_coeff: 0").replace("gae", "grpo")
    )
    code, out, _ = run("compare", f"verl:{one}", f"verl:{other}")
    assert code == 1
    assert set(out.splitlines()) == {
        "The loss differs: loss.high 0.28 in A, 0.3 in B; entropy on in A, none in B.",
        "The advantage differs: advantage gae in A, grpo in B.",
    }
    third.write_text(VERL)
    code, out, err = run("compare", f"verl:{one}", f"verl:{third}")
    assert (code, out) == (3, "What both of them say is the same.\n")
    assert "Only A sets the loss, so it was not compared." in err
    code, out, err = run("compare", f"verl:{third}", f"verl:{one}")
    assert (code, out) == (0, "They compute the same thing.\n")  # all that A says


def test_what_a_target_cannot_say_is_an_error_that_names_it(files: dict[str, str]) -> None:
    code, out, err = run("convert", "--from", "areal", files["areal"], "--to", "skyrl")
    assert (code, out) == (2, "")
    assert "SkyRL does not support a gate on k2" in err


def test_two_files_that_differ_show_a_smallest_batch(files: dict[str, str]) -> None:
    code, out, _ = run("compare", files["verl"], files["skyrl"])
    assert code == 1
    assert "They differ on this batch:" in out
    assert len(out.splitlines()) == 3  # a title, a header and one token


def test_safety_limits_are_a_note_and_no_difference(tmp_path: Path) -> None:
    file = tmp_path / "verl.yaml"
    file.write_text("algorithm:\n  rollout_correction: {rollout_is: token, rollout_is_threshold: 2.0}\n")
    code, out, err = run("compare", "token-tis", f"verl:{file}")
    assert (code, out) == (0, "They compute the same thing.\n")
    assert "note: Their safety limits on log-ratios differ" in err
    code, _, err = run("compare", "token-tis", "token-mis")
    assert code == 1
    assert "safety limits" not in err
    # a limit of 3 is met: e^-3 is 0.05, which is what a token of ratio 0.01 would weigh
    rule = tmp_path / "rule.yaml"
    rule.write_text("weight: {level: token, upper: 2.0, limit: {bound: 3.0}}\n")
    code, out, _ = run("compare", "token-tis", str(rule))
    assert (code, out.startswith("They differ only in their limits on log-ratios")) == (1, True)


def test_a_file_is_told_in_words_with_its_findings_first(files: dict[str, str]) -> None:
    code, out, _ = run("explain", "--from", "skyrl", files["skyrl"])
    assert code == 0
    assert out.index("Findings") < out.index("Gate 1")
    assert "0.99 ≤ e^(mean ℓ) ≤ 1.01" in out


def test_loss_and_advantage_are_carried_across_with_the_correction(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(VERL + "  adv_estimator: grpo\nactor_rollout_ref:\n  actor:\n    clip_ratio_high: 0.28\n")
    code, out, err = run("convert", "--from", "verl", str(file), "--to", "skyrl")
    found = yaml.safe_load(out)["trainer"]["algorithm"]
    assert code == 0
    assert (found["policy_loss_type"], found["eps_clip_high"], found["clip_ratio_c"]) == ("dual_clip", 0.28, 3.0)
    assert (found["advantage_estimator"], found["loss_reduction"]) == ("grpo", "token_mean")
    assert found["use_kl_loss"] is False  # SkyRL's is on unless it is said
    assert "1e+12" not in err  # nothing about our own writing


def test_a_part_that_cannot_be_said_is_left_out_and_listed_with_a_code_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("algorithm: {rollout_correction: {rollout_is: token}, adv_estimator: gpg}\n")
    words = ("convert", "--from", "verl", str(file), "--to", "areal")
    code, out, err = run(*words)
    assert code == 4
    rejection = {"level": "token", "action": "clamp", "upper": 2.0}
    section = {"actor": {"rejection_sampling": rejection, "use_decoupled_loss": True}}
    assert yaml.safe_load(out) == section
    assert err.startswith("left out: advantage: AReaL has no gpg, only reinforce++, grpo, rloo, gae.\n")
    code, out, err = run(*words, "--strict")
    assert (code, out) == (2, "")
    assert "AReaL does not support the advantage: it has no gpg, only" in err
    assert "(--only correction)" in err
    code, out, _ = run(*words, "--only", "correction")
    assert (code, yaml.safe_load(out)) == (0, section)
    code, _, err = run(*words, "--only", "corection")
    assert (code, err.count("\n")) == (2, 1)
    assert "Did you mean 'correction'?" in err


def test_a_detail_that_the_target_lacks_is_changed_and_measured(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("actor_rollout_ref: {actor: {use_kl_loss: true}}\nalgorithm: {adv_estimator: grpo}\n")
    code, out, err = run("convert", str(file), "--to", "open-instruct")
    assert code == 4
    assert yaml.safe_load(out)["advantage_normalization_type"] == "standard"
    lines = err.splitlines()
    assert "changed: loss: open-instruct has no key for the dual clip (3)." in lines
    assert "changed: advantage_normalization_type: the standard deviation becomes over n, was over n − 1." in lines
    # (1, 0, 0, 0): 0.75/0.5 and −0.25/0.5; over n the deviation is √(3/16)
    assert "in numbers: advantage: rewards 1, 0, 0, 0 give advantages 1.5 and −0.5, there 1.73 and −0.577." in lines
    labels = [line.partition(":")[0] for line in lines]
    order = ["left out", "changed", "in numbers", "instead", "defect", "surprise", "note"]
    assert labels == sorted(labels, key=order.index)


def test_a_part_that_was_not_read_outweighs_one_that_was_not_written(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(
        "algorithm: {rollout_correction: {rollout_is: token}, adv_estimator: gae, use_pf_ppo: true}\n"
        "actor_rollout_ref: {actor: {use_kl_loss: true}}\n"
    )
    code, out, err = run("convert", "--from", "verl", str(file), "--to", "areal")
    assert code == 3
    assert yaml.safe_load(out)["actor"]["rejection_sampling"]["upper"] == 2.0
    assert err.startswith("not read: advantage: ")
    assert "changed: loss: AReaL has no key for the KL term" in err


def test_the_nearest_that_is_offered_can_be_taken(files: dict[str, str]) -> None:
    words = ("convert", "--from", "skyrl", files["skyrl"], "--to", "verl")
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert "--nearest writes rollout_is token, rollout_is_threshold 2, rollout_rs seq_max_k2,seq_mean_k1" in err
    code, out, err = run(*words, "--nearest")
    assert code == 4
    found = yaml.safe_load(out)["algorithm"]["rollout_correction"]
    assert found["rollout_rs"] == "seq_max_k2,seq_mean_k1"
    assert err.startswith("changed: correction: verl does not support a gate on ratio (every r) of each sequence")
    assert "written instead: a gate on k2 (max(ℓ²/2)) of each sequence up to 42.4152" in err
    # the veto above 100 is gone: only beyond 1e4 is a row rejected
    assert "in numbers: correction: a token of ratio 200 is rejected, there it weighs 2, the other gates aside." in err


def test_the_framework_of_a_file_is_recognised(files: dict[str, str]) -> None:
    assert run("convert", files["verl"], "--to", "skyrl") == run(
        "convert", "--from", "verl", files["verl"], "--to", "skyrl"
    )


def test_a_veto_is_refused_with_the_nearest_thing_the_target_can_say(files: dict[str, str]) -> None:
    code, _, err = run("convert", "--from", "skyrl", files["skyrl"], "--to", "verl")
    assert code == 2
    # the wider side is 1e-4: log² / 2 = 9.21² / 2 = 42.415
    assert "does not support a gate on ratio (every r) of each sequence" in err
    assert "up to 42.4152 (any r outside [0.0001, 1e+04]) in place of the veto" in err
    assert "one on any r below 0.0001 only" in run("convert", "--from", "skyrl", files["skyrl"], "--to", "slime")[2]


def test_a_defect_of_the_target_is_said_to_be_accounted_for_and_fails_no_check(tmp_path: Path) -> None:
    file = tmp_path / "areal.yaml"
    file.write_text(
        "actor: {use_decoupled_loss: true, rejection_sampling: "
        "{level: sequence, action: mask, metric: ratio, agg: mean, upper: 2.0, token_action: mask}}"
    )
    code, out, err = run("convert", "--from", "areal", str(file), "--to", "verl", "--check")
    assert code == 0
    assert yaml.safe_load(out)["algorithm"]["rollout_correction"]["rollout_rs"] == "seq_mean_k1,token_k1"
    assert "note: algorithm.rollout_correction.rollout_rs_threshold: The values written allow for it already: " in err
    assert "write the reciprocal bounds" not in err
    assert "defect" not in err
    assert "cannot fire" not in err


# ── the rules people run, as users of each framework write them ──

RULES = {
    "GRPO with token TIS": (
        "verl",
        "run.sh",
        """
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=grpo \\
    algorithm.rollout_correction.rollout_is=token \\
    algorithm.rollout_correction.rollout_is_threshold=2.0 \\
    actor_rollout_ref.actor.use_kl_loss=false \\
    actor_rollout_ref.actor.clip_ratio_low=0.2 \\
    actor_rollout_ref.actor.clip_ratio_high=0.2 \\
    actor_rollout_ref.actor.loss_agg_mode=token-mean
""",
    ),
    "GSPO with a sequence mask": (
        "trl",
        "train.py",
        """
from trl import GRPOConfig, GRPOTrainer

args = GRPOConfig(
    output_dir="out", learning_rate=1e-6, num_generations=8, use_vllm=True, vllm_mode="colocate",
    importance_sampling_level="sequence", loss_type="grpo", epsilon=3e-4, epsilon_high=4e-4, beta=0.0,
    vllm_importance_sampling_mode="sequence_mask", vllm_importance_sampling_clip_max=3.0,
)
GRPOTrainer(model="model", reward_funcs=[], args=args).train()
""",
    ),
    "DAPO, clip higher": (
        "skyrl",
        "run.yaml",
        """
trainer:
  algorithm:
    advantage_estimator: grpo
    policy_loss_type: dual_clip
    eps_clip_low: 0.2
    eps_clip_high: 0.28
    clip_ratio_c: 10.0
    loss_reduction: token_mean
    use_kl_loss: false
generator:
  n_samples_per_prompt: 8
""",
    ),
    "decoupled PPO": (
        "areal",
        "run.yaml",
        """
experiment_name: run
gconfig: {n_samples: 8}
actor:
  use_decoupled_loss: true
  recompute_logprob: true
  rejection_sampling: {level: token, action: mask, metric: ratio, upper: 5.0}
  eps_clip: 0.2
  kl_ctl: 0.0
  reward_norm: {mean_level: group, std_level: group, group_size: 8}
""",
    ),
    "GSPO with a mask of sequences": (
        "verl",
        "gspo.yaml",
        """
algorithm:
  adv_estimator: grpo
  rollout_correction: {rollout_rs: seq_mean_k1, rollout_rs_threshold: "0.999_1.001"}
actor_rollout_ref:
  actor: {policy_loss: {loss_mode: gspo}, clip_ratio_low: 3.0e-4, clip_ratio_high: 4.0e-4, use_kl_loss: false}
""",
    ),
}
SEQUENCES = "the level of the ratio: sequence-token, was sequence"
BOUNDED = "the shaping of rewards (lower -20, upper 20)"
TWELVE: list[tuple[str, str, dict[str, object], tuple[str, ...]]] = [
    ("GRPO with token TIS", "trl", {"use_vllm": True}, ("the dual clip (3)",)),
    ("GRPO with token TIS", "areal", {"actor.use_decoupled_loss": True}, ()),
    ("GRPO with token TIS", "skyrl", {"trainer.algorithm.off_policy_correction.tis_ratio_type": "token"}, ()),
    ("GSPO with a sequence mask", "verl", {"actor_rollout_ref.actor.policy_loss.loss_mode": "gspo"}, (SEQUENCES,)),
    (
        "GSPO with a sequence mask",
        "areal",
        {"actor.recompute_logprob": True},
        (
            "a weight at level sequence with outside zero",
            "the advantage under the sequence ratio: sequence, was token",
            "the reduction: token-mean, was seq-mean-token-mean",
        ),
    ),
    ("GSPO with a sequence mask", "skyrl", {"trainer.algorithm.policy_loss_type": "gspo"}, (SEQUENCES,)),
    ("DAPO, clip higher", "verl", {"actor_rollout_ref.actor.clip_ratio_high": 0.28}, ()),
    ("DAPO, clip higher", "trl", {"vllm_importance_sampling_correction": False}, ("the dual clip (10)",)),
    ("DAPO, clip higher", "areal", {"actor.recompute_logprob": True}, ()),
    ("decoupled PPO", "verl", {"algorithm.rollout_correction.rollout_is": "token"}, (BOUNDED,)),
    ("decoupled PPO", "trl", {"use_vllm": True, "scale_rewards": "group"}, (BOUNDED,)),
    (
        "decoupled PPO",
        "skyrl",
        {"trainer.algorithm.off_policy_correction.token_mask_is_threshold_high": 5.0},
        (BOUNDED,),
    ),
    ("GSPO with a mask of sequences", "skyrl", {"trainer.algorithm.policy_loss_type": "gspo"}, ()),
    (
        "GSPO with a mask of sequences",
        "trl",
        {"vllm_importance_sampling_correction": False},
        ("a gate on k1 forward", "the level of the ratio: sequence, was sequence-token"),
    ),
]
"""The rule, the target, a switch without which the target would do something else, and what it cannot say."""


@pytest.mark.parametrize(("rule", "target", "switch", "lost"), TWELVE)
def test_a_rule_people_run_is_the_same_as_a_whole_run_of_the_target_or_what_differs_is_named(
    tmp_path: Path, rule: str, target: str, switch: dict[str, object], lost: tuple[str, ...]
) -> None:
    source, name, text = RULES[rule]
    file, result = tmp_path / name, tmp_path / f"{target}.yaml"
    file.write_text(text)
    code, out, err = run("convert", "--from", source, str(file), "--to", target)
    assert code == (4 if lost else 0), err
    named = [line for line in err.splitlines() if line.startswith(("left out: ", "changed: "))]
    assert len(named) == len(lost), named
    assert all(any(words in line for line in named) for words in lost), named
    result.write_text(out)
    assert switch.items() <= flat_settings(yaml.safe_load(out)).items()
    code, said, _ = run("compare", f"{source}:{file}", f"{target}:{result}")
    assert code == (1 if lost else 0), said
    asked = read(source, file)
    for context in dialect_of(target).contexts:
        there = read(target, {**context, **yaml.safe_load(out)}, whole=True)
        assert any(grave == "differs" for _, _, grave, _ in compared(asked, there)) == bool(lost)


def test_a_target_that_does_not_exist_is_said_before_anything_is_read(tmp_path: Path) -> None:
    code, out, err = run("convert", str(tmp_path / "none.yaml"), "--to", "trll")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "There is no framework 'trll'. Did you mean 'trl'?" in err


def test_a_release_of_the_source_can_be_chosen(tmp_path: Path) -> None:
    file = tmp_path / "areal.yaml"
    file.write_text("actor: {reward_norm: {mean_level: group, std_level: group, group_size: 8}, kl_ctl: 0.0}\n")
    words = ("convert", "--from", "areal", str(file), "--to", "verl")
    assert "divided by eps" in run(*words)[2]
    assert "divided by eps" not in run(*words, "--version", "2.0.0")[2]
    code, _, err = run(*words, "--version", "9")
    assert code == 2
    assert "Known: 1.0.4, 2.0.0." in err


def test_differences_that_hardly_any_number_meets_are_notes(tmp_path: Path) -> None:
    # verl holds log-ratios at 20 and keeps the reward of a group of one; AReaL does neither
    verl, areal = tmp_path / "verl.yaml", tmp_path / "areal.yaml"
    verl.write_text("algorithm: {adv_estimator: grpo}\nactor_rollout_ref: {actor: {clip_ratio_high: 0.28}}\n")
    code, out, _ = run("convert", "--from", "verl", str(verl), "--to", "areal")
    areal.write_text(out)
    assert code == 0
    code, out, err = run("compare", f"verl:{verl}", f"areal:{areal}")
    assert (code, out) == (0, "They compute the same thing.\n")
    assert "note: B handles a group of one differently" in err


def test_what_a_term_does_with_rejected_tokens_counts_only_where_something_is_rejected(tmp_path: Path) -> None:
    run_of = {"rejects": "rollout_rs: seq_mean_k3, rollout_rs_threshold: 0.01", "weighs": "rollout_is: token"}
    for name, rule in run_of.items():
        files = [tmp_path / f"{name}-{side}.yaml" for side in "ab"]
        files[0].write_text(
            f"algorithm: {{rollout_correction: {{{rule}}}}}\nactor_rollout_ref: {{actor: {{use_kl_loss: true, kl_loss_coef: 0.1}}}}\n"
        )
        files[1].write_text(
            "trainer:\n  algorithm: {use_kl_loss: true, kl_loss_coef: 0.1, kl_estimator_type: k3, eps_clip_low: 0.2, "
            "policy_loss_type: dual_clip, loss_reduction: token_mean,\n    off_policy_correction: "
            + ("{sequence_mask_metric: geometric}" if name == "rejects" else "{tis_ratio_type: token}")
            + "}\n"
        )
        said = run("compare", f"verl:{files[0]}", f"skyrl:{files[1]}")[1]
        assert ("kl.mask" in said) == (name == "rejects"), said
