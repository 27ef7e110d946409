"""Files that are no settings: one clear message each, exit code 2, no traceback."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from tests.report.test_directory import on_disk
from trimtab.cli.app import app

LAUGHS = ["a0: &a0 {x: 1, y: 2}"] + [f"a{n}: &a{n} {{x: *a{n - 1}, y: *a{n - 1}}}" for n in range(1, 40)]
LISTS = ["a0: &a0 [1, 1]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
MERGES = ["a0: &a0 {x: 1}"] + [f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}" for n in range(1, 40)]
BAD: dict[str, tuple[str, str | bytes, str]] = {
    "not YAML": ("a.yaml", "a: [1", "needs to be YAML"),
    "a tab": ("a.yaml", "a:\n\tb: 1\n", "needs to be YAML"),
    "a list": ("a.yaml", "- 1\n- 2\n", "a list"),
    "words": ("a.yaml", "just words", "one piece of text"),
    "10 MB": ("a.yaml", "x" * 10_000_000, "10.0 MB"),
    "an anchor in itself": ("a.yaml", "a: &x\n  b: *x\n", "anchor"),
    "a list in itself": ("a.yaml", "a: &x [*x]\n", "anchor"),
    "a bomb of mappings": ("a.yaml", "\n".join(LAUGHS), "anchor"),
    "a bomb of lists": ("a.yaml", "\n".join(LISTS), "anchor"),
    "a bomb of merges": ("a.yaml", "\n".join(MERGES), "an anchor repeats"),
    "too deep": ("a.yaml", "[" * 5000, "needs to be YAML"),
    "bytes": ("a.yaml", b"\xff\xfe\x00\x01", "UTF-8"),
    "a zero byte": ("a.yaml", b"a: \x00", "needs to be YAML"),
    "empty": ("a.yaml", "", "empty file"),
    "only comments": ("a.yaml", "# nothing\n", "empty file"),
    "a key twice": ("a.yaml", "algorithm:\n  gamma: 1\n  gamma: 2\n", "the key 'gamma' twice at line 3"),
    "several documents": ("a.yaml", "a: 1\n---\nb: 2\n", "several documents"),
    "a tag of one's own": ("a.yaml", "a: !mine 1\n", "tag"),
    "broken TOML": ("a.toml", "= 3", "TOML"),
    "a TOML key twice": ("a.toml", "a = 1\na = 2\n", "TOML"),
    "broken JSON": ("a.json", "{", "JSON"),
    "a JSON key twice": ("a.json", '{"a": 1, "a": 2}', "the key 'a' twice"),
    "a JSON list": ("a.json", "[1]", "a list"),
    "deep JSON": ("a.json", "[" * 100_000, "JSON"),
    "an open quote": ("a.sh", "run 'open", "quotes"),
    "a number beyond numbers": (
        "a.yaml",
        f"rollout_is: token\nrollout_is_threshold: 1{'0' * 400}\n",
        "cannot be read as a whole number",
    ),
    "none of its keys": ("a.yaml", "web: {port: 1}\n", "reads none of these keys"),
    "no settings at all": (
        "a.yaml",
        "services: {web: 1}\n",
        "a Docker Compose file (services), which holds no training",
    ),
}


@pytest.mark.parametrize("command", [("convert", "--from", "verl"), ("explain", "--from", "verl"), ("compare",)])
@pytest.mark.parametrize("what", BAD)
def test_a_bad_file_gives_one_clear_message(tmp_path: Path, command: tuple[str, ...], what: str) -> None:
    name, content, words = BAD[what]
    file = tmp_path / name
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    places = (f"verl:{file}", f"verl:{file}") if command == ("compare",) else (str(file),)
    done = CliRunner().invoke(app, [*command, *places])
    assert done.exit_code == 2, done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert len(done.stderr) < 600


@pytest.mark.parametrize(("place", "words"), [("nowhere.yaml", "No such file"), (".", "the folder")])
def test_a_path_that_is_no_file_is_one_message(tmp_path: Path, place: str, words: str) -> None:
    done = CliRunner().invoke(app, ["convert", "--from", "verl", str(tmp_path / place)])
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "NAME", "off"),
        ("compare", "verl:NAME", "off"),
        ("explain", "--from", "verl", "NAME"),
        ("convert", "--from", "verl", "NAME"),
        ("convert", "--from", "verl", "--in-place", "NAME"),
        ("report", "NAME"),
        ("train", "--resume", "NAME"),
        ("audit", "NAME"),
        ("audit", "--from", "verl", "NAME"),
        ("parity", "NAME", "NAME"),
        ("train", "NAME", "--dry-run"),
        ("lab", "report", "NAME"),
        ("schema", "-o", "NAME"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("name", ["x" * 5000, "x" * 300, "\udcff", "a/" * 3000])
def test_a_name_that_no_file_can_have_is_one_message(
    words: tuple[str, ...], name: str, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [word.replace("NAME", name) for word in words])
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    if done.exit_code:
        assert done.exit_code == 2
        assert done.stderr.startswith("error: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("section", ["learner", "rollout", "task"])
@pytest.mark.parametrize("value", [[], 3, "x", None])
def test_a_run_whose_section_is_no_mapping_is_not_resumed(section: str, value: object, tmp_path: Path) -> None:
    path = on_disk(tmp_path, steps=2)
    settings = yaml.safe_load((path / "config.yaml").read_text()) | {section: value}
    (path / "config.yaml").write_text(yaml.safe_dump(settings))
    done = CliRunner().invoke(app, ["train", "--resume", str(path), "--dry-run", "learner.device=cpu"])
    assert done.exit_code == 2, done.output
    assert done.stderr.startswith("error: ")
    assert section in done.stderr


@pytest.mark.parametrize("key", ["name", "self", "parameters", "upper"])
def test_a_parameter_of_any_name_is_one_sentence(key: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"correction: {{preset: icepop, {key}: x}}\n")
    for words in (["explain", "icepop", f"{key}=x"], ["train", str(file), "--dry-run"]):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 2, done.output
        assert done.stderr.startswith("error: ")
        assert key in done.stderr


@pytest.mark.parametrize("value", ["null", "[]", "3", "{}", "[icepop]", ".nan"])
def test_a_preset_that_is_no_name_is_one_sentence(value: str, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"correction: {{preset: {value}}}\n")
    done = CliRunner().invoke(app, ["train", str(file), "--dry-run"])
    assert done.exit_code == 2, done.output
    assert "preset needs a name" in done.stderr


@pytest.mark.parametrize("value", ["!!float .", "!!int x", "!!bool 3", "[", "2001-99-99"])
def test_a_setting_of_check_that_is_no_value_is_one_sentence(value: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "def loss(current, proximal, behavior, mask, advantages):\n    return current.sum()\n"
    )
    done = CliRunner().invoke(app, ["check", "mine:loss", "--cases", "1", "--law", "weight", "--set", f"a={value}"])
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
