"""prime-rl's scalars: a mean for each sequence, then the mean of those over the sequences."""

from __future__ import annotations

from torch import Tensor

from trimtab.core.divergence import k3
from trimtab.core.ratio import above, below
from trimtab.logged.views import CorrectionView, Table, fill


def _rows(x: CorrectionView, value: Tensor, over: Tensor) -> Tensor:
    """The mean over the indicated tokens of each row, 0 where it has none, averaged over rows."""
    number = x.layout.total(over)
    return (x.layout.total(value * over) / number.clamp(min=1.0)).mean()


def _drops(x: CorrectionView) -> Tensor:
    return x.valid - x.kept


def _drops_by_sign(x: CorrectionView, place: int) -> Tensor:
    """Tokens that the rising (0) or falling (1) gate drops."""
    return x.gates("reject")[place].fails


def _advantages(x: CorrectionView) -> Tensor:
    assert x.trace.batch.advantages is not None
    return x.trace.batch.advantages


EITHER: Table[CorrectionView] = {
    "masked_mismatch_kl": lambda x: _rows(x, k3(x.log_r), _drops(x)),
    "unmasked_mismatch_kl": lambda x: _rows(x, k3(x.log_r), x.kept),
    "is_masked": lambda x: _rows(x, _drops(x), x.valid),
}

SIGNED: Table[CorrectionView] = {
    "is_masked_high": lambda x: _rows(x, _drops_by_sign(x, 0), x.valid),
    "is_masked_low": lambda x: _rows(x, _drops_by_sign(x, 1) * below(_advantages(x), 0.0), x.valid),
    "masked_advantage_positive": lambda x: _rows(x, above(_advantages(x), 0.0), _drops(x)),
    "masked_advantage_negative": lambda x: _rows(x, below(_advantages(x), 0.0), _drops(x)),
}


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """The trust region, two-sided or by the sign of the advantage."""
    found = fill(EITHER, x)
    return found | fill(SIGNED, x) if len(x.rule.gates) == 2 else found
