"""Rewards that raise, hang, crash or return NaN; models whose logits are not finite; settings that cannot be run."""

from __future__ import annotations

import signal
import sys
from typing import Any

import pytest

from tests.train.small_runs import saved_model
from tests.train.started import Launcher, check_records, kinds, until
from trimtab.records.run import RunDirectory

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

REWARDS = '''
import os
import time
from pathlib import Path

HARM = {
    3: lambda: 1 / 0,
    6: lambda: time.sleep(1000),
    9: lambda: float("nan"),
    12: lambda: os._exit(7),
    15: lambda: "a word",
}


def some(response):
    """Does one sort of harm after another; calls are counted in a file, as the process does not live through all."""
    calls = Path("calls")
    number = int(calls.read_text()) + 1 if calls.exists() else 1
    calls.write_text(str(number))
    return HARM.get(number, lambda: float(number % 2))()


def raises(response):
    raise RuntimeError("out of order")


def hangs(response):
    time.sleep(1000)
'''


def changes(function: str, **others: Any) -> dict[str, Any]:
    task = {"rewards": [{"function": function}], "timeout": 1, "options": {"size": 2}}
    return {"task": task, "evaluate": None} | others


def test_rewards_that_fail_cost_their_samples_and_stop_nothing(launcher: Launcher) -> None:
    (launcher.folder / "mine.py").write_text(REWARDS)
    run = launcher.train(launcher.settings(changes("mine:some", steps=3)), "--out", "run")
    assert run.code() == 0, run.errors
    records = check_records(launcher.folder / "run", 3)
    failed = [line["rollout/failed"] for line in records.metrics()]
    assert sum(failed) * 16 == pytest.approx(5)
    causes = [text for text in records.rollout_table().to_pydict()["failed"] if text]
    assert [cause.partition(" (")[0] for cause in causes] == [
        "ZeroDivisionError: division by zero",
        "timeout after 1 s",
        "not finite: nan",
        "the verifier's process ended with exit code 7",
        "TypeError: a reward is a number, got 'a word'",
    ]
    told = [event["message"] for event in records.events() if event["kind"] == "reward"]
    assert [cause in message for cause, message in zip(causes, told, strict=True)] == [True] * 5
    assert all(message in run.errors for message in told)
    assert "Traceback" not in run.errors


def test_a_run_without_one_reward_stops_and_says_that_verifiers_fail(launcher: Launcher) -> None:
    (launcher.folder / "mine.py").write_text(REWARDS)
    settings = launcher.settings(changes("mine:raises", steps=40, learner={"patience": 3}))
    run = launcher.train(settings, "--out", "run")
    assert run.code() == 2, run.errors
    assert "A verifier failed: RuntimeError: out of order (raises)" in run.errors
    assert "3 steps in a row brought no update: no rows." in run.errors
    assert "rollout/failed" in run.errors.split("error: ")[1]
    records = check_records(launcher.folder / "run", 3)
    assert [line["rollout/failed"] for line in records.metrics()] == [1.0] * 3
    assert records.status == "failed"


def test_a_reward_that_always_hangs_does_not_hang_the_run(launcher: Launcher) -> None:
    (launcher.folder / "mine.py").write_text(REWARDS)
    few = {"groups": 1, "samples": 2, "max_staleness": 0}
    run = launcher.train(launcher.settings(changes("mine:hangs", steps=1, rollout=few)), "--out", "run")
    assert run.code() == 0, run.errors
    assert check_records(launcher.folder / "run", 1, groups=1).metrics()[0]["rollout/failed"] == 1.0


