"""A plan reads what a plug-in's user writes: a name, a mapping, a file; what is left out is nobody's business but the framework's."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trimtab.config.advantages import Grpo
from trimtab.config.losses import Clip, EntropyBonus, KlPenalty, Reduction
from trimtab.config.plan import Plan
from trimtab.config.presets import preset
from trimtab.errors import ConfigError, ConfigWarning, UnknownNameError


def test_a_presets_name_a_mapping_and_a_correction_are_the_same_plan():
    plan = Plan(correction=preset("token-tis", upper=3.0))
    assert Plan.of({"correction": {"preset": "token-tis", "upper": 3}}) == plan
    assert Plan.of({"preset": "token-tis", "upper": 3.0}) == plan
    assert Plan.of(preset("token-tis", upper=3.0)) == plan
    assert Plan.of("geo-rs+token-tis").correction == preset("geo-rs+token-tis")
    assert Plan.of(plan) is plan


def test_nothing_is_an_empty_plan_and_off_is_not():
    assert Plan.of(None) == Plan() == Plan.of({})
    assert Plan().asked == ()
    for off in (False, "off", {"correction": False}):
        assert Plan.of(off).correction == preset("off")


def test_a_file_says_the_keys_of_a_training_file(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(
        "correction: seq-tis\nloss: clip\nreduction: token-mean\nkl: 0.1\nentropy_bonus: 1e-3\nadvantage: grpo\nmetrics: all\n"
    )
    plan = Plan.of(str(path))
    assert (
        plan
        == Plan.of(path)
        == Plan(
            correction=preset("seq-tis"),
            loss=Clip(),
            reduction=Reduction(mode="token-mean"),
            kl=KlPenalty(coefficient=0.1),
            entropy_bonus=EntropyBonus(coefficient=1e-3),
            advantage=Grpo(),
            metrics="all",
        )
    )
    assert plan.asked == ("correction", "loss", "reduction", "kl", "entropy_bonus", "advantage")
    assert Plan.of(plan.settings()) == plan


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ({"corection": "seq-tis"}, "Plan has no field 'corection'. Did you mean 'correction'"),
        ("geo-rs+token-tiss", "There is no preset 'geo-rs\\+token-tiss'. Did you mean"),
        ({"loss": {"low": 0.1}}, "loss"),
        ({"metrics": "none"}, "Plan needs metrics to be"),
        (3, "A plan needs settings, a preset's name or the path of a YAML file, got 3"),
    ],
)
def test_what_is_no_plan_is_one_sentence(source, words):
    with pytest.raises(ConfigError, match=words):
        Plan.of(source)


def test_a_problem_in_a_file_names_the_file(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text("los: clip\n")
    with pytest.raises(UnknownNameError, match=r"plan\.yaml: Plan has no field 'los'\. Did you mean 'loss'"):
        Plan.of(path)


def test_a_loss_that_counts_the_ratio_twice_is_doubted_as_in_a_training_file():
    with pytest.warns(ConfigWarning, match="counts the ratio twice"):
        Plan.of({"correction": "bypass-token-tis", "loss": "clip"})


def test_a_plan_needs_no_torch():
    code = "import sys, trimtab.config.plan as p; p.Plan.of('geo-rs'); print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
