"""Which files a file of settings may lead to, what is printed of others, and how much is done for any of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trimtab.cli.app import app
from trimtab.dialects import read
from trimtab.dialects.sources import expansion, inherit
from trimtab.dialects.sources.opening import contents_of
from trimtab.dialects.sources.settings import flat_settings, tree
from trimtab.errors import ConfigError, ConfigFileError

SECRET = "s3cret-outside-value"
OUTSIDE = f"algorithm: {{rollout_correction: {{rollout_is: token}}, adv_estimator: {SECRET}}}\n"
OWN = (
    "algorithm: {rollout_correction: {rollout_is_threshold: 3.0}}\nactor_rollout_ref: {actor: {clip_ratio_low: 0.2}}\n"
)
NO_ROOT = "lies outside of"


def put(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def said(*words: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output


NAMING = {
    "a path": "defaults: [../outside/secret]\n",
    "with its ending": "defaults: ../outside/secret.yaml\n",
    "a group": "defaults: [{../outside@_global_: secret}]\n",
    "from the root": "defaults: [{/../outside@_global_: secret}]\n",
    "a reference": "x: ../outside/secret\ndefaults: ['${x}']\n",
    "a link": "defaults: [link]\n",
    "a link to a folder": "defaults: [folder/secret]\n",
    "as it is absolute": "defaults: [ABSOLUTE]\n",
}


@pytest.mark.parametrize("name", NAMING)
def test_a_file_outside_is_not_read_and_what_it_sets_is_not_known(tmp_path: Path, name: str) -> None:
    outside = put(tmp_path, "outside/secret.yaml", OUTSIDE)
    file = put(tmp_path, "given/a.yaml", NAMING[name].replace("ABSOLUTE", str(outside)) + OWN)
    (tmp_path / "given" / "link.yaml").symlink_to(outside)
    (tmp_path / "given" / "folder").symlink_to(outside.parent)
    found = read("verl", file)
    assert found.correction is None
    assert {each.part for each in found.refused} == {"correction"}
    assert any("settings are unknown" in each.text for each in found.findings)
    for words in (
        ["explain", "--from", "verl", file],
        ["convert", file, "--from", "verl", "--to", "areal"],
        ["compare", f"verl:{file}", "off"],
    ):
        assert SECRET not in said(*words)[1]


def test_toml_files_outside_are_not_read(tmp_path: Path) -> None:
    put(tmp_path, "outside/secret.toml", f'[trainer.loss]\ntype = "{SECRET}"\n')
    file = put(tmp_path, "given/a.toml", 'toml_files = ["../outside/secret.toml"]\n[trainer.loss]\nratio_high = 4.0\n')
    found = read("prime-rl", file)
    assert [each.text for each in found.findings if NO_ROOT in each.text] == [
        f"Builds on ../outside/secret.toml, which lies outside of {tmp_path}/given and is not read (--root DIR allows it): its "
        "settings are unknown."
    ]
    assert SECRET not in said("explain", "--from", "prime-rl", file)[1]


def test_a_file_that_a_script_names_above_it_is_not_read_outside_of_its_repository(tmp_path: Path) -> None:
    put(tmp_path, "conf/deep/secret.yaml", OUTSIDE)
    file = put(
        tmp_path,
        "given/run.sh",
        "python3 -m verl.trainer.main_ppo --config-path=conf/deep --config-name=secret algorithm.adv_estimator=grpo\n",
    )
    assert any(NO_ROOT in each.why for each in contents_of(file).parents)
    (tmp_path / ".git").mkdir()
    assert contents_of(file).keys["algorithm.rollout_correction.rollout_is"] == "token"


PARENT = "loss_fn: {ratio_clip_max: 0.4}\ngrpo: {num_generations_per_prompt: 8}\n"
CHILD = "defaults: ../base.yaml\nloss_fn: {ratio_clip_min: 0.1}\n"
CLIP = "loss_fn.ratio_clip_max"


def test_a_parent_above_is_read_within_the_repository(tmp_path: Path) -> None:
    put(tmp_path, "base.yaml", PARENT)
    file = put(tmp_path, "recipes/a.yaml", CHILD)
    assert CLIP not in contents_of(file).keys
    (tmp_path / ".git").write_text("gitdir: elsewhere\n")  # as in a worktree
    assert contents_of(file).keys[CLIP] == 0.4


def test_the_nearest_repository_counts(tmp_path: Path) -> None:
    put(tmp_path, "base.yaml", PARENT)
    (tmp_path / ".git").mkdir()
    file = put(tmp_path, "inner/a.yaml", CHILD)
    (tmp_path / "inner" / ".git").mkdir()
    assert CLIP not in contents_of(file).keys


def test_a_root_that_is_said_takes_the_place_of_the_repository(tmp_path: Path) -> None:
    put(tmp_path, "base.yaml", PARENT)
    file = put(tmp_path, "recipes/a.yaml", CHILD)
    assert contents_of(file, root=tmp_path).keys[CLIP] == 0.4
    (tmp_path / ".git").mkdir()
    assert CLIP not in contents_of(file, root=tmp_path / "recipes").keys
    with pytest.raises(ConfigError, match=r"--root needs a folder, got '.*nowhere'\. Name one above the file"):
        read("nemo-rl", file, root=tmp_path / "nowhere")


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "--from", "nemo-rl", "FILE"],
        ["convert", "--from", "nemo-rl", "FILE"],
        ["compare", "nemo-rl:FILE", "off"],
    ],
)
def test_every_command_takes_a_root(tmp_path: Path, words: list[str]) -> None:
    put(tmp_path, "base.yaml", PARENT)
    file = put(tmp_path, "recipes/a.yaml", CHILD)
    words = [word.replace("FILE", str(file)) for word in words]
    assert "0.4" not in said(*words)[1]
    shown = said(*words, "--root", tmp_path)[1]
    assert "0.4" in shown or words[0] == "compare"
    assert NO_ROOT not in shown


# ── what is no file ──


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", ["a", "a.yaml", "a.sh", "a.py", "a.toml", "a.json"])
@pytest.mark.parametrize(
    "words",
    [
        ["explain"],
        ["explain", "--from", "verl"],
        ["convert"],
        ["convert", "--from", "verl", "--to", "trl"],
        ["compare", "off"],
    ],
)
def test_a_pipe_is_refused_in_one_sentence(tmp_path: Path, name: str, words: list[str]) -> None:
    os.mkfifo(tmp_path / name)
    code, shown = said(*words, tmp_path / name)
    assert (code, shown.count("error: ")) == (2, 1)
    assert "pipe" in shown or "preset" in shown


@pytest.mark.timeout(60)
def test_a_folder_with_a_pipe_is_gone_through(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    code, shown = said("convert", "--in-place", "--from", "verl", "--dry-run", tmp_path)
    assert code == 1
    assert "it is a pipe, no ordinary file" in shown
    assert "0 would be rewritten, 0 need nothing, 1 refused" in shown


@pytest.mark.timeout(60)
def test_a_pipe_beside_a_file_is_none_of_its_parents(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "base.yaml")
    file = put(tmp_path, "a.yaml", "defaults: base.yaml\nloss_fn: {ratio_clip_max: 0.4}\n")
    assert [each.name for each in contents_of(file).parents] == ["base.yaml"]


@pytest.mark.parametrize(
    "words",
    [
        ["explain"],
        ["convert"],
        ["convert", "--from", "verl"],
        ["convert", "--in-place", "--from", "verl"],
        ["compare", "off"],
    ],
)
def test_a_link_to_itself_is_refused_in_one_sentence(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    code, shown = said(*words, tmp_path / "loop.yaml")
    assert code in (1, 2)
    assert "Traceback" not in shown
    assert "loop.yaml cannot be read: Too many levels of symbolic links" in " ".join(shown.split())


OTHER_FILES = {
    "accounts": "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n",
    "a token": "hf_s3cretTokenOfSomebody\n",
    "a list": "- hf_s3cretTokenOfSomebody\n",
    "a number": "48151623421\n",
    "a key": "-----BEGIN KEY-----\nhf_s3cretTokenOfSomebody\n-----END KEY-----\n",
}


@pytest.mark.parametrize("ending", [".yaml", ".json", ".toml", ".sh", ".py", ""])
@pytest.mark.parametrize("text", OTHER_FILES)
def test_nothing_of_a_file_that_is_no_settings_is_printed(tmp_path: Path, text: str, ending: str) -> None:
    put(tmp_path, "other", OTHER_FILES[text])
    link = tmp_path / f"link{ending}"
    link.symlink_to("other")
    for words in (
        ["explain", link],
        ["explain", "--from", "verl", link],
        ["convert", link],
        ["compare", link, "off"],
        ["train", link, "--dry-run"],
    ):
        shown = said(*words)[1]
        assert not any(part in shown for part in ("root:x", "/bin/bash", "s3cret", "48151623421")), (words, shown)


# ── how much is done ──


def test_a_parent_that_is_named_many_times_is_parsed_once(tmp_path: Path) -> None:
    put(tmp_path, "big.yaml", "".join(f"k{n}: {n}\n" for n in range(1000)))
    file = put(tmp_path, "a.yaml", f"defaults: [{', '.join(['big'] * 50)}]\n{OWN}")
    parsed: list[Path] = []

    def counted(path: Path) -> object:
        parsed.append(path)
        return tree(path)

    from trimtab.dialects.sources.inherit import reach_of

    found = inherit.with_parents(file, counted, reach_of(file))  # pyright: ignore[reportArgumentType]
    assert [path.name for path in parsed] == ["a.yaml", "big.yaml"]
    assert found[0]["k999"] == 999


def test_the_values_of_a_family_are_counted(tmp_path: Path) -> None:
    put(tmp_path, "big.yaml", "".join(f"k{n}: {n}\n" for n in range(10_000)))
    file = put(tmp_path, "a.yaml", f"defaults: [{', '.join(['big'] * 59)}]\n{OWN}")
    with pytest.raises(
        ConfigFileError, match=f"parents of at most {inherit.MOST_VALUES} values in all, got more. Look for one that is"
    ):
        contents_of(file)


def test_a_key_of_many_parts_is_refused_before_it_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import tomllib

    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("it was parsed"))
    for text in (
        ".".join("a" * 20_001) + " = 1\n",
        "x = 1\n[" + ' . "b c" . '.join("a" * 80) + "]\n",
        "y = {" + ".".join("a" * 80) + " = 1}\n",
    ):
        with pytest.raises(ConfigFileError, match="a key of more than 60 parts"):
            tree(put(tmp_path, "a.toml", text))


def test_ordinary_dots_are_no_key_of_many_parts(tmp_path: Path) -> None:
    text = 'a.b.c = "1.2.3.4"\n' + "".join(f'k{n} = "a.b.{n}."\n' for n in range(100)) + f"w = '{'ab ' * 100_000}'\n"
    assert flat_settings(put(tmp_path, "a.toml", text))["a.b.c"] == "1.2.3.4"


def test_values_that_are_cut_by_patterns_are_counted(tmp_path: Path) -> None:
    cut = "python3 -m verl.trainer.main_ppo a.b=${X##*b*b*b*b*b}\n"
    file = put(tmp_path, "cut.sh", f"X={'a' * 1900}\n{cut * 3000}")
    with pytest.raises(ConfigFileError, match=f"more than {expansion.MOST_CUT} letters held against patterns"):
        contents_of(file)
    few = put(tmp_path, "few.sh", f"X=dir/name.tar.gz\npython3 -m verl.trainer.main_ppo {'a.b=${X##*/} ' * 500}\n")
    assert contents_of(few).keys["a.b"] == "name.tar.gz"