@pytest.mark.parametrize("evaluate", [None, {"problems": 16}], ids=["sampling", "evaluation"])
def test_sigterm_is_heeded_between_two_responses_whose_verifier_hangs(launcher: Launcher, evaluate: Any) -> None:
    calls = launcher.folder / "calls"
    (launcher.folder / "mine.py").write_text(
        "import time\n\n\ndef reward(response):\n    with open('calls', 'a') as file:\n        file.write('.')\n    time.sleep(1000)\n"
    )
    settings = launcher.settings(changes("mine:reward", steps=3) | {"evaluate": evaluate})
    run = launcher.train(settings, "--out", "run")
    until(lambda: calls.exists() and calls.read_text(), "the reward function", run)
    before = len(calls.read_text())
    run.send(signal.SIGTERM)
    assert run.code() == 128 + signal.SIGTERM, run.errors
    assert len(calls.read_text()) <= before + 1  # it may have begun the next one; there are sixteen
    assert "Traceback" not in run.errors
    check_records(launcher.folder / "run", 0)


def test_logits_that_are_not_finite_stop_the_run_with_word_of_what_to_look_at(launcher: Launcher) -> None:
    saved_model(launcher.folder / "model", "model.norm.weight", 3e38)  # finite itself; products with it are not
    model = {"model": {"path": "model"}, "checkpoint": {"every": 1}}
    run = launcher.train(launcher.settings(model | {"learner": {"patience": 3}}), "--out", "run")
    assert run.code() == 2, run.errors
    assert "responses to group 0 met logits that are not finite" in run.errors
    assert "3 steps in a row brought no update: no rows." in run.errors
    assert "rollout/broken" in run.errors.split("error: ")[1]
    assert "Traceback" not in run.errors
    records = check_records(launcher.folder / "run", 3)
    assert [line["rollout/broken"] for line in records.metrics()] == [1.0] * 3
    assert set(records.rollout_table().to_pydict()["finish"]) == {"error"}
    # groups without a token also go through a checkpoint
    again = launcher.train("--resume", "run")
    assert again.code() == 2, again.errors
    assert "steps in a row brought no update: no rows." in again.errors
    check_records(launcher.folder / "run", 3)


def test_spoilt_weights_are_refused_before_anything_starts(launcher: Launcher) -> None:
    saved_model(launcher.folder / "model", "model.layers.0.mlp.up_proj.weight", float("nan"))
    run = launcher.train(launcher.settings({"model": {"path": "model"}}), "--out", "run")
    assert run.code() == 2, run.errors
    assert "error: model.path needs finite weights, got NaN or infinities in model.layers.0.mlp.up_proj" in run.errors
    assert not (launcher.folder / "run/run.json").exists()


REFUSED = {
    "a model that is not there": (["model.path=nowhere"], "model.path needs a Hugging Face causal LM"),
    "a task file that is not there": (["task.name=file", "task.path=no.jsonl"], "Task needs an existing file, got"),
    "a reward module that is not there": (
        ["task.rewards=[{function: nowhere:reward}]"],
        "Reward needs a module that can be imported, got 'nowhere:reward'",
    ),
    "a reward function that is not there": (
        ["task.rewards=[{function: mine:reword}]"],
        "Module mine has no function 'reword'. ",
    ),
    "a setting that is not there": (["rollout.stale=3"], "stale"),
}


def test_settings_that_cannot_be_run_are_refused_with_one_message_and_leave_the_name_free(launcher: Launcher) -> None:
    (launcher.folder / "mine.py").write_text(REWARDS)
    settings = launcher.settings({"steps": 1, "evaluate": None, "task": {"options": {}}})
    for case, (words, message) in REFUSED.items():
        run = launcher.train(settings, *words, "--out", "run")
        assert run.code() == 2, case
        assert message in run.errors, case
        assert run.errors.count("error: ") == 1, case
        assert "Traceback" not in run.errors, case
        assert not (launcher.folder / "run/run.json").exists(), case
    run = launcher.train(settings, "--out", f"{settings}/run")
    assert run.code() == 2, run.errors
    assert f"{settings}/run cannot be written: Not a directory." in run.errors
    run = launcher.train(settings, "--out", "run")
    assert run.code() == 0, run.errors
    assert "stopped" not in kinds(RunDirectory.read(launcher.folder / "run"))
