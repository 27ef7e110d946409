from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from tests.train.batches import batch, policy
from trimtab.config.training import Train
from trimtab.train.learner.learner import Learner
from trimtab.train.learner.rows import Rows
from trimtab.train.learner.scoring import Scorer, SharedPass
from trimtab.train.learner.step_metrics import StepTensors

pytestmark = pytest.mark.filterwarnings("ignore:Clip under a bypass rule with a weight")


def learned(rows: Rows, *, shared: bool = True, **settings: object) -> tuple[StepTensors, Tensor, list[int]]:
    """A step, the weights after it, and the rows of each pass over the model."""
    made, passes = policy(), list[int]()
    config = Train.from_settings(
        {"correction": "token-tis", "learner": {"minibatches": 2, "warmup": 1, "lr": 1e-3}} | settings
    )
    own = Scorer.__call__

    def counted(self: Scorer, part: Rows, **asked: bool) -> object:
        passes.append(len(part))
        return own(self, part, **asked)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scorer, "__call__", counted)
        if not shared:
            patch.setattr(SharedPass, "of", lambda *_: None)
        mine = Learner(config, copy.deepcopy(made.model.double()))
        stepped = mine.learn(rows)
    return stepped, torch.cat([each.detach().flatten() for each in mine.model.parameters()]), passes


@pytest.mark.parametrize("correction", ["token-tis", "geo-rs", "bypass-icepop", "m2po"])
@pytest.mark.parametrize("minibatches", [1, 3])
def test_a_step_is_the_same_as_with_a_pass_of_its_own_for_the_first_minibatch(
    correction: str, minibatches: int
) -> None:
    rows = batch(policy(), groups=6, drift=0.05)
    rows.reward[rows.group == 2] = 1.0  # a group that agrees
    changes = {"correction": correction, "learner": {"minibatches": minibatches, "warmup": 1, "lr": 1e-3}}
    one, weights, _ = learned(rows, **changes)
    other, wanted, _ = learned(rows, shared=False, **changes)
    assert one.outcome == other.outcome == "updated"
    torch.testing.assert_close(weights, wanted, rtol=0, atol=1e-9)
    torch.testing.assert_close(one.proximal, other.proximal, rtol=0, atol=1e-6)
    timed = {name for name in one.metrics if name.startswith("time/")}
    assert {name: one.metrics[name] for name in one.metrics.keys() - timed} == pytest.approx(
        {name: other.metrics[name] for name in other.metrics.keys() - timed}, rel=1e-4, abs=1e-5, nan_ok=True
    )


def test_rows_of_the_first_minibatch_go_through_the_model_once() -> None:
    rows = batch(policy(), groups=6, drift=0.0)
    found, _, passes = learned(rows)
    _, _, apart = learned(rows, shared=False)
    assert len(apart) == 3  # all rows ahead of the step, then two minibatches
    assert passes[0] + passes[1] == len(rows) == apart[0]
    assert passes[2:] == apart[2:]
    assert found.proximal is not None
    same = (found.current == found.proximal) & rows.mask
    assert int(same.any(-1).sum()) >= passes[0]  # nothing has moved: the same numbers to the last bit


def test_a_minibatch_of_more_than_one_micro_batch_has_passes_of_its_own() -> None:
    rows = batch(policy(), groups=6, drift=0.0)
    small = {"minibatches": 1, "warmup": 1, "lr": 1e-3, "micro_tokens": 60}
    _, weights, passes = learned(rows, learner=small)
    _, wanted, apart = learned(rows, shared=False, learner=small)
    assert passes == apart
    assert torch.equal(weights, wanted)


def test_rows_it_does_not_hold_are_not_given() -> None:
    made = policy()
    rows = batch(made, groups=3)
    config = Train.from_settings({"learner": {"minibatches": 1}})
    scorer = Learner(config, made.model).scorer
    valued = torch.ones(len(rows), dtype=torch.bool)
    valued[4] = False
    held = SharedPass.of(config, scorer, rows, 0, valued)
    assert held is not None
    assert held.part(torch.tensor([3, 4]), width=3, entropy=False) is None
    width = int(rows.lengths[[5, 1]].max())
    part = held.part(torch.tensor([5, 1]), width=width, entropy=True)
    alone = scorer(rows.part(torch.tensor([5, 1])), entropy=True)
    assert part is not None
    torch.testing.assert_close(part.log_probs, alone.log_probs, rtol=0, atol=1e-5)
    torch.testing.assert_close(part.entropy, alone.entropy, rtol=0, atol=1e-5)
