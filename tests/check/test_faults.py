"""Every law can break: a fault planted in a small function breaks its law and no other, and the counterexample runs."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from trimtab.check.ask import Judgement, Ruling, check
from trimtab.check.load import subject_of
from trimtab.check.script import script_of
from trimtab.check.subject import Kind, Subject
from trimtab.config.presets import preset

ROOT = Path(__file__).parents[2]
FAULTS: list[tuple[Kind, str, str, str]] = [
    ("step", "nan_under_the_mask", "masked", "not-finite current"),
    ("step", "mask_leaks", "masked", "masked behavior"),
    ("step", "mean_of_each_micro_batch", "splits", "even split"),
    ("step", "divided_by_nothing", "empty", "empty micro-batch"),
    ("step", "without_a_graph", "empty", "empty micro-batch"),
    ("step", "padding_counted", "padding", "padding columns"),
    ("step", "padding_logged", "padding", "metrics beside padding rows"),
    ("step", "later_tokens_weigh_more", "alignment", "order of tokens"),
    ("step", "missing_is_ratio_one", "alignment", "missing log-prob"),
    ("step", "weight_with_a_gradient", "weight", "named weight"),
    ("step", "weight_of_the_wrong_policy", "weight", "named weight"),
    ("step", "ascends", "weight", "sign"),
    ("advantages", "removed_row_votes", "votes", "removed row"),
    ("advantages", "groups_by_stride", "groups", "order of rows"),
    ("advantages", "singleton_without_baseline", "groups", "baseline"),
    ("ages", "age_of_the_newest", "versions", "oldest token"),
    ("ages", "unknown_is_new", "versions", "unknown version"),
]
UNNAMED = {"mask_leaks", "later_tokens_weigh_more", "nan_under_the_mask"}
"""Not proportional to each token's own advantage, or without PPO's clip: the weight cannot be read off them."""


@cache
def asked(kind: Kind, name: str) -> tuple[Subject, tuple[Ruling, ...]]:
    rule = preset("token-tis", upper=2.0) if kind == "step" and name not in UNNAMED else None
    subject = subject_of({kind: f"tests.check.planted:{name}"}, rule=rule)
    return subject, tuple(check(subject, cases=20))


def broken(kind: Kind, name: str) -> list[tuple[Subject, Ruling, Judgement]]:
    subject, rulings = asked(kind, name)
    return [(subject, ruling, each) for ruling in rulings for each in ruling.broken]


@pytest.mark.parametrize(
    ("kind", "name"), [("step", "sound"), ("advantages", "sound_estimator"), ("ages", "sound_ages")]
)
def test_a_sound_function_holds_every_law_that_can_be_asked(kind: Kind, name: str) -> None:
    _, rulings = asked(kind, name)
    found = {ruling.law.name: ruling.ruling for ruling in rulings}
    expected = {
        "step": {"masked", "splits", "empty", "padding", "alignment", "weight"},
        "advantages": {"votes", "groups"},
    }
    holding = expected.get(kind, {"versions"})
    assert {law for law, ruling in found.items() if ruling == "holds"} == holding
    assert {ruling for law, ruling in found.items() if law not in holding} == {"does not apply"}


@pytest.mark.parametrize(("kind", "name", "law", "question"), FAULTS, ids=[fault[1] for fault in FAULTS])
def test_a_planted_fault_breaks_its_law_and_no_other(kind: Kind, name: str, law: str, question: str) -> None:
    found = broken(kind, name)
    assert {ruling.law.name for _, ruling, _ in found} == {law}
    assert question in {each.question.name for _, _, each in found}


@pytest.mark.parametrize(("kind", "name", "law", "question"), FAULTS, ids=[fault[1] for fault in FAULTS])
def test_the_counterexample_is_small_and_shows_the_two_numbers(kind: Kind, name: str, law: str, question: str) -> None:
    for subject, ruling, each in broken(kind, name):
        script = script_of(subject, ruling.law, each)
        assert "import trimtab" not in script
        assert "from trimtab" not in script
        assert each.counterexample is not None
        rows = len(each.counterexample.pair.first.tensors["mask"])
        assert rows <= 5
        if each.counterexample.difference is None:
            with pytest.raises(RuntimeError, match="does not require grad"):
                exec(compile(script, "script", "exec"), {"__name__": "script"})
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(script, "script", "exec"), {"__name__": "script"})
        numbers = [float(line.rpartition(":")[2]) for line in printed.getvalue().splitlines()]
        difference = each.counterexample.difference
        assert numbers == pytest.approx([difference.first, difference.other], rel=1e-5, nan_ok=True)
        assert str(numbers[0]) != str(numbers[1])


def test_a_counterexample_runs_as_a_script_of_its_own(tmp_path: Path) -> None:
    subject, ruling, each = broken("step", "mean_of_each_micro_batch")[0]
    file = tmp_path / "counterexample.py"
    file.write_text(script_of(subject, ruling.law, each))
    ran = subprocess.run(
        [sys.executable, str(file)],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert ran.returncode == 0, ran.stderr
    assert re.search(r"in one micro-batch: \S+\n.*in one micro-batch per row: \S+\n$", ran.stdout)


def test_a_function_that_returns_zeros_is_not_said_to_hold_anything_about_its_gradient() -> None:
    _, rulings = asked("step", "nothing_at_all")
    found = {ruling.law.name: ruling.ruling for ruling in rulings}
    assert found["masked"] == found["splits"] == found["padding"] == "does not apply"
    assert found["weight"] == "broken"  # the sign of a gradient that is 0


def test_another_seed_draws_other_batches_and_the_same_seed_the_same() -> None:
    subject = subject_of({"step": "tests.check.planted:mean_of_each_micro_batch"})
    texts = [
        [each.why for ruling in check(subject, cases=3, seed=seed) for each in ruling.broken] for seed in (0, 0, 1)
    ]
    assert texts[0] == texts[1]
    assert texts[0]
    assert texts[2]
