"""Losses, reductions and advantages written in a framework's keys: the reader turned round."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.examples import EXAMPLES
from tests.dialects.recorded import Case, cases
from tests.dialects.test_writing import jittered
from trimtab import Clip, Correction, Gae, Gate, Gdpo, Grpo, Gspo, Reduction, Rloo
from trimtab.config import losses
from trimtab.config.losses import EntropyBonus, KlPenalty
from trimtab.dialects import DIALECTS, Reading, read, write
from trimtab.dialects.equivalence import is_same
from trimtab.dialects.fields import PARTS, differences, fields_of, goal_fields, is_soft
from trimtab.errors import ConfigError

pytestmark = pytest.mark.filterwarnings("ignore::trimtab.errors.ConfigWarning")

FAMILIES = ("loss", "advantage", "normalise", "correction")
RECORDED = {
    f"{case.framework} {json.dumps(case.config, sort_keys=True)}": case for family in FAMILIES for case in cases(family)
}
"""Each recorded setting once, whatever batch it was recorded on."""
REFUSALS: dict[str, tuple[str, ...]] = {}
"""Why a framework's own settings cannot be written back: reason → recorded ids. None of the recorded ones is refused."""


GONE = {
    "rollout_is_mode: mask (removed)": "every r",
    "ratio_type: token (removed)": "it has no reinforce",
    "policy_loss_fn: ppo": "it has no gae",
}
"""Options that were removed with all that could say them, or that are read and not written → what the keys written miss."""


def width_of(case: Case) -> int:
    return case.inputs["mask"].shape[-1] if "mask" in case.inputs else 8


def is_back(first: Reading, again: Reading) -> bool:
    """Whether everything that the first reading speaks of stands in the second, to the last digit."""
    if first.correction is not None and (again.correction is None or not is_same(first.correction, again.correction)):
        return False
    parts = goal_fields(first)
    return all(not differences(goal, fields_of(again)) for goal in parts.values()) and all(
        getattr(first, name) == getattr(again, name)
        for part in parts
        for name in PARTS[part]
        if name not in ("shaping", "advantage_norm") and getattr(first, name) is not None
    )


def test_every_recorded_setting_reads_writes_and_reads_the_same() -> None:
    refused: dict[str, str] = {}
    count = 0
    for case in RECORDED.values():
        first = read(case.framework, case.config, width=width_of(case))
        if not goal_fields(first):
            continue  # a correction alone: tests/dialects/test_writing.py
        count += 1
        try:
            found = write(case.framework, first)
        except ConfigError as error:
            refused[case.id] = str(error)
            continue
        again = read(case.framework, found.settings)
        assert is_back(first, again), (case.id, found.settings)
    expected = {each for ids in REFUSALS.values() for each in ids}
    assert set(refused) == expected, refused
    assert count > 180


@pytest.mark.parametrize("name", DIALECTS)
def test_every_option_of_a_framework_writes_back(name: str) -> None:
    examples = EXAMPLES[name]
    for option, setting in {**examples.corrections, **examples.objectives}.items():
        first = read(name, setting)
        if not goal_fields(first) and first.correction is None:
            assert first.defects, option  # nothing was read, and that is said
            continue
        if option in GONE:
            with pytest.raises(ConfigError, match=GONE[option]):
                write(name, first)
            continue
        again = read(name, write(name, first).settings)
        removed = "removed" in option  # it held log-ratios elsewhere
        assert is_back(replace(first, correction=None) if removed else first, again), option


def test_the_writer_of_a_part_finds_numbers_that_were_never_recorded() -> None:
    @given(st.sampled_from([*cases("loss"), *cases("advantage")]), st.floats(0.85, 1.15))
    @settings(max_examples=25, deadline=None)
    def law(case: Case, factor: float) -> None:
        try:
            first = read(case.framework, jittered(copy.deepcopy(case.config), factor), width=8)
        except ConfigError:
            return  # a bound moved across 1
        again = read(case.framework, write(case.framework, first).settings)
        for goal in goal_fields(first).values():
            assert not differences(goal, fields_of(again))

    law()


@given(st.sampled_from([*cases("loss"), *cases("advantage")]), st.sampled_from(sorted(DIALECTS)))
@settings(max_examples=30, deadline=None)
def test_what_another_framework_can_say_differs_in_nothing_that_is_not_remarked(case: Case, target: str) -> None:
    source = read(case.framework, case.config, width=8)
    try:
        found = write(target, source)
    except ConfigError:
        return
    again = read(target, found.settings)
    for goal in goal_fields(source).values():
        assert all(is_soft(path) for path in differences(goal, fields_of(again)))


