"""A temperature that neither side applies leaves no gap; a model sees it in the tokens."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))  # planted: a small model and how it samples

from planted.causes import _batch, _rows
from planted.model import make_world
from planted.sampling import Way

from trimtab.audit.causes.sampling import (
    GRID,
    MARGIN,
    DrawnTemperature,
    drawn_temperature,
    shared_power,
    temperature_fit,
)
from trimtab.audit.diagnose import Diagnosis, diagnose
from trimtab.audit.gap import gap_of
from trimtab.records.saved import Origin, SavedBatch


def drawn_at(temperature: float, reported: float):
    """Tokens drawn from known logits at one temperature, with log-probs for another; and those of the whole grid."""
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(4000, 20))

    def log_softmax(at: float) -> np.ndarray:
        scaled = logits / at
        return scaled - np.log(np.exp(scaled).sum(-1, keepdims=True))

    chosen = (np.exp(log_softmax(temperature)).cumsum(-1) < rng.random((4000, 1))).sum(-1).clip(max=19)

    def score(at: float) -> np.ndarray:
        return log_softmax(at)[np.arange(4000), chosen].astype(np.float32)

    batch = SavedBatch(
        origin=Origin(framework="columns", files=()),
        offsets=np.arange(0, 4001, 50),
        trained=np.ones(4000, bool),
        tokens=chosen.astype(np.int64),
        behavior=score(reported),
        proximal=score(reported),
    )
    return batch, np.stack([score(at) for at in GRID])


@pytest.mark.parametrize("temperature", [0.7, 1.2])
def test_the_temperature_of_the_tokens_is_found_where_both_sides_leave_it_out(temperature: float):
    batch, scores = drawn_at(temperature, reported=1.0)
    found = drawn_temperature(batch, scores)
    assert found is not None
    assert found.drawn == pytest.approx(temperature, rel=0.06)
    assert found.reported == 1.0
    assert found.is_apart
    assert next(step.verdict for step in diagnose(batch) if step.cause.name == "temperature") == "ruled out"
    step = next(step for step in diagnose(batch, drawn=found) if step.cause.name == "temperature")
    assert (step.verdict, step.share) == ("found", None)


@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_a_temperature_that_behavior_has_is_in_order(temperature: float):
    batch, scores = drawn_at(temperature, reported=temperature)
    found = drawn_temperature(batch, scores)
    assert found is not None
    assert found.reported == temperature
    assert not found.is_apart


def test_few_tokens_say_nothing():
    batch, scores = drawn_at(0.7, 1.0)
    short = SavedBatch(
        origin=batch.origin, offsets=np.array([0, 9]), trained=np.ones(9, bool), behavior=batch.behavior[:9]
    )
    assert drawn_temperature(short, scores[:, :9]) is None
    assert not DrawnTemperature(0.7, 1.0, 2.0).is_apart


# ── the power between two sides, without a model ──


@pytest.fixture(scope="module")
def world():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return make_world(302)
    finally:
        torch.set_num_threads(threads)


def sampled_at(world: object, temperature: float, *, raw: bool = False, noise: float = 0.0) -> SavedBatch:
    """A small model's tokens; the trainer leaves the temperature out, or the sampler does in what it reports."""
    rng = np.random.default_rng(1)
    made = _batch(
        world, _rows(world, rng, way=Way(temperature=temperature, raw=raw)), temperature=temperature if raw else 1.0
    )
    apart = noise * rng.normal(size=len(made.trained)) * (1 - np.exp(np.nan_to_num(made.behavior)))
    return replace(made, behavior=np.minimum(made.behavior + apart, 0).astype(np.float32))


def step_of(batch: SavedBatch, name: str) -> Diagnosis:
    return next(step for step in diagnose(batch) if step.cause.name == name)


