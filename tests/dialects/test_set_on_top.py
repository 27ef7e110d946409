"""`--set` of a key that changes nothing, and a folder in place of a file: said, with what was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.dialects import Finding, read
from trimtab.errors import UnknownNameError

VERL = (
    "actor_rollout_ref: {actor: {clip_ratio_low: 0.2}}\n"
    "algorithm: {rollout_correction: {rollout_is: token}}\ntrainer: {total_epochs: 3}\n"
)
SLIME = "python3 train.py --advantage-estimator grpo --use-tis --tis-clip 3.0 --hf-checkpoint x\n"
IN_VAIN = "nothing that is shown changes"


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


def in_vain(framework: str, file: Path, *sets: str) -> list[Finding]:
    return [each for each in read(framework, file, overrides=list(sets)).findings if IN_VAIN in each.text]


@pytest.mark.parametrize("name", ["foo", "foo.bar", "total_epoch", "trainr.total_epochs"])
def test_a_key_that_a_framework_of_sections_cannot_have_is_refused(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, "a.yaml", VERL)
    with pytest.raises(
        UnknownNameError, match=f"verl has no key '{name}' that --set could reach, so it would change nothing"
    ):
        read("verl", file, overrides=[f"{name}=1"])
    done = CliRunner().invoke(app, ["explain", "--from", "verl", str(file), "--set", f"{name}=1"])
    assert (done.exit_code, done.output.count("error: ")) == (2, 1)


def test_the_nearest_name_is_offered(tmp_path: Path) -> None:
    file = written(tmp_path, "a.yaml", VERL)
    with pytest.raises(UnknownNameError, match=r"Did you mean 'gamma'\?"):
        read("verl", file, overrides=["gama=1"])


@pytest.mark.parametrize(
    "name",
    ["trainer.total_training_steps", "actor_rollout_ref.rollout.gpu_memory_utilization", "actor.use_torch_compile"],
)
def test_a_key_of_a_section_that_is_of_no_concern_is_said_aloud(tmp_path: Path, name: str) -> None:
    found = in_vain("verl", written(tmp_path, "a.yaml", VERL), f"{name}=1")
    assert [(each.key, each.level) for each in found] == [(name, "surprise")]
    assert "Check its name." in found[0].text


def test_among_flags_any_name_may_be_one_and_is_said_aloud(tmp_path: Path) -> None:
    file = written(tmp_path, "a.sh", SLIME)
    assert [(each.key, each.level) for each in in_vain("slime", file, "foo=1")] == [("foo", "surprise")]
    with pytest.raises(UnknownNameError, match=r"slime has no key 'foo\.bar'"):
        read("slime", file, overrides=["foo.bar=1"])


def test_a_key_of_the_file_that_no_rule_reads_is_a_note(tmp_path: Path) -> None:
    found = in_vain("verl", written(tmp_path, "a.yaml", VERL), "trainer.total_epochs=4")
    assert [(each.key, each.level) for each in found] == [("trainer.total_epochs", "note")]
    assert in_vain("verl", written(tmp_path, "a.yaml", VERL), "total_epochs=4")[0].key == "trainer.total_epochs"


@pytest.mark.parametrize(
    "name",
    [
        "rollout_is_threshold",
        "algorithm.rollout_correction.rollout_is_threshold",
        "rollout_correction.rollout_is_threshold",
    ],
)
def test_a_key_that_is_read_is_set_without_a_word(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, "a.yaml", VERL)
    assert in_vain("verl", file, f"{name}=3.0") == []
    assert read("verl", file, overrides=[f"{name}=3.0"]).correction != read("verl", file).correction


def test_a_key_of_which_more_is_said_is_not_said_twice(tmp_path: Path) -> None:
    file = written(tmp_path, "a.yaml", VERL)
    said = read("verl", file, overrides=["actor_rollout_ref.actor.my_kl_ratio=0.1"]).findings
    about = [each.text for each in said if each.key.endswith("my_kl_ratio")]
    assert len(about) == 1
    assert IN_VAIN not in about[0]


def test_the_exit_code_stays_where_a_key_is_only_said(tmp_path: Path) -> None:
    file = written(tmp_path, "a.yaml", VERL)
    codes = [
        CliRunner().invoke(app, ["explain", str(file), *more]).exit_code for more in ([], ["--set", "trainer.foo=1"])
    ]
    assert codes == [0, 0]


# ── a folder ──


@pytest.mark.parametrize(
    "words", [["explain"], ["explain", "--from", "verl"], ["convert", "--from", "verl"], ["convert"]]
)
def test_a_folder_is_refused_with_the_files_in_it_that_look_like_settings(tmp_path: Path, words: list[str]) -> None:
    for name, text in (
        ("b.yaml", VERL),
        ("run.sh", SLIME),
        ("ci.yml", "on: [push]\njobs: {a: {}}\n"),
        ("notes.txt", "x"),
        ("bad.yaml", "a: ["),
    ):
        written(tmp_path, name, text)
    (tmp_path / "inner").mkdir()
    done = CliRunner().invoke(app, [*words, str(tmp_path)])
    shown = " ".join(done.output.split())
    assert done.exit_code == 2
    assert f"got the folder {tmp_path}. In it these look like settings: b.yaml (verl), run.sh (slime)." in shown
    assert "preset" not in shown


def test_a_folder_without_settings_says_so_and_one_with_many_names_a_few(tmp_path: Path) -> None:
    assert "No file directly in it looks like a framework's settings" in " ".join(
        CliRunner().invoke(app, ["explain", str(tmp_path)]).output.split()
    )
    for number in range(7):
        written(tmp_path, f"{number}.yaml", VERL)
    shown = " ".join(CliRunner().invoke(app, ["explain", str(tmp_path)]).output.split())
    assert "0.yaml (verl), 1.yaml (verl), 2.yaml (verl), 3.yaml (verl) and 3 more." in shown


def test_a_preset_is_explained_also_where_a_folder_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "icepop").mkdir()
    assert CliRunner().invoke(app, ["explain", "icepop"]).exit_code == 0
