"""What is legal and probably not meant warns once, at the line of the user who wrote it."""

import subprocess
import sys
import warnings

import pytest

from trimtab import Correction, Gate, Gspo, Luspo, Weight, preset
from trimtab.config.presets import preset_names
from trimtab.errors import ConfigWarning

DOUBTFUL = {
    "corrects nothing": lambda: Correction(),
    "Gate on ratio with lower 1e-12 cannot fire: limit holds log_r within ±20": lambda: Gate(
        metric="ratio", lower=1e-12, limit={"bound": 20.0}
    ),
    "Gate on tv with upper 1 cannot fire: it is never above 1": lambda: Gate(metric="tv", upper=1.0),
    "Gate on k2 with lower 0 cannot fire: it is never below 0": lambda: Gate(metric="k2", lower=0.0, upper=1.0),
    "Gate on k3 with [open, -1] rejects on-policy data: it sits at 0": lambda: Gate(metric="k3", upper=-1.0),
    "Gate on prob_diff with [0.5, open] rejects on-policy data": lambda: Gate(metric="prob_diff", lower=0.5),
    "hardly ever fires: a mean over many tokens stays close to 1": lambda: Gate(
        metric="ratio", level="sequence", upper=2.0
    ),
    "Weight with lower 0 has no effect": lambda: Weight(level="token", lower=0.0),
    "Gspo with low 0.2 and high 0.28 hardly ever clips": lambda: Gspo(low=0.2, high=0.28),
    "Luspo with low 0.01 and high 0.2 hardly ever clips": lambda: Luspo(low=0.01, high=0.2),
}


@pytest.mark.parametrize(("message", "build"), DOUBTFUL.items())
def test_a_setting_that_is_probably_not_meant_warns(message, build):
    with pytest.warns(ConfigWarning) as doubts:
        build()
    assert len(doubts) == 1
    assert message in str(doubts[0].message)


LINES = """
from trimtab import Correction, Gate, preset
Gate(metric="ratio", level="sequence", upper=2.0)
Correction.from_settings({"gates": [{"metric": "ratio", "level": "sequence", "upper": 2.0}]})
preset("geo-rs", lower=None, upper=2.0)
"""


def test_the_warning_points_at_the_line_that_asked(tmp_path):
    """In a process of its own: the run-time type checker of the tests puts frames in between."""
    script = tmp_path / "script.py"
    script.write_text(LINES)
    ran = subprocess.run([sys.executable, "-W", "always", script], capture_output=True, text=True, check=True)
    places = [line.split(": ")[0] for line in ran.stderr.splitlines() if "ConfigWarning" in line]
    assert places == [f"{script}:{line}" for line in (3, 4, 5)]


@pytest.mark.parametrize("name", preset_names())
def test_no_preset_warns_about_its_own_defaults(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        preset(name)


@pytest.mark.parametrize("bounds", [{}, {"low": 3e-3, "high": 4e-3}, {"low": 3e-4, "high": 0.2}])
def test_a_clip_that_fits_the_mean_ratio_of_a_sequence_does_not_warn(bounds):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Gspo(**bounds)
        Luspo(**bounds)


def test_off_says_that_nothing_is_corrected_and_does_not_warn():
    assert preset("off") == Correction(weight=Weight(level="one"))