@pytest.mark.parametrize(
    ("temperature", "raw"),
    [(0.5, False), (0.7, False), (0.9, False), (1.5, False), (0.6, True), (0.9, True), (1.2, True), (1.5, True)],
)
def test_samples_that_begin_alike_show_the_temperature_itself(world: object, temperature: float, raw: bool):
    steps = diagnose(sampled_at(world, temperature, raw=raw))
    assert [step.cause.name for step in steps if step.verdict == "found"] == ["raw" if raw else "temperature"]
    step = next(step for step in steps if step.verdict == "found")
    assert f"by samples that share a beginning, the power is {temperature:g}." in step.statistic
    assert f"temperature{' ' if raw else ', '}{temperature:g} times" in step.remedy


def test_the_power_is_right_where_tokens_one_by_one_are_off(world: object):
    gap = gap_of(sampled_at(world, 0.6))
    found = shared_power(gap.behavior, gap.log_r, gap.context)
    assert found is not None
    assert found[0] == pytest.approx(0.6, abs=1e-5)
    assert abs(temperature_fit(gap.behavior, gap.held).value - 0.6) > 0.03  # how the rest spreads is guessed


def test_noise_of_few_bits_widens_what_the_power_is_good_to_and_does_not_move_it(world: object):
    gap = gap_of(sampled_at(world, 0.7, noise=0.05))
    found = shared_power(gap.behavior, gap.log_r, gap.context)
    assert found is not None
    assert found[0] == pytest.approx(0.7, abs=4 * found[1])
    assert 1e-4 < found[1] < 0.01


@pytest.mark.parametrize("temperature", [0.5, 0.7, 0.9, 1.2])
def test_without_samples_that_begin_alike_a_range_is_said_and_holds_the_temperature(world: object, temperature: float):
    whole = sampled_at(world, temperature)
    for batch in (replace(whole, tokens=None), replace(whole, tokens=np.arange(len(whole.trained)))):
        step = step_of(batch, "temperature")
        assert "no samples share a beginning, which would narrow it down" in step.statistic
        low, high = step.remedy.partition("between ")[2].partition(" times")[0].split(" and ")
        assert float(low) < temperature < float(high)
        assert float(high) - float(low) == pytest.approx(2 * MARGIN, abs=0.011)


def test_two_tokens_behind_one_beginning_give_the_power_by_hand():
    # log q −1 and −3, log p −0.8 and −2.2: 1.4 / 2 = 0.7. Ten beginnings, each normalised by a number of its own.
    own = np.repeat(np.linspace(0, 2, 10), 2)
    x = np.tile([-1.0, -3.0], 10) - own
    y = np.tile([-0.8, -2.2], 10) - own**2
    context = np.repeat(np.arange(10), 2)
    found = shared_power(x, y - x, context)
    assert found is not None
    assert found == pytest.approx((0.7, 0.0), abs=1e-9)
    assert shared_power(x, y - x, np.arange(20)) is None
    assert shared_power(x, y - x, np.full(20, -1)) is None
    assert shared_power(x, y - x, None) is None


def test_a_beginning_is_shared_by_sequences_of_one_prompt_and_step_only():
    tokens = np.array([11, 12, 21, 22, 11, 12, 21, 23, 11, 13, 21, 22, 21, 22])
    trained = np.array([0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 1, 1], bool)
    batch = SavedBatch(
        origin=Origin(framework="columns", files=()), offsets=np.array([0, 4, 8, 12, 14]), tokens=tokens, trained=trained,
        behavior=np.full(14, -1.0, np.float32), proximal=np.full(14, -1.5, np.float32),
    )  # fmt: skip
    context = gap_of(batch).context
    assert context is not None
    first, second, third, fourth = context.reshape(4, 2)
    assert first.tolist() == second.tolist()
    assert first[0] >= 0
    assert first[0] != first[1]
    assert (third == -1).all()  # another prompt
    assert (fourth == -1).all()  # none at all
    apart = replace(batch, step=np.array([1, 2, 1, 1]))
    assert (gap_of(apart).context == -1).all()
