"""A temperature that neither side applies leaves no gap; a model sees it in the tokens."""

import numpy as np
import pytest

from trimtab.audit.ladder import climb
from trimtab.audit.tempering import GRID, DrawnTemperature, drawn_temperature
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
    assert next(step.verdict for step in climb(batch) if step.rung.name == "temperature") == "ruled out"
    step = next(step for step in climb(batch, drawn=found) if step.rung.name == "temperature")
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
