"""A default that can be asked for in several places is the same in all of them."""

from __future__ import annotations

import inspect

import trimtab
from trimtab.cli.train import config_from
from trimtab.config.advantages import BASELINE, ESTIMATORS
from trimtab.config.losses import REDUCTIONS
from trimtab.config.training import Train
from trimtab.lab.candidate import parse_candidates
from trimtab.lab.cell import cells
from trimtab.lab.scenario import base_settings, scenario, scenario_names


def test_all_rows_vote_in_the_library_in_a_run_and_in_the_lab():
    assert BASELINE == "all"  # the lab's tables were made with it
    assert {each.model_fields["baseline"].default for each in ESTIMATORS.values()} == {BASELINE}
    assert inspect.signature(trimtab.shaped).parameters["baseline"].default == BASELINE
    assert Train().advantage == config_from([]).advantage == trimtab.Grpo()
    assert config_from(["advantage=rloo"]).advantage == trimtab.Rloo()
    for name in scenario_names():
        (cell,) = cells([scenario(name)], parse_candidates(["off"]), [0], base_settings(), 10)
        assert cell.config.advantage == trimtab.Grpo(), name


def test_a_run_that_says_nothing_is_the_library_s_own_choice():
    run = Train()
    assert run.loss == trimtab.Clip()
    assert run.reduction == REDUCTIONS[trimtab.Clip().own_reduction]
    assert run.shaping == trimtab.Shaping()
