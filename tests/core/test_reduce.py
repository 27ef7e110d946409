"""The factor of a reduction as a number is the one of the plain form."""

from __future__ import annotations

import pytest
import torch

from trimtab.config.losses import Reduction
from trimtab.core.reduce import Denominator, common_factor, share


@pytest.mark.parametrize("counts", [(7.0, 3.0), (1_000_003.0, 255.0), (0.0, 0.0)])
@pytest.mark.parametrize("mode", ["token-mean", "token-sum", "seq-mean-token-sum", "seq-mean-token-sum-norm"])
@pytest.mark.parametrize("averaged_over", [1, 6])
def test_the_factor_on_the_host_is_that_of_the_tensors_to_the_last_bit(
    mode: str, counts: tuple[float, float], averaged_over: int
) -> None:
    reduction = Reduction.from_settings({"mode": mode} | ({"constant": 4096.0} if mode.endswith("norm") else {}))
    for kind in (float, torch.tensor):
        step = Denominator(kind(counts[0]), kind(counts[1]), averaged_over=averaged_over)
        exact = share(reduction, torch.ones(3), step, None).factor
        assert float(torch.tensor(common_factor(reduction, step), dtype=torch.float32)) == float(exact)
