"""On-policy distillation: what a teacher's log-probs are worth to each token, beside rewards or in their place."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import trimtab
from trimtab import Distillation, Grpo, Normalise, ReinforcePlusPlus, Shaping, advantages
from trimtab.errors import ConfigError, InputError

NAN, INF = float("nan"), float("inf")
MASK = torch.tensor([[True, True, True], [True, True, False]])
STUDENT = torch.tensor([[-1.0, -2.0, -0.5], [-3.0, -1.5, NAN]])
TEACHER = torch.tensor([[-0.5, -2.0, -2.5], [-1.0, -1.0, INF]])
GAP = torch.tensor([[0.5, 0.0, -2.0], [2.0, 0.5, 0.0]])  # teacher − student; the masked slot holds nothing


def test_a_token_is_worth_the_teachers_log_ratio() -> None:
    found = advantages(Distillation(), mask=MASK, teacher=TEACHER, proximal=STUDENT)
    assert torch.equal(found.advantages, GAP)
    assert torch.equal(found.trained, MASK)
    assert found.rows is None
    half = advantages(Distillation(coefficient=0.5, limit=1.0), mask=MASK, teacher=TEACHER, proximal=STUDENT)
    assert half.advantages.tolist() == [[0.25, 0.0, -0.5], [0.5, 0.25, 0.0]]  # ±2 held at ±1, then halved


def test_the_student_is_the_policy_it_names() -> None:
    for name in ("proximal", "behavior", "current"):
        found = advantages(Distillation(student=name), mask=MASK, teacher=TEACHER, **{name: STUDENT})  # pyright: ignore[reportArgumentType]
        assert torch.equal(found.advantages, GAP), name
    with pytest.raises(InputError, match="Distillation needs no behavior, got a tensor"):
        advantages(Distillation(), mask=MASK, teacher=TEACHER, proximal=STUDENT, behavior=STUDENT)


def test_rewards_come_on_top_of_the_teacher() -> None:
    rewards, group = torch.tensor([3.0, 1.0]), torch.zeros(2, dtype=torch.int64)
    given = {"mask": MASK, "teacher": TEACHER, "proximal": STUDENT, "rewards": rewards, "group": group}
    found = advantages(Distillation(coefficient=0.1, base=Grpo(std=False)), **given)
    # the mean reward is 2: +1 on the first row, −1 on the second
    expected = torch.tensor([[1.05, 1.0, 0.8], [-0.8, -0.95, 0.0]])
    torch.testing.assert_close(found.advantages, expected)
    assert found.metrics["reward_mean"] == 2.0


def test_what_is_normalised_is_the_base_or_the_sum() -> None:
    rewards, group = torch.tensor([3.0, 1.0]), torch.zeros(2, dtype=torch.int64)
    given = {"mask": MASK, "teacher": TEACHER, "proximal": STUDENT, "rewards": rewards, "group": group}
    centre = Normalise(std=None)
    plain = advantages(Distillation(base=Grpo(std=False)), **given).advantages
    both = advantages(Distillation(base=Grpo(std=False), normalise=centre), **given).advantages
    torch.testing.assert_close(both, torch.where(MASK, plain - plain[MASK].mean(), 0.0))
    base = advantages(Distillation(base=Grpo(std=False, normalise=centre)), **given).advantages
    shares = torch.where(MASK, torch.tensor([[1.0], [-1.0]]), 0.0)  # three tokens of 1, two of −1: mean 0.2
    torch.testing.assert_close(base, torch.where(MASK, shares - 0.2 + GAP, 0.0))
    assert not torch.equal(both, base)


def test_a_token_without_a_teachers_log_prob_was_never_trained_and_is_counted() -> None:
    for harm in (NAN, INF, -INF):
        teacher = TEACHER.clone()
        teacher[0, 1] = harm
        found = advantages(Distillation(), mask=MASK, teacher=teacher, proximal=STUDENT)
        assert found.trained.tolist() == [[True, False, True], [True, True, False]]
        assert found.advantages.tolist() == [[0.5, 0.0, -2.0], [2.0, 0.5, 0.0]]
        assert found.metrics["unknown_fraction"] == pytest.approx(1 / 5)
        assert found.metrics["failed_rows"] == 0  # the row's other tokens are trained
        # log student − log teacher of the four that are left: −0.5 + 2 − 2 − 0.5 = −1
        assert found.metrics["teacher_k1"] == pytest.approx(-1 / 4)
    student = STUDENT.clone()
    student[1, 0] = NAN
    lost = advantages(Distillation(), mask=MASK, teacher=TEACHER, proximal=student)
    assert lost.trained.tolist() == [[True, True, True], [False, True, False]]


def test_a_row_that_failed_or_was_dropped_still_counts_among_the_tokens_that_may_be_unknown() -> None:
    # four tokens of the mask, one without a teacher; the second row leaves, with and without a token that lacks one
    given = {"mask": torch.ones(2, 2), "proximal": -torch.ones(2, 2), "group": torch.zeros(2, dtype=torch.int64)}
    rule = Distillation(base=Grpo())
    for lost in (0, 1):
        teacher = -torch.ones(2, 2)
        teacher[lost, 1] = NAN
        failed = advantages(rule, teacher=teacher, rewards=torch.tensor([1.0, NAN]), **given)
        ended = torch.tensor([True, False])
        dropped = advantages(
            rule, teacher=teacher, rewards=torch.ones(2), ended=ended, shaping=Shaping(no_eos="drop"), **given
        )
        for found in (failed, dropped):
            assert found.trained[:, 0].tolist() == [True, False]
            assert found.metrics["unknown_fraction"] == 1 / 4


def test_a_missing_token_leaves_every_statistic() -> None:
    """As if the mask had not held it: in a mean over tokens, and in lengths."""
    teacher = TEACHER.clone()
    teacher[0, 1] = NAN
    norm = Distillation(normalise=Normalise(std=None))
    found = advantages(norm, mask=MASK, teacher=teacher, proximal=STUDENT)
    without = MASK.clone()
    without[0, 1] = False
    same = advantages(norm, mask=without, teacher=TEACHER, proximal=STUDENT)
    assert torch.equal(found.advantages, same.advantages)
    assert found.advantages[0, 0] == pytest.approx(0.5 - 1.0 / 4)


def test_the_metrics_say_how_far_the_student_is_from_its_teacher() -> None:
    found = advantages(Distillation(), mask=MASK, teacher=TEACHER, proximal=STUDENT).metrics
    gaps = [0.5, 0.0, -2.0, 2.0, 0.5]
    assert found["teacher_k1"] == pytest.approx(-sum(gaps) / 5)
    assert found["teacher_k3"] == pytest.approx(sum(math.exp(g) - 1 - g for g in gaps) / 5)
    assert found["unknown_fraction"] == 0
    assert "reward_mean" not in found  # nobody was rewarded
    assert "zero_variance_groups" not in found


def test_bfloat16_is_widened_before_the_subtraction_and_float64_stays() -> None:
    teacher, student = torch.tensor([[-20.0]]), torch.tensor([[-20.125]])
    mask = torch.ones(1, 1, dtype=torch.bool)
    narrow = advantages(Distillation(), mask=mask, teacher=teacher.bfloat16(), proximal=student.float())
    assert narrow.advantages.tolist() == [[0.125]]
    wide = advantages(Distillation(), mask=mask, teacher=teacher.double(), proximal=student)
    assert wide.advantages.dtype == torch.float64


def test_a_truncated_row_can_be_dropped_without_rewards() -> None:
    ended = torch.tensor([True, False])
    given = {"mask": MASK, "teacher": TEACHER, "proximal": STUDENT, "ended": ended}
    found = advantages(Distillation(), shaping=Shaping(no_eos="drop"), **given)
    assert found.advantages.tolist() == [[0.5, 0.0, -2.0], [0.0, 0.0, 0.0]]


@pytest.mark.parametrize(
    ("estimator", "given", "sentence"),
    [
        (Distillation(), {}, "Distillation needs teacher, got None"),
        (Distillation(), {"teacher": TEACHER}, "Distillation needs proximal, got None"),
        (Distillation(student="current"), {"teacher": TEACHER}, "Distillation needs current, got None"),
        (
            Distillation(),
            {"teacher": TEACHER, "proximal": STUDENT, "rewards": torch.zeros(2)},
            "Distillation needs no rewards, got a tensor",
        ),
        (Distillation(base=Grpo()), {"teacher": TEACHER, "proximal": STUDENT}, "Distillation needs rewards, got None"),
        (
            Distillation(base=Grpo()),
            {"teacher": TEACHER, "proximal": STUDENT, "rewards": torch.zeros(2)},
            "Distillation needs group, got None",
        ),
        (
            Distillation(),
            {"teacher": TEACHER[:1], "proximal": STUDENT},
            r"teacher needs the shape of mask \(2, 3\), got \(1, 3\)",
        ),
        (Grpo(), {"rewards": torch.zeros(2), "teacher": TEACHER}, "Grpo needs no teacher, got a tensor"),
        (Grpo(), {"group": torch.zeros(2, dtype=torch.int64)}, "Grpo needs rewards, got None"),
    ],
)
def test_what_is_missing_or_unread_is_named(estimator: Any, given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        advantages(estimator, mask=MASK, **given)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Distillation(coefficient=-1.0), "needs coefficient"),
        (lambda: Distillation(limit=0.0), "needs limit"),
        (lambda: Distillation(normalise=Normalise(unit="sequence")), "Distillation needs normalise.unit token"),
        (lambda: Distillation(base=Grpo(baseline="kept")), "got baseline kept on its base"),
        (lambda: Distillation(student="current", normalise=Normalise()), "student current needs normalise null"),
        (lambda: Distillation.from_settings({"base": {"kind": "distillation"}}), "base"),
    ],
)
def test_impossible_settings_do_not_construct(make: Any, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make()


# Laws


@st.composite
def log_probs(draw: st.DrawFn) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, width = draw(st.integers(1, 4)), draw(st.integers(1, 6))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**20)))
    teacher, student = (-torch.rand(rows, width, generator=generator) * 8 for _ in range(2))
    return torch.rand(rows, width, generator=generator) < 0.7, teacher, student


@settings(max_examples=40)
@given(log_probs(), st.sampled_from([None, 0.5]), st.sampled_from([None, Normalise()]))
def test_a_teacher_that_is_the_student_gives_exactly_zero(it: Any, limit: float | None, norm: Any) -> None:
    mask, teacher, _ = it
    found = advantages(Distillation(limit=limit, normalise=norm), mask=mask, teacher=teacher, proximal=teacher.clone())
    assert not found.advantages.any()
    assert found.metrics["teacher_k1"] == found.metrics["teacher_k3"] == 0


@settings(max_examples=40)
@given(log_probs(), st.sampled_from([NAN, INF, -INF, 1e30]))
def test_nothing_under_a_false_mask_reaches_anything(it: Any, harm: float) -> None:
    mask, teacher, student = it
    rule = Distillation(normalise=Normalise())
    clean = advantages(rule, mask=mask, teacher=teacher, proximal=student)
    spoilt = [torch.where(mask, each, harm) for each in (teacher, student)]
    other = advantages(rule, mask=mask, teacher=spoilt[0], proximal=spoilt[1])
    assert torch.equal(clean.advantages, other.advantages)
    for name, value in clean.metrics.items():
        assert torch.equal(value, other.metrics[name]), name


@settings(max_examples=40)
@given(log_probs())
def test_packed_equals_padded(it: Any) -> None:
    mask, teacher, student = it
    rows, width = mask.shape
    rule = Distillation(coefficient=0.3, normalise=Normalise())
    padded = advantages(rule, mask=mask, teacher=teacher, proximal=student)
    flat = [each.flatten() for each in (mask, teacher, student)]
    bounds = torch.arange(rows + 1) * width
    packed = advantages(rule, mask=flat[0], teacher=flat[1], proximal=flat[2], cu_seqlens=bounds)
    torch.testing.assert_close(padded.advantages.flatten(), packed.advantages)


@settings(max_examples=40)
@given(log_probs())
def test_the_gradient_under_a_weight_is_that_of_the_kl_estimate(it: Any) -> None:
    """Outside its own symmetry: Σ sg(r)·(log student − log teacher)·∇log student, on samples of another policy."""
    mask, teacher, student = (each.double() if each.is_floating_point() else each for each in it)
    behavior = student - 0.3
    current = student.clone().requires_grad_(True)
    worth = advantages(Distillation(student="current"), mask=mask, teacher=teacher, current=current)
    if not bool(mask.any()):
        return
    found = trimtab.policy_loss(
        trimtab.ImportancePg(),
        current=current,
        behavior=behavior,
        advantages=worth.advantages,
        mask=mask & worth.trained,
        correction=trimtab.Correction(policies="bypass", weight=trimtab.Weight(level="one")),
        reduction="token-sum",
    )
    found.loss.backward()
    by_hand = torch.where(mask, math.exp(0.3) * (student - teacher), 0.0)
    torch.testing.assert_close(current.grad, by_hand)


def test_with_a_base_of_returns_a_critic_still_gets_its_returns() -> None:
    found = advantages(
        Distillation(base=ReinforcePlusPlus(normalise=None)),
        mask=MASK,
        rewards=torch.tensor([1.0, 2.0]),
        teacher=TEACHER,
        proximal=STUDENT,
    )
    assert found.returns is not None
    assert found.returns.tolist() == [[1.0, 1.0, 1.0], [2.0, 2.0, 0.0]]
    assert torch.equal(found.advantages, torch.where(MASK, found.returns + GAP, 0.0))


def test_a_file_may_name_the_base_by_its_kind() -> None:
    found = Distillation.from_settings({"base": "grpo", "coefficient": 0.1})
    assert found == Distillation(coefficient=0.1, base=Grpo())
    assert Distillation.from_settings(found.settings()) == found
