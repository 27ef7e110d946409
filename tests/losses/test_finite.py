"""Between the log-probs and the loss every number is finite, also where a sequence has nothing to train."""

from __future__ import annotations

import pytest
import torch

from trimtab import Gspo, Luspo, policy_loss
from trimtab.config.losses import Cispo, Gmpo, Objective, Sapo

OF_SEQUENCES = (
    Gspo(low=0.2, high=0.2),
    Gspo(low=0.2, high=0.2, level="sequence-token"),
    Gspo(low=0.2, high=0.2, advantage="sequence"),
    Luspo(low=0.2, high=0.2),
    Gmpo(),
    Sapo(level="sequence"),
    Cispo(level="sequence"),
)


@pytest.mark.filterwarnings("ignore:Luspo with reduction", "ignore:Anomaly Detection")
@pytest.mark.parametrize("loss", OF_SEQUENCES, ids=str)
def test_a_sequence_without_a_token_gives_no_nan_on_the_way_back(loss: Objective):
    mask = torch.tensor([[True, True, False], [False, False, False], [True, True, True]])
    proximal = torch.full((3, 3), -2.0)
    current = torch.full((3, 3), -1.9, requires_grad=True)
    with torch.autograd.set_detect_anomaly(
        mode=True
    ):  # raises where a function returns NaN, also one that is cut off after it
        policy_loss(
            loss, current=current, proximal=proximal, advantages=torch.tensor([1.0, 2.0, -1.0]), mask=mask
        ).loss.backward()
    assert current.grad is not None
    assert not current.grad[~mask].any()
