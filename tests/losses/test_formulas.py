"""Each loss, in value and gradient, against the formula on paper and its finite differences in float64."""

from __future__ import annotations

from itertools import chain

import pytest
import torch
from torch import Tensor

from tests.losses import plain
from tests.losses.plain import Token
from trimtab.config import losses as config
from trimtab.config.losses import Objective, Reduction
from trimtab.core.correct import Corrected
from trimtab.losses.policy import policy_loss
from trimtab.losses.table import OBJECTIVES

pytestmark = pytest.mark.filterwarnings("ignore:Luspo with reduction")  # every reduction is worked out, not recommended

LENGTHS = (4, 1, 3, 5)
PROMPTS = (7, -2, 7, 3)
REDUCTIONS = [
    Reduction(mode="token-mean"),
    Reduction(mode="token-sum"),
    Reduction(mode="token-sum", constant=3.0),
    Reduction(mode="seq-mean-token-mean"),
    Reduction(mode="seq-mean-token-sum"),
    Reduction(mode="seq-mean-token-sum-norm", constant=16.0),
    Reduction(mode="prompt-mean"),
]
VARIANTS: list[Objective] = [
    config.Clip(),
    config.Clip(low=0.1, high=0.3, dual=1.3),
    config.Clip(ratio_cap=1.4),
    config.Gspo(low=0.05, high=0.1),
    config.Gspo(low=0.05, high=0.1, level="sequence-token"),
    config.Gspo(low=0.05, high=0.1, dual=1.1, advantage="sequence"),
    config.Gspo(low=0.05, high=0.1, ratio_cap=1.15),
    config.Luspo(low=0.05, high=0.1),
    config.Cispo(),
    config.Cispo(lower=0.8, upper=None),
    config.Cispo(lower=0.8, upper=1.3, outside="zero"),
    config.Cispo(level="sequence", upper=1.1),
    config.Sapo(),
    config.Sapo(tau_positive=3.0, tau_negative=0.7),
    config.Sapo(level="sequence", advantage="sequence"),
    config.Gmpo(low=0.1, high=0.2),
    config.ClipCov(fraction=1.0, lower=0.05, upper=3.0),
    config.KlCov(fraction=0.3, coefficient=0.7),
    config.KlCov(),
    config.Reinforce(),
    config.ImportancePg(),
    config.DppoTv(low=0.03, high=0.05),
    config.DppoTv(low=0.03, high=0.05, gradient="ratio", ratio_cap=1.2),
    config.DppoKl(low=0.01, high=0.02, ratio_cap=1.2),
    config.DppoKl(low=0.01, high=0.02, gradient="ratio"),
    config.Topr(),
    config.Topr(lower=0.5, upper=1.5),
    config.Topr(level="token"),
    config.Topr(positive=2.0, negative=0.5),
    config.Vespo(),
    config.Dro(),
    config.Bapo(target=0.1, lower=0.9, lower_max=0.95, upper=1.1),
    config.Bapo(target=1.0, lower=0.8, lower_max=0.9, upper=1.1, upper_max=1.3, upper_step=0.02),
    config.Bapo(target=3.0, lower=0.8, lower_max=0.9, upper=1.1, upper_max=1.3, dual=None),
    config.Aspo(),
    config.Fipo(half_life=2.0),
    config.Fipo(half_life=1.0, lower=None, upper=None, safety=1.2),
    config.Fipo(half_life=4.0, lower=0.8, ratio_cap=1.3, safety=None),
    config.Aspo(low=0.1, high=0.3, dual=1.3, dual_positive=1.2),
]


def rows(seed: int) -> plain.Rows:
    """Ratios from about 0.4 to 2.5, advantages of both signs within a row."""
    draw = torch.Generator().manual_seed(seed)

    def number(scale: float) -> float:
        return float(torch.randn((), generator=draw, dtype=torch.float64)) * scale

    found: plain.Rows = []
    for length, prompt in zip(LENGTHS, PROMPTS, strict=True):
        row: list[Token] = []
        for _ in range(length):
            now = -1.2 + number(0.4)
            row.append(Token(now, now, now - number(0.3), number(1.0), abs(number(1.0)) + 0.1, prompt))
        found.append(row)
    return found


def tensors(rows: plain.Rows) -> dict[str, Tensor]:
    """Padded to one width, with junk in the padding."""
    names = {"now": "current", "anchor": "proximal", "advantage": "advantages", "weight": "weight"}
    width = max(len(row) for row in rows)
    found = {name: torch.full((len(rows), width), float("nan"), dtype=torch.float64) for name in names.values()}
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        mask[i, : len(row)] = True
        for field, name in names.items():
            found[name][i, : len(row)] = torch.tensor([getattr(token, field) for token in row], dtype=torch.float64)
    return found | {"mask": mask}


def found(loss: Objective, reduction: Reduction, sample: plain.Rows) -> tuple[Tensor, Tensor]:
    data = tensors(sample)
    weight = data.pop("weight")
    given = Corrected(weight, data["mask"], data["mask"], torch.zeros_like(weight), {})
    data["current"].requires_grad_()
    out = policy_loss(loss, correction=given, reduction=reduction, group=torch.tensor(PROMPTS), **data)
    out.loss.backward()
    assert data["current"].grad is not None
    return out.loss.detach(), data["current"].grad[data["mask"]]


def test_every_loss_is_tested_here() -> None:
    assert {type(loss) for loss in VARIANTS} == set(OBJECTIVES) == set(config.LOSSES.values())


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("loss", VARIANTS, ids=str)
def test_value_and_gradient_are_those_of_the_formula(loss: Objective, seed: int) -> None:
    sample = rows(seed)
    for reduction in REDUCTIONS:
        value, gradient = found(loss, reduction, sample)
        want = torch.tensor(plain.value(loss, reduction, sample), dtype=torch.float64)
        torch.testing.assert_close(value, want, rtol=1e-9, atol=1e-12)
        slopes = torch.tensor(list(chain(*plain.slopes(loss, reduction, sample))), dtype=torch.float64)
        torch.testing.assert_close(gradient, slopes, rtol=1e-6, atol=1e-8)


def test_the_variants_exercise_both_branches() -> None:
    """A clip that never bites would make the comparison above an empty one."""
    for loss in VARIANTS:
        out = policy_loss(loss, **{k: v for k, v in tensors(rows(0)).items() if k != "weight"})
        names = [
            name for name in out.metrics if name.rpartition("/")[2] in ("clip_high", "clip_low", "clip_dual", "cov")
        ]
        if not isinstance(loss, config.Sapo | config.Reinforce | config.ImportancePg | config.Vespo | config.Dro):
            assert sum(float(out.metrics[name]) for name in names) > 0, loss
