"""What compares the runs of a documented command (`make plugin-commands`) refuses each comparison that shows nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.plugins.commands.figures import Run, judge, keep_gradients, kept_gradients
from tests.plugins.commands.process import numbers

FIRST, SECOND = torch.tensor([2.0, -4.0, 1.0]), torch.tensor([1.0, 3.0, 0.5])
THEIRS = Run([FIRST, SECOND])
OURS = Run([FIRST, SECOND + 1.5e-6 * torch.tensor([0.0, 0.0, 1.0])], kept=[0.9, 0.8])
OFF = Run([FIRST + torch.tensor([0.0, 0.0, 0.4]), -SECOND])
RUNS = {"theirs": THEIRS, "ours": OURS, "off": OFF, "documented": Run([-FIRST, FIRST], kept=[0.5, 0.5])}


def test_the_difference_is_in_parts_of_the_largest_gradient_of_its_step(capsys: pytest.CaptureFixture[str]):
    """1.5e-6 of a step whose largest is 3 is 5e-7; a control of 0.4 of a step whose largest is 4 is 0.1."""
    assert judge("made", RUNS) == 0
    assert "difference 0.0e+00 and 5.0e-07, control 1.0e-01" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "run", "words"),
    [
        ("ours", replace(OURS, gradients=[FIRST, SECOND + 1e-5]), "difference is above"),
        ("ours", replace(OURS, gradients=[FIRST, SECOND * torch.nan]), "not finite"),
        ("ours", replace(OURS, gradients=[FIRST]), "ours took 1 steps, not 2"),
        ("ours", replace(OURS, kept=[1.0, 0.8]), "gates have to reject some"),
        ("ours", replace(OURS, kept=[]), "gates have to reject some"),
        ("theirs", replace(THEIRS, gradients=[FIRST * 0, SECOND]), "gradient of nothing"),
        ("theirs", replace(THEIRS, gradients=[FIRST, FIRST]), "one gradient in both steps"),
        ("off", replace(OFF, gradients=[FIRST + 1e-3, SECOND]), "control is not far larger"),
        ("documented", replace(OURS, gradients=[FIRST, SECOND * 2]), "documented is like theirs"),
    ],
)
def test_what_shows_nothing_is_a_failure(name: str, run: Run, words: str, capsys: pytest.CaptureFixture[str]):
    assert judge("made", RUNS | {name: run}) == 1
    assert words in capsys.readouterr().out


@pytest.mark.parametrize("rate", [1e-9, 10.0])
def test_a_gradient_is_kept_as_the_optimiser_gets_it_whatever_its_rate(rate: float, tmp_path: Path):
    """d/dw of (3w)²/2 is 9w; the weight without a gradient counts as 0."""
    weight, unused = torch.nn.Parameter(torch.tensor([1.0, -2.0])), torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight, unused], lr=rate)
    keeping = keep_gradients(tmp_path)
    (3 * weight).square().sum().div(2).backward()
    optimizer.step()
    keeping.remove()
    optimizer.step()
    assert [each.tolist() for each in kept_gradients(tmp_path)] == [[9.0, -18.0, 0.0]]


def test_a_number_is_read_behind_its_name():
    said = "│ ppo/trimtab/kept_fraction │ 8.1250e-01 │ other │ 2 │\n{'x/trimtab/kept_fraction': 0.75, 'y': 1}"
    assert numbers(said, "trimtab/kept_fraction") == [0.8125, 0.75]
