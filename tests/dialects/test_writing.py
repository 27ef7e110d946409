"""Ours written as theirs: what reads back is what was written."""

from __future__ import annotations

import copy
import math
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import trimtab
from tests.dialects.examples.verl import PRESETS as VERL
from tests.dialects.recorded import cases
from trimtab.dialects import DIALECTS, read, write
from trimtab.dialects.equivalence import canonical, is_same
from trimtab.dialects.sources.settings import flat_settings
from trimtab.errors import ConfigError, ConfigWarning

pytestmark = pytest.mark.filterwarnings("ignore::trimtab.errors.ConfigWarning")


def jittered(value: Any, factor: float) -> Any:
    """The same settings with every number moved a little; text stays."""
    if isinstance(value, float):
        return value * factor
    if isinstance(value, dict):
        return {key: jittered(inner, factor) for key, inner in value.items()}
    return [jittered(inner, factor) for inner in value] if isinstance(value, list) else value


@st.composite
def spoken(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """Settings near recorded ones, of any framework."""
    case = draw(st.sampled_from(cases("correction")))
    return case.framework, jittered(copy.deepcopy(case.config), draw(st.floats(0.9, 1.1)))


@given(spoken())
@settings(max_examples=60, deadline=None)
def test_reading_what_was_written_from_a_reading_gives_the_same(case: tuple[str, dict[str, Any]]) -> None:
    framework, config = case
    try:
        first = read(framework, config)
    except ConfigError:
        return  # a bound moved across 1
    assert first.correction is not None
    again = read(framework, write(framework, first).settings)
    assert again.correction is not None
    assert is_same(first.correction, again.correction)
    assert write(framework, again).settings == write(framework, first).settings


@given(spoken(), st.sampled_from(sorted(DIALECTS)), st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_what_another_framework_can_say_gives_the_same_weights(
    case: tuple[str, dict[str, Any]], target: str, seed: int
) -> None:
    framework, config = case
    try:
        source = read(framework, config).correction
        assert source is not None
        other = read(target, write(target, source).settings).correction
    except ConfigError:
        return
    assert other is not None
    make = torch.Generator().manual_seed(seed)
    behavior, drift, more = (torch.randn(4, 6, generator=make, dtype=torch.float64) for _ in range(3))
    tensors = {
        "behavior": behavior - 3,
        "proximal": behavior - 3 + 0.3 * drift,
        "current": behavior - 3 + 0.3 * drift + 0.1 * more,
        "advantages": torch.randn(4, generator=make, dtype=torch.float64),
        "mask": torch.rand(4, 6, generator=make) > 0.2,
    }
    ours, theirs = (trimtab.correct(rule, **tensors).weight for rule in (source, other))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("source", "config", "target", "words"),
    [
        (
            "areal",
            {"level": "sequence", "metric": "kl_k2", "upper": 1.0},
            "skyrl",
            "a gate on k2 (mean(ℓ²/2)) of each sequence",
        ),
        (
            "verl",
            {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": 1.1},
            "areal",
            "unless what passes is weighted by its geometric ratio",
        ),
        (
            "verl",
            {"rollout_rs": "seq_max_k3", "rollout_rs_threshold": 1.0},
            "trl",
            "k3 forward (max(r − 1 − ℓ)) of each sequence",
        ),
        ("verl", {"rollout_is": "token", "rollout_is_batch_normalize": True}, "areal", "normalised"),
        ("areal", {"level": "sequence", "agg": "mean", "upper": 1.1}, "verl", "a weight at level geometric"),
        ("slime", {"use_opsm": True}, "verl", "negative advantage"),
    ],
)
def test_a_refusal_names_what_is_lost(source: str, config: dict[str, Any], target: str, words: str) -> None:
    rule = read(source, config).correction
    assert rule is not None
    with pytest.raises(ConfigError, match="does not support") as raised:
        write(target, rule)
    assert words in str(raised.value)


def test_bounds_of_a_ratio_turn_over_on_their_way_into_verl() -> None:
    # AReaL keeps r in [0.5, 4]; verl's k1 is -log r, so its band is [1/4, 2]
    rule = read("areal", {"level": "token", "metric": "kl_k2", "upper": 1.0}).correction
    assert rule is not None
    assert write("verl", rule.but(weight=None)).settings["algorithm"]["rollout_correction"]["rollout_rs"] == "token_k2"
    gate = trimtab.Correction(gates=(trimtab.Gate(metric="ratio", lower=0.5, upper=4.0),))
    written = write("verl", gate).settings["algorithm"]["rollout_correction"]
    assert written == {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.25_2"}


def test_every_preset_of_ours_is_plain_once() -> None:
    from trimtab.config.presets import preset, preset_names

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)
        for name in preset_names():
            rule = preset(name)
            assert canonical(canonical(rule)) == canonical(rule), name
            assert is_same(rule, rule)


@pytest.mark.parametrize("name", VERL)
def test_every_preset_of_verl_reads_and_writes(name: str) -> None:
    rule = read("verl", VERL[name]).correction
    assert rule is not None
    assert is_same(rule, read("verl", write("verl", rule).settings).correction or rule.but(policies="bypass"))


@pytest.mark.parametrize(
    ("framework", "key"), [("skyrl", "cispo_eps_clip_low"), ("verl", "clip_ratio_low"), ("slime", "eps_clip")]
)
def test_a_bound_that_is_zero_is_written_without_a_sign(framework: str, key: str) -> None:
    # 1 − lower, solved for: (1 − 1) / −1 is −0.0, which a YAML file would print
    written = flat_settings(write(framework, trimtab.preset("off"), loss=trimtab.Cispo(lower=1.0, upper=5.0)).settings)
    (zero,) = [value for name, value in written.items() if name.endswith(key)]
    assert (zero, math.copysign(1.0, zero)) == (0.0, 1.0)
