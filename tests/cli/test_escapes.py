"""What comes from outside is shown on a terminal and never obeyed: through every command, and in the displays of runs and labs."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest
from rich.text import Text
from typer.testing import CliRunner

from tests.cli.test_process import on_a_terminal
from trimtab.cli import show
from trimtab.cli.app import app
from trimtab.cli.progress import LabProgress, Progress
from trimtab.records import RunDirectory

HOSTILE = "x\x1b]0;title\x07\x1b[31m\x9b2J\u202e\u2066\x00\x08\ud800\udcff"
NAME = HOSTILE.replace("\x00", "").replace("\ud800", "")  # what a file system takes
OBEYED = set(HOSTILE) - {"x", "t", "i", "l", "e", "[", "]", "0", ";", "3", "1", "m", "2", "J"}
COMMANDS: dict[str, list[str]] = {
    "a command": [HOSTILE],
    "an option": [f"--{HOSTILE}"],
    "a preset": ["explain", HOSTILE],
    "a parameter": ["explain", "icepop", f"{HOSTILE}=2"],
    "a value": ["explain", "icepop", f"upper={HOSTILE}"],
    "no override": ["explain", "icepop", HOSTILE],
    "a framework": ["convert", "--from", HOSTILE, "a.yaml"],
    "a target": ["convert", "--from", "verl", "--to", HOSTILE, "verl.yaml"],
    "a part": ["convert", "--from", "verl", "--only", HOSTILE, "verl.yaml"],
    "no file": ["convert", "--from", "verl", f"{NAME}-.yaml"],
    "a file": ["explain", "--from", "verl", f"{NAME}.yaml"],
    "a file of ours": ["explain", f"{NAME}-own.yaml"],
    "a file's value": ["explain", "--from", "verl", "value.yaml"],
    "a file's key": ["explain", "key.yaml"],
    "a folder": ["convert", "--from", "areal", "--in-place", "--dry-run", "folder"],
    "compared": ["compare", HOSTILE, "off"],
    "a setting": ["train", "--dry-run", f"record.project={HOSTILE}"],
    "a key": ["train", "--dry-run", f"{HOSTILE}=1"],
    "no run": ["report", f"{NAME}-run"],
    "a resumed run": ["train", "--resume", f"{NAME}-run"],
    "a schema": ["schema", HOSTILE],
    "a page": ["schema", "-o", f"{NAME}/{NAME}"],
    "a scenario": ["lab", "--scenario", HOSTILE],
    "a correction": ["lab", "--correction", HOSTILE],
    "no lab": ["lab", "report", NAME],
    "a lab": ["lab", "report", "lab"],
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files whose names and contents are hostile."""
    monkeypatch.chdir(tmp_path)
    root = Path(__file__).parents[2]
    rule = (root / "examples/verl.yaml").read_text()
    for name in ("verl.yaml", f"{NAME}.yaml"):
        (tmp_path / name).write_text(rule)
    (tmp_path / f"{NAME}-own.yaml").write_text((root / "examples/correction.yaml").read_text())
    (tmp_path / "value.yaml").write_text(f"algorithm:\n  rollout_correction: {{rollout_is: {quoted()}}}\n")
    (tmp_path / "key.yaml").write_text(f"{quoted()}: 1\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / f"{NAME}.yaml").write_text("actor:\n  behave_imp_weight_cap: 5.0\n")
    (tmp_path / "folder" / f"{NAME}-2.yaml").write_text("actor: [\n")
    book = json.loads((root / "docs/lab.json").read_bytes())
    first = next(iter(book["scenarios"]))
    book["scenarios"][first] = HOSTILE
    book["entries"][0] |= {"status": "failed", "message": HOSTILE, "verdict": None}
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab.json").write_text(json.dumps(book))
    return tmp_path


def quoted() -> str:
    """The text as YAML can hold it."""
    return json.dumps(HOSTILE.replace("\ud800", "").replace("\udcff", ""))


@pytest.mark.parametrize("what", COMMANDS)
def test_a_hostile_name_is_shown_by_every_command(place: Path, what: str) -> None:
    done = CliRunner().invoke(app, COMMANDS[what], prog_name="trimtab")
    assert done.exception is None or isinstance(done.exception, SystemExit), repr(done.exception)
    assert not OBEYED & set(done.output)
    assert done.output


@pytest.mark.parametrize("what", ["a file", "a folder", "a setting", "a command", "a lab"])
def test_a_terminal_is_sent_only_our_own_controls(place: Path, what: str) -> None:
    arguments = [os.fsencode(each.replace("\x00", "").replace("\ud800", "")) for each in COMMANDS[what]]
    printed = on_a_terminal(*arguments, columns=100)
    assert "]0;title" in printed
    assert "\x1b]0" not in printed
    assert not (OBEYED - {"\x1b"}) & set(printed)


@pytest.mark.parametrize("text", [HOSTILE, f"a\n{HOSTILE}"])
def test_every_way_of_printing_shows_what_it_is_given(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    show.put(text, Text(text), show.heading(text), show.table((text,), [(text,)]))
    show.note(text)
    show.complain(text)
    show.console().print(text)
    said = capsys.readouterr()
    assert not OBEYED & set(said.out + said.err)
    assert "⟨U+202E⟩" in said.out
    assert "⟨U+001B⟩" in said.err


def test_a_name_with_a_line_end_cannot_pass_for_a_message_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    show.complain("runs/a\nerror: all is lost needs nothing")
    show.note("a\nnote: b")
    assert capsys.readouterr().err == "error: runs/a\n  error: all is lost needs nothing\nnote: a\n  note: b\n"


def test_the_displays_of_a_run_and_a_lab_show_what_they_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reward's exception holds what the model wrote, so a response could speak to the terminal."""
    with Progress(3) as display:
        display.begin(tmp_path / NAME, 0)
        display.note(f"The verifier failed: ValueError: {HOSTILE}")
    with LabProgress() as lab:
        lab.end(HOSTILE, None)
    said = capsys.readouterr()
    assert not OBEYED & set(said.out + said.err)
    assert said.err.count("⟨U+001B⟩") >= 4


def test_text_for_machines_is_left_as_it_is_in_a_pipe_and_shown_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    for is_terminal in (False, True):
        stream = io.StringIO()
        stream.isatty = lambda on=is_terminal: on
        monkeypatch.setattr("sys.stdout", stream)
        show.put_raw("a: b\u202e\n")
        assert stream.getvalue() == ("a: b⟨U+202E⟩\n" if is_terminal else "a: b\u202e\n")


def test_a_file_name_cannot_add_lines_to_what_convert_prints(place: Path) -> None:
    file = place / "a\ncorrection: {}\n#.yaml"
    file.write_text((place / "verl.yaml").read_text())
    done = CliRunner().invoke(app, ["convert", "--from", "verl", str(file)])
    assert done.exit_code == 0
    assert done.stdout.count("\ncorrection:") == 1
    assert "correction: {}" in done.stdout.splitlines()[0]


def test_a_run_of_a_hostile_name_is_reported(place: Path) -> None:
    run = RunDirectory.create(place / f"{NAME}-run", {"record": {}})
    run.event(HOSTILE, HOSTILE)
    run.close()
    done = CliRunner().invoke(app, ["report", f"{NAME}-run"])
    assert done.exit_code == 0, done.output
    assert not OBEYED & set(done.output)
