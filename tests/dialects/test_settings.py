"""Users' settings in every form they come in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trimtab.dialects import DIALECTS, read
from trimtab.dialects.sources.settings import flags, flat_settings
from trimtab.errors import ConfigFileError

WHOLE = """
data: {train_files: a.parquet}
algorithm:
  gamma: 1.0
  rollout_correction:
    rollout_is: token
    rollout_is_threshold: 2e0
    rollout_rs: seq_mean_k1  # geometric
    rollout_rs_threshold: "0.999_1.001"
actor_rollout_ref: {actor: {optim: {lr: 1e-6}}}
"""
SECTION = {
    "rollout_is": "token",
    "rollout_is_threshold": 2.0,
    "rollout_rs": "seq_mean_k1",
    "rollout_rs_threshold": "0.999_1.001",
}


def test_a_whole_file_a_part_of_it_and_the_section_alone_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(WHOLE)
    expected = read("verl", SECTION).correction
    words = [f"algorithm.rollout_correction.{key}={value}" for key, value in SECTION.items()]
    script = tmp_path / "run.sh"
    script.write_text("python -m verl.trainer.main_ppo \\\n  " + " \\\n  ".join(words) + " # go\n")
    (tmp_path / "run.json").write_text(json.dumps({"algorithm": {"rollout_correction": SECTION}}))
    for settings in (
        file,
        str(file),
        script,
        tmp_path / "run.json",
        words,
        {"rollout_correction": SECTION},
        {"algorithm": {"rollout_correction": SECTION}},
        {"config": {"algorithm": {"rollout_correction": SECTION}}},
    ):
        assert read("verl", settings).correction == expected, settings


def test_flags_are_read_with_dashes_or_dots_and_several_values() -> None:
    words = ["python", "train.py", "--use-tis", "--tis-clip", "3", "--tis-clip-low=0.5", "--opsm-delta", "-1e-4"]
    assert flags(words) == {"use_tis": True, "tis_clip": 3, "tis_clip_low": 0.5, "opsm_delta": -1e-4}
    gate = read("openrlhf", ["--algo.advantage.is_correction_level", "seq", "--is-correction-threshold", "0.9", "1.1"])
    assert (
        gate.correction
        == read("openrlhf", {"is_correction_level": "seq", "is_correction_threshold": [0.9, 1.1]}).correction
    )


def test_toml_and_references_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "rl.toml"
    file.write_text('[trainer.loss]\ntype = "ipo"\nipo_threshold = 0.2\n')
    assert read("prime-rl", file).correction == read("prime-rl", {"type": "ipo", "ipo_threshold": 0.2}).correction
    assert flat_settings({"a": {"b": "${c}"}, "c": 3, "d": "${nowhere.x}"}) == {"a.b": 3, "c": 3, "d": "${nowhere.x}"}


def test_keys_of_no_concern_are_passed_over_and_their_references_too() -> None:
    whole = {"trainer": {"algorithm": {"off_policy_correction": {"tis_ratio_type": "token"}}, "ckpt": "${oc.env:HOME}"}}
    assert read("skyrl", whole).correction == read("skyrl", {"tis_ratio_type": "token"}).correction


def test_a_section_set_to_null_is_off_and_an_empty_one_takes_its_defaults() -> None:
    off = read("areal", {"actor": {"use_decoupled_loss": True, "rejection_sampling": None}}).correction
    on = read("areal", {"actor": {"use_decoupled_loss": True, "rejection_sampling": {}}}).correction
    assert off is not None
    assert off.gates == ()
    assert on == read("areal", {"level": "token", "action": "mask", "metric": "ratio", "upper": 5.0}).correction


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.yaml", "a: [1", "YAML"),
        ("a.yaml", "- 1\n- 2\n", "a list"),
        ("a.yaml", "just words", "one piece of text"),
        ("a.yaml", "a: &x\n  b: *x\n", "anchor"),
        ("a.json", "{", "JSON"),
        ("a.toml", "= 3", "TOML"),
        ("a.sh", "run 'open", "quotes"),
        ("a.yaml", "x" * 10_000_000, "10.0 MB"),
    ],
)
def test_a_bad_file_gives_one_clear_message(tmp_path: Path, name: str, text: str, words: str) -> None:
    file = tmp_path / name
    file.write_text(text)
    with pytest.raises(ConfigFileError, match=words) as raised:
        read("verl", file)
    assert "\n" not in str(raised.value)


def test_a_bomb_of_aliases_is_refused_in_time(tmp_path: Path) -> None:
    layers = ["a0: &a0 {x: 1, y: 2}"] + [f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}" for n in range(1, 40)]
    file = tmp_path / "bomb.yaml"
    file.write_text("\n".join(layers))
    with pytest.raises(ConfigFileError, match="more than 40000 values, those an anchor repeats included"):
        read("verl", file)


def test_a_missing_file_and_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigFileError, match="cannot be read"):
        read("verl", tmp_path / "none.yaml")
    (tmp_path / "b.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigFileError, match="UTF-8"):
        read("verl", tmp_path / "b.yaml")


VERSIONS = [
    ("verl", {"actor_rollout_ref": {"actor": {"tis_imp_ratio_cap": 2.0}}}, "before #3694"),
    ("verl", {"algorithm": {"rollout_is_level": "token", "rollout_is_threshold": 2.0}}, "#3694 until #3984"),
    ("verl", {"rollout_is": "token"}, "0.9.1"),
    ("areal", {"actor": {"behave_imp_weight_cap": 3.0}}, "before #1088"),
    ("skyrl", {"trainer": {"algorithm": {"use_tis": True, "tis_imp_ratio_cap": 2.0}}}, "before #849"),
    ("skyrl", {"tis_ratio_type": "token"}, "0.4.0"),
    ("trl", {"vllm_importance_sampling_cap": 2.0}, "before clip_max"),
    ("openrlhf", {"algo.advantage.enable_vllm_is_correction": True}, "before 0.11.2"),
    ("slime", {"use_score_centering": True}, "after 624b824a, and vime"),
    ("prime-rl", {"token_mask_high": 4.0}, "before 02bdca2e4"),
    ("prime-rl", {"type": "default", "kl_tau": 0.1}, "up to 559b4477"),
    ("prime-rl", {"type": "ipo", "eps": 0.2}, "2026-09"),
    ("open-instruct", {"tis_mask_upper": 2.0}, "before the rho_* flags"),
    ("miles", {"use_tis": True, "skip_actor_forward_only": True}, "after 0.0.2"),
    ("tunix", {"grpo_config": {"epsilon": 0.2, "reward_num_workers": 4}}, "after 0.1.7"),
    ("tunix", {"grpo_config": {"epsilon": 0.2}}, "0.1.7"),
]


@pytest.mark.parametrize(("framework", "settings", "version"), VERSIONS)
def test_a_file_of_another_version_shows_itself_by_its_keys(
    framework: str, settings: dict[str, Any], version: str
) -> None:
    assert read(framework, settings).version == version


def test_every_version_that_is_stated_is_shown_by_keys_that_the_framework_has_or_is_said_not_to_be_read() -> None:
    for dialect in DIALECTS.values():
        own = {path.rpartition(".")[2] for key in dialect.keys for path in key.paths}
        for version in dialect.versions:
            assert version.keys
            assert not version.is_read or own & set(version.keys), (dialect.name, version)


def test_a_key_that_came_later_and_is_not_read_is_pointed_at() -> None:
    found = read("tunix", {"grpo_config": {"epsilon": 0.2, "reward_num_workers": 4}}).findings
    told = [each for each in found if "a key of Tunix after 0.1.7" in each.text]
    assert [(each.key, each.level) for each in told] == [("grpo_config.reward_num_workers", "surprise")]


def test_a_section_that_a_flag_holds_as_one_mapping_is_read_as_its_keys() -> None:
    inside = {"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}
    words = ["loss_fn=ppo", 'loss_fn_config={"clip_low_threshold": 0.9, "clip_high_threshold": 1.1}']
    assert read("tinker", words).loss == read("tinker", {"loss_fn": "ppo", "loss_fn_config": inside}).loss
