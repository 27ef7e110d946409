"""Runs whose files hold anything at all: a page, or one sentence."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report import made
from tests.report.test_directory import on_disk
from trimtab.errors import RecordError
from trimtab.report import write_charts, write_comparison, write_report
from trimtab.report.page import report_html
from trimtab.report.run import read_run
from trimtab.report.write import write_page

ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 30))


@pytest.mark.parametrize("value", [1e308, -1e308, 1.7e308, 5e-324, 10**400, -(10**400)])
def test_a_number_at_the_end_of_numbers_is_drawn_in_any_metric(value: float) -> None:
    run = made.run("collapsed", steps=60)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        alone = [[name] for name in run.names] if value == 1e308 else []
        for names in [*alone, run.names]:
            lines = [dict(line) for line in run.metrics]
            lines[7] |= dict.fromkeys(names, value)
            assert report_html(replace(run, metrics=lines)).startswith("<!doctype html>")


@pytest.mark.parametrize("step", [10**30, -(10**30), "7", None, [1], {}, 1.5])
def test_a_line_whose_step_is_none_is_passed_over(step: object) -> None:
    run = made.run("healthy", steps=20)
    lines = [*run.metrics, {**run.metrics[-1], "step": step}]
    assert replace(run, metrics=lines).span == run.span
    assert report_html(replace(run, metrics=lines, events=[{"kind": "x", "step": step}]))


def test_the_kind_of_an_event_wraps_and_its_step_is_a_number() -> None:
    events = [{"kind": "k" * 500, "message": "m", "step": 3}, {"kind": "x", "step": "s" * 500}]
    page = report_html(made.run("healthy", steps=5, events=events))
    assert f"<td>{'k' * 500}</td>" in page
    assert "s" * 500 not in page
    assert '<td class="n">3</td>' in page


SETTINGS = {
    "a bomb of aliases": (ALIASES, "needs to be YAML, got a damaged file: more than 40000 values"),
    "brackets": ("a: " + "[" * 30_000, "nested too deeply"),
    "a number that is none": ("steps: !!int x", "cannot be read as a whole number"),
    "10 MB": ("x" * 10_000_000, "needs to be at most 1 MB"),
    "a correction of text": ("correction: {weight: much}", "needs settings, metrics and events as a run writes them"),
    "gates of numbers": ("correction: {gates: [1]}", "needs settings, metrics and events as a run writes them"),
    "a record of text": ("record: {every: often}", "config.yaml needs numbers under record, got {'every': 'often'}"),
    "a record without end": ("record: {every: .inf}", "config.yaml needs numbers under record"),
    "a record that is a list": ("record: [1]", "config.yaml needs numbers under record, got [1]"),
    "an evaluation of text": ("evaluate: {problems: many}", "needs settings, metrics and events as a run writes them"),
}


@pytest.mark.parametrize("what", SETTINGS)
def test_settings_that_no_run_writes_are_one_sentence(tmp_path: Path, what: str) -> None:
    path = on_disk(tmp_path, steps=6)
    text, words = SETTINGS[what]
    (path / "config.yaml").write_text(text)
    with pytest.raises(RecordError) as refusal:
        write_report(path)
    assert words in str(refusal.value)
    assert str(path) in str(refusal.value)
    assert not (path / "report.html").exists()


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "9" * 5000])
@pytest.mark.parametrize("name", ["metrics.jsonl", "events.jsonl", "run.json"])
def test_json_that_no_run_writes_is_one_sentence(tmp_path: Path, name: str, text: str) -> None:
    path = on_disk(tmp_path, steps=6)
    (path / name).write_text(f"{text}\n")
    with pytest.raises(RecordError, match=name):
        write_report(path)


@pytest.mark.parametrize("value", ["text", None, [1], {"a": 1}, 1e308, True])
def test_a_metric_of_any_kind_leaves_a_report(tmp_path: Path, value: object) -> None:
    path = on_disk(tmp_path, steps=6)
    line = json.loads((path / "metrics.jsonl").read_text().splitlines()[-1])
    with (path / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(dict.fromkeys(line, value) | {"step": 6}) + "\n")
    assert write_report(path).exists()


def test_a_damaged_tokenizer_and_one_that_vanishes_leave_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = on_disk(tmp_path, steps=6)
    (path / "checkpoints" / "tokenizer.json").write_text("{")
    assert read_run(path).piece is None

    def gone(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory", ".saving-step-000197")

    monkeypatch.setattr(Path, "rglob", gone)  # a run that goes on prunes its checkpoints meanwhile
    assert write_report(path).exists()


def test_a_place_that_takes_no_report_is_told_without_word_of_resuming(tmp_path: Path) -> None:
    path = on_disk(tmp_path, steps=6)
    out = tmp_path / "nowhere" / "page.html"
    with pytest.raises(
        RecordError, match=r"cannot be written: No such file or directory\. Mend that, or choose another"
    ):
        write_report(path, out)
    with pytest.raises(RecordError) as refusal:
        write_page(Path(os.devnull) / "page.html", "")
    assert "resume" not in str(refusal.value)


def test_a_place_that_takes_no_comparison_or_charts_is_told_too(tmp_path: Path) -> None:
    one, other = on_disk(tmp_path / "a", steps=6), on_disk(tmp_path / "b", steps=6)
    (tmp_path / "file").write_text("")
    for ask in (
        lambda: write_comparison([one, other], tmp_path / "nowhere" / "page.html"),
        lambda: write_charts([one], tmp_path / "file"),
        lambda: write_charts([one, other], tmp_path / "file" / "charts"),
    ):
        with pytest.raises(RecordError, match=r"cannot be (written|made): .*[Cc]hoose another") as refusal:
            ask()
        assert "resume" not in str(refusal.value)


def test_what_charts_and_comparisons_cannot_draw_is_one_sentence(tmp_path: Path) -> None:
    one, other = on_disk(tmp_path / "a", steps=6), on_disk(tmp_path / "b", steps=6)
    (one / "config.yaml").write_text("correction: {weight: much, gates: [1]}\nevaluate: {problems: many}\n")
    with pytest.raises(RecordError, match="needs settings, metrics and events as a run writes them"):
        write_charts([one], tmp_path / "charts")
    with pytest.raises(RecordError, match="needs settings, metrics and events as a run writes them"):
        write_comparison([one, other], tmp_path / "page.html")
    assert not (tmp_path / "charts").exists()


def test_a_time_that_is_next_to_nothing_is_no_warning(tmp_path: Path) -> None:
    path = on_disk(tmp_path, steps=12)
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    text = "".join(json.dumps(line | {"time/step": 1e-320, "time/wait": 1.0}) + "\n" for line in lines)
    (path / "metrics.jsonl").write_text(text)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert write_report(path).exists()
