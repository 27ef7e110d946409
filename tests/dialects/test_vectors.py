"""Every recorded case of every framework through `read`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import trimtab
from tests.dialects.recorded import Case, cases
from trimtab.dialects import read


def named(family: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in cases(family)])


def mask_of(case: Case) -> Tensor:
    mask = case.inputs["mask"]
    return mask & case.inputs["sample_mask"][:, None] if "sample_mask" in case.inputs else mask


@named("correction")
def test_a_correction_read_from_a_framework_gives_its_weights_and_its_mask(case: Case) -> None:
    rule = read(case.framework, case.config).correction
    assert rule is not None
    x = case.inputs
    behavior = x.get("behavior", x.get("proximal"))  # slime's sequence mask never looks at behavior
    out = trimtab.correct(
        rule,
        behavior=behavior,
        proximal=x.get("proximal"),
        current=x.get("current"),
        advantages=x.get("advantages"),
        mask=mask_of(case),
        cu_seqlens=x.get("cu_seqlens"),
    )
    assert torch.equal(out.kept, case.outputs["kept"])
    weight = case.outputs["weight"]
    assert torch.equal(out.weight == 0, weight == 0)
    torch.testing.assert_close(out.weight, weight, rtol=1e-5, atol=1e-6)
