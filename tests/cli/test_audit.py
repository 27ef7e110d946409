"""`trimtab audit` and `trimtab parity`: what they print, their exit codes, and one sentence for each mistake."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.audit import made
from trimtab.cli.app import app
from trimtab.records.saved import SavedBatch

COLUMNS = "tokens=ids,trained=m,behavior=q,proximal=p,advantage=a,versions=v,group=g,reward=r,step=s,learner_version=lv,source=e"
ESCAPE = "\x1b]0;taken\x07"


def run(*arguments: str):
    return CliRunner().invoke(app, list(arguments), prog_name="trimtab")


def write(path: Path, batch: SavedBatch, source: str | None = None) -> str:
    """The batch as JSON lines."""
    lines: list[str] = []
    for place, (low, high) in enumerate(zip(batch.offsets, batch.offsets[1:], strict=False)):
        each = slice(int(low), int(high))
        floats = {
            name: [None if value != value else float(value) for value in column[each]]
            for name, column in (("q", batch.behavior), ("p", batch.proximal), ("a", batch.advantage))
        }
        lines.append(
            json.dumps(
                floats
                | {
                    "ids": batch.tokens[each].tolist(),
                    "m": batch.trained[each].tolist(),
                    "v": batch.versions[each].tolist(),
                }
                | {
                    "g": int(batch.group[place]),
                    "r": float(batch.reward[place]),
                    "s": 7,
                    "lv": 7,
                    "e": source or batch.source[place],
                }
            )
        )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("audit") / "noisy.jsonl", made.batch(noise=0.05))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("audit") / "clean.jsonl", made.batch())


def test_tables_name_every_cause_and_rule(noisy: str):
    ran = run("audit", noisy, "--columns", COLUMNS, "--rule", "icepop(lower=0.9,upper=1.1)")
    assert ran.exit_code == 0
    for said in ("Low precision", "Shift by a token", "geo-rs+token-tis", "icepop(lower=0.9,upper=1.1)", "mean k3"):
        assert said in ran.stdout


@pytest.mark.parametrize(("level", "code"), [(None, 0), ("found", 1), ("suspected", 1)])
def test_the_exit_code_follows_fail_on(noisy: str, clean: str, level: str | None, code: int):
    more = ["--fail-on", level] if level else []
    assert run("audit", noisy, "--columns", COLUMNS, *more).exit_code == code
    assert run("audit", clean, "--columns", COLUMNS, *more).exit_code == 0


def test_json_is_whole_and_finite_and_markdown_has_both_tables(noisy: str):
    told = json.loads(run("audit", noisy, "--columns", COLUMNS, "--json").stdout)
    assert [each["verdict"] for each in told["causes"] if each["cause"] == "precision"] == ["found"]
    assert told["tokens"] == 64 * 40
    page = run("audit", noisy, "--columns", COLUMNS, "--markdown").stdout
    assert "## Causes" in page
    assert "## What each rule would do" in page


def test_the_page_is_written_whole(noisy: str, tmp_path: Path):
    assert run("audit", noisy, "--columns", COLUMNS, "--html", str(tmp_path / "a.html")).exit_code == 0
    assert (tmp_path / "a.html").read_text().endswith("</html>")


def test_a_terminal_obeys_no_name_of_a_file(tmp_path: Path):
    path = write(tmp_path / "a.jsonl", made.batch(noise=0.05, sequences=8), source=ESCAPE)
    ran = run("audit", path, "--columns", COLUMNS)
    assert ran.exit_code == 0
    assert ESCAPE not in ran.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--columns", "behavior"], "--columns needs OURS=THEIRS"),
        (["--json", "--markdown"], "needs one of --json and --markdown"),
        (["--columns", "tokens=ids,trained=m,behavior=q"], "needs log-probs of both sides"),
        (["--columns", COLUMNS, "--rule", "no-such"], "no-such"),
        (["--columns", COLUMNS, "--watch", "other"], "--watch needs one folder"),
        (["--columns", COLUMNS, "--model", "a", "--model", "b", "--model", "c"], "--model needs one folder or two"),
    ],
)
def test_a_mistake_is_one_sentence_and_exit_code_2(noisy: str, words: list[str], said: str):
    ran = run("audit", noisy, *words)
    assert ran.exit_code == 2
    assert said in " ".join(ran.stderr.split())


def test_parity_passes_for_equal_scorings_and_fails_for_others(noisy: str, tmp_path: Path):
    batch = made.batch(noise=0.05)
    moved = SavedBatch(**{**vars(batch), "behavior": batch.behavior + np.float32(0.2)})
    other = write(tmp_path / "moved.jsonl", moved)
    columns = ("--columns", "tokens=ids,trained=m,behavior=q")
    assert run("parity", noisy, noisy, *columns).exit_code == 0
    ran = run("parity", noisy, other, *columns)
    assert ran.exit_code == 1
    # ℓ = −0.2 throughout: k3 = e^−0.2 − 1 + 0.2 = 0.01873, every ratio 0.819 and so outside.
    assert "FAILED: mean k3 0.0187" in ran.stdout
    assert "100.00% outside" in ran.stdout
    assert run("parity", noisy, other, *columns, "--max-k3", "0.02", "--max-outside", "1").exit_code == 0
    assert json.loads(run("parity", noisy, other, *columns, "--json").stdout)["passes"] is False


def test_a_token_that_one_side_lacks_does_not_pass_parity_and_the_worst_is_the_worst(noisy: str, tmp_path: Path):
    """64 sequences of 40 trained tokens: 4 that are missing in each are a tenth; one is 50 nats off."""
    batch = made.batch(noise=0.05)
    behavior = batch.behavior.copy()
    behavior.reshape(64, 45)[:, -4:] = np.nan
    behavior[5] -= 50
    other = write(tmp_path / "holes.jsonl", SavedBatch(**{**vars(batch), "behavior": behavior}))
    columns = ("--columns", "tokens=ids,trained=m,behavior=q", "--max-k3", "1e9")
    ran = run("parity", noisy, other, *columns)
    assert ran.exit_code == 1
    assert "10.04% outside" in ran.stdout  # (256 + 1) / 2560
    assert "the worst |ℓ| is 50" in ran.stdout
    assert "256 trained tokens have a log-prob on one side only" in " ".join(ran.stderr.split())
    assert run("parity", noisy, other, *columns, "--max-outside", "0.11").exit_code == 0


def test_parity_refuses_other_tokens(noisy: str, tmp_path: Path):
    other = write(tmp_path / "other.jsonl", made.batch(noise=0.05, seed=1))
    ran = run("parity", noisy, other, "--columns", "tokens=ids,trained=m,behavior=q")
    assert ran.exit_code == 2
    assert "parity needs the same tokens" in " ".join(ran.stderr.split())


def test_watching_says_a_line_for_each_batch_and_goes_on_after_one_that_cannot_be_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    batch = made.batch(noise=0.05)
    lacking = SavedBatch(**{**vars(batch), "proximal": None})
    monkeypatch.setattr("trimtab.records.dumps.follow", lambda *given, **more: iter([lacking, batch]))
    ran = run("audit", str(tmp_path), "--watch", "--html", str(tmp_path / "a.html"))
    assert ran.exit_code == 0, ran.output
    assert "step 7: 64 sequences" in ran.stdout
    assert "low precision" in ran.stdout
    assert "needs log-probs of both sides" in " ".join(ran.stderr.split())
    assert (tmp_path / "a.html").exists()
