"""Each command says what it promises; errors are one message and exit code 2."""

import json
import os
import re
import subprocess
import sys
import warnings

import pytest
from typer.testing import CliRunner

import trimtab
from trimtab.cli.app import app
from trimtab.config.divergences import DIVERGENCES
from trimtab.config.presets import PRESETS, preset_names

ESCAPE = "\x1b"


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), prog_name="trimtab")


def lines(text: str) -> list[str]:
    return [" ".join(line.split()) for line in text.splitlines()]


# ── presets ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_presets_is_a_table_with_one_uncut_line_per_preset():
    ran = run("presets")
    assert ran.exit_code == 0
    for name, each in PRESETS.items():
        row = next(line for line in ran.stdout.splitlines() if line.split(" ")[0] == name)
        assert each.meaning in row
        assert each.source in row
        for parameter in each.parameters:
            assert f"{parameter}=" in row
    assert "geo-rs+token-mis" in ran.stdout
    assert "lower=0.99 upper=1.01 token_lower=null token_upper=2" in ran.stdout


def test_presets_mentions_bypass_forms_in_one_line_and_not_as_rows():
    found = [line for line in run("presets").stdout.splitlines() if "bypass" in line]
    assert len(found) == 1
    assert found[0].startswith("bypass-NAME compares current with behavior")
    assert all(name in found[0] for name, each in PRESETS.items() if not each.two_policies)


def test_presets_for_machines_holds_every_value():
    rows = json.loads(run("presets", "--json").stdout)
    assert [row["name"] for row in rows] == list(PRESETS)
    for row in rows:
        assert trimtab.Correction.from_settings(row["correction"]) == trimtab.preset(row["name"], **row["parameters"])
        assert row["bypass"] is None or row["bypass"] in preset_names()
    assert next(row for row in rows if row["name"] == "token-tis")["called"]["verl"] == "rollout_is: token"


# ── explain ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_explain_says_everything_about_a_preset():
    ran = run("explain", "geo-rs+token-mis", "token_upper=2.0")
    assert ran.exit_code == 0
    assert ran.stderr == ""
    found = lines(ran.stdout)
    assert found[0] == "geo-rs+token-mis token_upper=2.0"
    assert found[1] == PRESETS["geo-rs+token-mis"].meaning
    for line in (
        "gate 1: keep sequence if 0.99 ≤ e^(mean ℓ) ≤ 1.01",
        "gate 2: keep token if r ≤ 2",
        "needs log-probs of behavior and proximal",
        "divided by the count before rejection: a rejected token does not raise the step of the others",
        "a token with ratio 3 (0.3 → 0.9) rejected by gate 2 (3 > 2)",
        "AReaL token_action: mask (#1218; one pair of bounds for both stages)",
    ):
        assert line in found


@pytest.mark.parametrize("name", ["off", "kpop", "opsm", "m2po", "bypass-vaco"])
def test_explain_shows_each_framework_name_and_the_yaml(name):
    out = run("explain", name).stdout
    for framework, called in PRESETS[name.removeprefix("bypass-")].called.items():
        assert f"{framework} {called}" in lines(out)
    assert lines(run("explain", name, "--yaml").stdout) == lines(out.split("YAML\n")[1])


def test_the_yaml_of_explain_is_read_back(tmp_path):
    path = tmp_path / "rule.yaml"
    path.write_text(run("explain", "veto", "upper=50", "--yaml").stdout)
    again = run("explain", str(path), "--yaml")
    assert again.stdout == path.read_text()
    assert "upper: 50.0" in again.stdout


def test_explain_of_a_file_takes_dotted_overrides_and_names_the_preset_it_equals(tmp_path):
    path = tmp_path / "rule.yaml"
    path.write_text(run("explain", "geo-rs", "--yaml").stdout)
    assert "The same as preset geo-rs" in run("explain", str(path)).stdout
    changed = run("explain", str(path), "gates.0.upper=1.05").stdout
    assert "The same as preset" not in changed
    assert "0.99 ≤ e^(mean ℓ) ≤ 1.05" in changed


def test_explain_of_a_bypass_form_compares_the_current_policy():
    out = run("explain", "bypass-geo-rs").stdout
    assert "Here in its bypass form." in out
    assert "ℓ = log current − log behavior" in out
    assert "What frameworks call it (decoupled)" in out


def test_explain_metrics_lists_every_divergence_without_a_name():
    ran = run("explain", "--metrics")
    assert ran.exit_code == 0
    for name, facts in DIVERGENCES.items():
        assert name in ran.stdout
        assert facts.words in ran.stdout
        for direction, formula in facts.formulas.items():
            assert formula in ran.stdout
            assert direction is None or direction in ran.stdout


def test_a_doubt_is_a_note_on_stderr_and_not_a_python_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ran = run("explain", "geo-rs", "lower=null", "upper=2", "--yaml")
    assert ran.exit_code == 0
    assert ran.stderr.startswith("note: Gate on the geometric mean ratio with [open, 2] hardly ever fires")
    assert ran.stderr.count("\n") == 1
    assert "note" not in ran.stdout


def test_a_doubt_is_noted_once_however_often_it_arises(tmp_path):
    path = tmp_path / "rule.yaml"
    gate = "{metric: ratio, level: sequence, upper: 2}"
    path.write_text(f"gates: [{gate}, {gate}]")
    assert run("explain", str(path)).stderr.count("hardly ever fires") == 1


def test_a_warning_that_is_not_ours_is_left_alone(monkeypatch):
    def deprecated(*_: object) -> None:
        warnings.warn("elsewhere", DeprecationWarning, stacklevel=1)

    monkeypatch.setattr("trimtab.cli.explain.to_yaml", deprecated)
    with pytest.raises(DeprecationWarning, match="elsewhere"):
        CliRunner().invoke(app, ["explain", "geo-rs", "--yaml"], catch_exceptions=False)