CLIP = Clip(low=0.2, high=0.28)
ROWS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    (
        "trl",
        {"loss": CLIP, "reduction": Reduction(mode="token-mean")},
        {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "importance_sampling_level": "token"},
    ),
    (
        # dual clip cannot be switched off in verl: a bound no ratio reaches stands for none
        "verl",
        {"loss": CLIP, "reduction": Reduction(mode="seq-mean-token-mean")},
        {
            "actor_rollout_ref": {
                "actor": {
                    "policy_loss": {"loss_mode": "vanilla"},
                    "clip_ratio_low": 0.2,
                    "clip_ratio_high": 0.28,
                    "clip_ratio_c": 1e12,
                    "loss_agg_mode": "seq-mean-token-mean",
                }
            }
        },
    ),
    (
        "openrlhf",
        {"loss": CLIP},
        {
            "actor": {
                "policy_loss_type": "ppo",
                "eps_clip": 0.2,
                "eps_clip_low_high": [0.2, 0.28],
            }
        },
    ),
    (
        # verl and SkyRL bound ρ by 1 + ε: 1.28 is 0.28 there, and a lower side of 1 − 1 is open
        "skyrl",
        {"loss": losses.Cispo(upper=1.28)},
        {
            "trainer": {
                "algorithm": {
                    "policy_loss_type": "cispo",
                    "cispo": {"cispo_eps_clip_low": 1.0, "cispo_eps_clip_high": 0.28},
                    "use_kl_loss": False,
                }
            }
        },
    ),
    (
        "nemo-rl",
        {"loss": CLIP, "kl": KlPenalty(coefficient=0.01, gradient="unbiased")},
        {
            "loss_fn": {
                "ratio_clip_min": 0.2,
                "ratio_clip_max": 0.28,
                "reference_policy_kl_penalty": 0.01,
                "kl_input_clamp_value": None,
                "kl_output_clamp_value": None,
            }
        },
    ),
    ("verl", {"advantage": Rloo(baseline="all")}, {"algorithm": {"adv_estimator": "rloo_vectorized"}}),
    (
        "nemo-rl",
        {"advantage": Rloo(baseline="all")},
        {"grpo": {"adv_estimator": {"name": "grpo", "normalize_rewards": False}}},
    ),
    ("ms-swift", {"advantage": Grpo(std=False)}, {"advantage_estimator": "grpo", "scale_rewards": "none"}),
    ("roll", {"reduction": Reduction(mode="seq-mean-token-sum")}, {"loss_agg_mode": "seq-mean-token-sum"}),
    (
        # ROLL's dual clip is 1 + 2·pg_clip, which bounds the ratio too unless it has a range of its own: 3 = 1 + 2·1
        "roll",
        {"loss": Clip(low=0.2, high=0.2, dual=3.0)},
        {
            "pg_clip": 1.0,
            "use_pg_clip_range": True,
            "pg_clip_low": 0.2,
            "pg_clip_high": 0.2,
            "dual_clip_loss": True,
            "importance_sampling": "token",
            "ratio_type": "token",
            "rl_loss_coef": 1.0,
        },
    ),
    (
        "skyrl",
        {"loss": losses.ImportancePg(), "entropy": EntropyBonus(coefficient=0.02)},
        {
            "trainer": {
                "algorithm": {
                    "policy_loss_type": "importance_sampling",
                    "use_kl_loss": False,
                    "use_entropy_loss": True,
                    "entropy_loss_coef": 0.02,
                }
            }
        },
    ),
    (
        # a KL term is paid unless beta is 0
        "open-instruct",
        {"loss": CLIP, "reduction": Reduction(mode="token-sum", constant=100.0)},
        {"loss_fn": "dapo", "clip_lower": 0.2, "clip_higher": 0.28, "beta": 0.0, "loss_denominator": 100.0},
    ),
    (
        # OpenRLHF bounds rewards by ±10 unless it is told not to
        "openrlhf",
        {"advantage": Rloo()},
        {
            "algo": {"advantage": {"estimator": "rloo"}, "kl": {"init_coef": 0.0}},
            "reward": {"clip_range": [-1e12, 1e12]},
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("framework", "parts", "expected"), ROWS)
def test_a_part_is_written_under_the_keys_that_say_it(
    framework: str, parts: dict[str, Any], expected: dict[str, Any]
) -> None:
    assert write(framework, **parts).settings == expected


@pytest.mark.parametrize(
    ("framework", "parts", "words"),
    [
        ("trl", {"loss": CLIP.but(dual=3.0)}, "the loss: it has no key for the dual clip (3)"),
        ("openrlhf", {"loss": losses.Sapo()}, "the loss: it has no sapo, only clip, gspo"),
        (
            "ms-swift",
            {"loss": CLIP, "entropy": EntropyBonus(coefficient=0.01)},
            "it has no key for the entropy bonus (coefficient 0.01)",
        ),
        ("verl", {"advantage": Grpo(lower=-5.0)}, "the advantage: it has no key for the least advantage (-5)"),
        ("trl", {"advantage": Gdpo(weights=(1.0,), leave_one_out=True)}, "it has no key for leave-one-out (yes)"),
        (
            "areal",
            {"loss": CLIP, "reduction": Reduction(mode="seq-mean-token-mean")},
            "it has no key for the reduction: token-mean, was seq-mean-token-mean",
        ),
        (
            "areal",
            {"advantage": Gdpo(weights=(1.0,))},
            "the advantage: it has no gdpo, only reinforce++, grpo, rloo, gae",
        ),
        ("skyrl", {"loss": losses.DppoTv(gradient="ratio")}, "its ratio would be current/behavior"),
        ("verl", {}, "needs a correction, a loss, a reduction or an advantage"),
        (
            "openrlhf",
            {"advantage": Gae(lam=0.95, normalise=None)},
            "it has no key against the normalisation of advantages (mean batch",
        ),
    ],
)
def test_a_part_that_cannot_be_said_is_refused_by_field(framework: str, parts: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        write(framework, **parts)
    assert words in str(raised.value)


def test_a_budget_that_may_keep_none_is_refused_where_the_target_always_keeps_one() -> None:
    rule = Correction(gates=(Gate(metric="second_moment", level="batch", upper=0.04, strict=True),), denominator="kept")
    assert write("areal", rule).settings == {"actor": {"m2_threshold": 0.04, "use_decoupled_loss": True}}
    with pytest.raises(
        ConfigError,
        match=r"that may keep none .*--nearest writes m2_threshold 0.04, use_decoupled_loss True \(the same with strict true\)",
    ):
        write("areal", rule.but(gates=(rule.gates[0].but(strict=False),)))


def test_a_refusal_of_one_part_names_the_parts_that_can_be_said() -> None:
    weight = read("verl", {"rollout_is": "token", "rollout_is_threshold": 2.0}).correction
    assert weight is not None
    with pytest.raises(ConfigError) as raised:
        write("trl", weight, loss=losses.Gmpo(), advantage=Grpo(eps=1e-4, baseline="all"))
    assert "the loss: it has no gmpo" in str(raised.value)
    assert "(--only correction,advantage)" in str(raised.value)


def test_a_difference_that_leaves_the_formula_alone_is_a_finding_with_both_numbers() -> None:
    found = write("verl", advantage=Grpo(eps=1e-4, baseline="all", singleton="raw")).findings
    assert any("(eps: 0.0001 becomes 1e-06.)" in each.text for each in found)


def test_correction_and_loss_that_share_a_key_are_settled_together() -> None:
    # NeMo-RL's sequence ratios choose both the weight and GSPO: the product weight comes with GSPO or not at all
    rule = read(
        "nemo-rl", {"loss_fn": {"use_importance_sampling_correction": True, "sequence_level_importance_ratios": True}}
    )
    assert rule.correction is not None
    assert write("nemo-rl", rule.correction, loss=Gspo(low=0.2, high=0.2)).settings
    with pytest.raises(ConfigError, match="does not support"):
        write("nemo-rl", rule.correction, loss=CLIP)
    # verl's denominator follows its reduction
    geo = Correction(gates=read("verl", {"rollout_rs": "token_k3", "rollout_rs_threshold": 0.1}).correction.gates)  # type: ignore[union-attr]
    mean = Reduction(mode="seq-mean-token-mean")
    with pytest.raises(
        ConfigError, match="a loss divided by the tokens before rejection: verl divides by those after it"
    ):
        write("verl", geo, loss=CLIP, reduction=mean)
    (changed,) = write("verl", Reading("trimtab", geo, loss=CLIP, reduction=mean), strict=False).omissions
    assert (changed.part, changed.label) == ("correction", "changed")


@pytest.mark.parametrize("name", DIALECTS)
def test_the_first_argument_may_still_be_a_correction_alone(name: str) -> None:
    off = next(each for each in (read("verl", {"rollout_is": None}).correction,) if each is not None)
    if name not in ("prime-rl", "tinker"):  # the first's loss always gates, the second's compares with the sampler
        assert write(name, off).settings
