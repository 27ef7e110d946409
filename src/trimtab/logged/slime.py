"""slime's scalars, as plain means over the valid tokens of what it returns per token."""

from __future__ import annotations

from torch import Tensor

from trimtab.logged.views import CorrectionView, Table, beyond, fill, mean


def _outside(x: CorrectionView) -> Tensor:
    assert x.weighed is not None
    high, low = beyond(x.raw, x.weighed.weight.lower, x.weighed.weight.upper)
    return high + low


TIS: Table[CorrectionView] = {
    "tis_token_mean": lambda x: x.mean(x.raw),
    "tis_clipfrac_token_mean": lambda x: x.mean(_outside(x)),
    "tis_abs_token_mean": lambda x: x.mean((x.raw - 1.0).abs()),
}


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """The plain weight, the recipe's normalisation, and the sequence mask: the sum over rows of their dropped share."""
    found: dict[str, Tensor] = {}
    if x.weighed is not None and x.weighed.weight.limit is None:  # only the recipe has a safety bound
        found |= fill(TIS, x)
    if x.rule.normalize:
        by_token = x.rule.weight is not None and x.rule.weight.level == "token"
        found["batch_norm_factor"] = x.mean(x.weight) if by_token else mean(x.by_row(x.weight), x.present)
    for each in x.gates("zero"):
        found["opsm_clipfrac_sum"] = x.by_row(each.fails).sum()
    return found
