"""Prompts that leave the model no room for a response."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import Qwen2Config

from tests.train.small_runs import Notes, StopAt, lines, same, saved_model, small
from trimtab.config.training import Rollout, Train
from trimtab.errors import ConfigError, RunError
from trimtab.records.run import RunDirectory
from trimtab.train import batches, build
from trimtab.train.lengths import prompt_limit
from trimtab.train.loop import train
from trimtab.train.messages import Problem
from trimtab.train.tasks import table
from trimtab.train.tasks.builtin import Arithmetic

POSITIONS = 128
"""Of the saved model; its tokens are characters."""


def rows(path: Path, long: dict[int, int], count: int = 60) -> None:
    """Rows of sums, those with a number in `long` so many characters long."""
    made = [{"q": f"{number:02}+1=".rjust(long.get(number, 5), "1"), "a": str(number + 1)} for number in range(count)]
    path.write_text("".join(json.dumps(row) + "\n" for row in made))


def config(folder: Path, *, held_out: bool = True, **options: Any) -> Train:
    saved_model(folder / "model", "model.norm.weight", 1.0)
    task = {"name": "file", "path": str(folder / "rows.jsonl"), "prompt": "q", "answer": "a", "options": options}
    return small(
        model={"path": str(folder / "model")},
        task=task | {"rewards": [{"verifier": "numeric"}]},
        rollout={"max_tokens": 6},
        evaluate={"every": 2, "problems": 4} if held_out else None,
        checkpoint={"every": 1},
    )


def test_rows_that_are_too_long_are_named_before_the_run_starts(tmp_path: Path) -> None:
    rows(tmp_path / "rows.jsonl", {7: POSITIONS, 20: 361, 57: 200})
    with pytest.raises(ConfigError) as refused:
        train(config(tmp_path), tmp_path / "run")
    file = tmp_path / "rows.jsonl"
    assert str(refused.value) == (
        f"Task needs prompts shorter than the 128 tokens that the model has room for, got {file}:8 (128 tokens), {file}:21 (361 tokens), "
        f"{file}:58 (200 tokens). Shorten them, or set task.options.too_long=skip to leave such rows out."
    )
    assert not (tmp_path / "run/run.json").exists()


def test_a_row_with_room_for_one_token_is_no_reason_to_stop(tmp_path: Path) -> None:
    rows(tmp_path / "rows.jsonl", dict.fromkeys(range(54), POSITIONS - 1))
    assert train(config(tmp_path), tmp_path / "run").steps == 6


def test_held_out_rows_that_nobody_asks_for_are_not_looked_at(tmp_path: Path) -> None:
    rows(tmp_path / "rows.jsonl", {59: 361})  # of six held out the last; four are asked for
    with pytest.raises(ConfigError, match=r"rows\.jsonl:60"):
        train(config(tmp_path).but(evaluate={"every": 2, "problems": 6}), tmp_path / "run")
    assert train(config(tmp_path), tmp_path / "run").steps == 6


def test_rows_that_are_left_out_are_told_and_the_run_goes_on_without_them_also_when_it_is_resumed(
    tmp_path: Path,
) -> None:
    rows(tmp_path / "rows.jsonl", {7: 128, 20: 361, 57: 200} | dict.fromkeys(range(30, 36), 150))
    wanted, notes = config(tmp_path, too_long="skip"), Notes()
    train(wanted, tmp_path / "whole", display=notes)
    file = tmp_path / "rows.jsonl"
    assert notes.said[0].startswith(
        f"9 of 58 rows are left out, their prompts do not fit into 128 tokens: {file}:8 (128 tokens), {file}:21"
    )
    assert notes.said[0].endswith(" and 4 more.")
    prompts = RunDirectory.read(tmp_path / "whole").rollout_table().to_pydict()["prompt"]
    assert max(map(len, prompts)) == 5
    assert train(wanted, tmp_path / "run", display=StopAt(3)).steps == 3
    train(wanted, tmp_path / "run", resume=True)
    assert same(tmp_path / "whole", tmp_path / "run")


def test_a_file_of_long_rows_alone_is_refused_though_they_may_be_left_out(tmp_path: Path) -> None:
    rows(tmp_path / "rows.jsonl", dict.fromkeys(range(60), 200))
    with pytest.raises(ConfigError, match="needs rows whose prompts leave room for a response, got none"):
        train(config(tmp_path, too_long="skip"), tmp_path / "run")


def test_another_word_for_it_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    rows(tmp_path / "rows.jsonl", {})
    with pytest.raises(ConfigError, match="too_long"):
        train(config(tmp_path, too_long="truncate"), tmp_path / "run")


class Sums(Arithmetic):
    """A task that makes its prompts: every third, or all from the first on, is too long."""

    every = 3

    def problem(self, index: int) -> Problem:
        made = super().problem(index)
        if index % self.every == 1 % self.every and index < 10**6:
            return Problem(made.id, made.prompt.rjust(400, "1"), made.answer)
        return made

    def held_out(self, count: int) -> list[Problem]:
        made = super().held_out(count)
        return [
            Problem(each.id, each.prompt.rjust(400, "1"), each.answer) if not at else each
            for at, each in enumerate(made)
        ]


@pytest.fixture
def sums(monkeypatch: pytest.MonkeyPatch) -> type[Sums]:
    monkeypatch.setitem(table.SOURCES, "arithmetic", Sums)
    monkeypatch.setattr(build, "pretrained_of", _roomy(build.pretrained_of))
    return Sums


def _roomy(made: Any) -> Any:
    """The policy made on the spot has the positions of short prompts."""

    def found(*given: Any) -> Any:
        policy = made(*given)
        policy.policy.architecture.max_position_embeddings = POSITIONS
        return policy

    return found


def test_a_generated_prompt_that_is_too_long_costs_its_group_and_not_the_run(sums: type[Sums], tmp_path: Path) -> None:
    wanted, notes = small(task={"name": "arithmetic", "options": {}}), Notes()
    train(wanted, tmp_path / "whole", display=notes)
    run = RunDirectory.read(tmp_path / "whole")
    groups = sorted(set(run.rollout_table().to_pydict()["group"]))
    assert groups == [number for number in range(36) if number % 3 != 1]
    assert len(lines(tmp_path / "whole")) == 6
    assert [note.partition(" is left out: its prompt has ")[0] for note in notes.said] == [
        "Group 1",
        "Group 4",
        "Group 7",
    ]
    assert "Further ones are left out without a word." in notes.said[-1]
    train(wanted, tmp_path / "run", display=StopAt(3))
    train(wanted, tmp_path / "run", resume=True)
    assert same(tmp_path / "whole", tmp_path / "run")


def test_a_task_that_makes_nothing_but_long_prompts_ends_the_run_with_a_sentence(
    sums: type[Sums], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Sums, "every", 1)
    monkeypatch.setattr(batches, "LONG_IN_A_ROW", 20)
    with pytest.raises(RunError, match=r"shorter than the 128 tokens that the model has room for, got 2\d in a row"):
        train(small(task={"name": "arithmetic", "options": {}}), tmp_path / "run")


def test_the_limit_is_that_of_the_engine() -> None:
    architecture = Qwen2Config(max_position_embeddings=512)
    assert prompt_limit(architecture, Rollout()) == 512
    for engine in ("vllm", "vllm-server"):
        assert prompt_limit(architecture, Rollout(engine=engine)) == 512
        assert prompt_limit(architecture, Rollout.from_settings({"engine": engine, "vllm": {"longest": 300}})) == 300


def test_a_model_folder_without_a_tokenizer_is_said_to_have_none(tmp_path: Path) -> None:
    rows(tmp_path / "rows.jsonl", {})
    wanted = config(tmp_path)
    for file in (tmp_path / "model").glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ConfigError, match=r"model\.path needs a tokenizer beside the weights, got none in"):
        train(wanted, tmp_path / "run")