# ── schema ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_schema_is_the_json_schema_of_a_correction():
    found = json.loads(run("schema").stdout)
    assert found.pop("$schema") == "https://json-schema.org/draft/2020-12/schema"
    assert found == trimtab.Correction.model_json_schema()


def test_schema_writes_a_file_whole_and_leaves_nothing_else(tmp_path):
    path = tmp_path / "correction.schema.json"
    path.write_text("before")
    ran = run("schema", "-o", str(path))
    assert (ran.exit_code, ran.stdout) == (0, "")
    assert path.read_text() == run("schema").stdout
    assert list(tmp_path.iterdir()) == [path]


def test_schema_writes_through_a_link_and_keeps_it(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("before")
    link.symlink_to(real)
    assert run("schema", "-o", str(link)).exit_code == 0
    assert link.is_symlink()
    assert json.loads(real.read_text())["title"] == "Correction"


def test_schema_writes_into_a_pipe_and_does_not_replace_it(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert run("schema", "-o", str(pipe)).exit_code == 0
    assert pipe.is_fifo()
    assert os.read(reader, 1_000_000).decode() == run("schema").stdout
    os.close(reader)


@pytest.mark.parametrize("place", ["nowhere/schema.json", "."])
def test_a_file_that_cannot_be_written_is_an_error(place, tmp_path):
    ran = run("schema", "-o", str(tmp_path / place))
    assert ran.exit_code == 2
    assert re.match(r"error: .* cannot be written: .*\. Check the folder and its permissions\.\n$", ran.stderr)
    assert list(tmp_path.iterdir()) == []


# ── help, version, errors ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("command", [(), ("presets",), ("explain",), ("schema",)])
@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_shows_examples_that_run(command, flag):
    ran = run(*command, flag)
    assert ran.exit_code == 0
    examples = re.findall(r"^ +trimtab (.+?)(?:   .*)?$", ran.stdout.split("Examples:")[1], re.MULTILINE)
    assert examples
    for example in examples:
        if not any(
            word in example for word in ("rule.yaml", "run.yaml", "run.sh", "step5.jsonl", "-o")
        ) and example not in (
            "train",
            "demo",
            "lab",
        ):
            assert run(*example.split()).exit_code == 0, example


def test_no_arguments_show_the_help():
    assert run().stdout == run("--help").stdout
    assert run().exit_code == 0


def test_version():
    assert run("--version").stdout == f"trimtab {trimtab.__version__}\n"


ERRORS = {
    "Preset 'geo-rs' has no parameter 'uper'. Did you mean 'upper'?": ("explain", "geo-rs", "uper=2"),
    "Preset 'geo-rs' has no parameter 'token_upper'. It belongs to geo-rs+token-mis": (
        "explain",
        "geo-rs",
        "token_upper=2",
    ),
    "There is no preset 'gео'. Known: off": ("explain", "gео"),
    "There is no preset 'icepopp'. Did you mean 'icepop'?": ("explain", "icepopp"),
    "nowhere.yaml cannot be read: No such file or directory": ("explain", "nowhere.yaml"),
    "An override needs the form key=value, got 'upper'": ("explain", "geo-rs", "upper"),
    "explain needs a preset or a FILE.yaml, got neither": ("explain",),
}


@pytest.mark.parametrize(("message", "arguments"), ERRORS.items())
def test_an_error_is_one_message_on_stderr_with_exit_code_two(message, arguments):
    ran = run(*arguments)
    assert ran.exit_code == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith(f"error: {message}")
    assert ran.stderr.count("\n") == 1


@pytest.mark.parametrize("arguments", [("explian",), ("presets", "--jsno"), ("presets", "extra")])
def test_a_wrong_command_line_shows_the_usage_with_exit_code_two(arguments):
    ran = run(*arguments)
    assert ran.exit_code == 2
    assert ran.stderr.startswith("Usage: trimtab")


@pytest.mark.parametrize("arguments", [("presets",), ("explain", "kpop"), ("explain", "--metrics"), ("--help",)])
def test_a_page_that_is_not_a_terminal_is_plain_and_has_no_trailing_blanks(arguments):
    out = run(*arguments).stdout
    assert ESCAPE not in out
    assert "…" not in out.replace("parameter=value…", "")
    assert all(line == line.rstrip() for line in out.splitlines())


def test_an_interruption_is_silent(monkeypatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("trimtab.cli.explain.correction_from", interrupted)
    ran = run("explain", "geo-rs")
    assert (ran.exit_code, ran.output) == (130, "")


def test_explain_says_whose_the_numbers_are_and_that_they_hardly_ever_fire():
    said = " ".join(run("explain", "kpop").output.split())
    assert "Numbers: phi is that of verl #6800 and of AReaL's gsm8k_kpop.yaml." in said
    assert "These bounds hardly ever fire: a token must change" in said
    acting = " ".join(run("explain", "kpop", "phi=0.1").output.split())
    assert "hardly ever fire" not in acting


@pytest.mark.parametrize(
    ("words", "found"),
    [("trimtab exp", ["explain"]), ("trimtab explain kp", ["kpop"]), ("trimtab train --re", ["--resume", "--report"])],
)
def test_the_shell_completes_commands_and_options(words, found):
    asked = {"_TRIMTAB_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    ran = subprocess.run(
        [sys.executable, "-m", "trimtab"], env=os.environ | asked, capture_output=True, text=True, check=False
    )
    assert set(found) <= set(ran.stdout.split())
    assert "presets" not in ran.stdout
