"""prime-rl's scalars: a mean for each sequence, then the mean of those over the sequences."""

from __future__ import annotations

from torch import Tensor

from trimtab.core.metric import k3
from trimtab.core.ratio import above, below
from trimtab.diagnostics.logged.seen import Seen, Table, filled


def _rows(x: Seen, value: Tensor, over: Tensor) -> Tensor:
    """The mean over the indicated tokens of each row, 0 where it has none, averaged over rows."""
    number = x.layout.total(over)
    return (x.layout.total(value * over) / number.clamp(min=1.0)).mean()


def _lost(x: Seen) -> Tensor:
    return x.valid - x.kept


def _signed(x: Seen, place: int) -> Tensor:
    """Tokens that the rising (0) or falling (1) gate drops."""
    return x.gates("reject")[place].fails


def _advantages(x: Seen) -> Tensor:
    assert x.trace.batch.advantages is not None
    return x.trace.batch.advantages


EITHER: Table[Seen] = {
    "masked_mismatch_kl": lambda x: _rows(x, k3(x.log_r), _lost(x)),
    "unmasked_mismatch_kl": lambda x: _rows(x, k3(x.log_r), x.kept),
    "is_masked": lambda x: _rows(x, _lost(x), x.valid),
}

SIGNED: Table[Seen] = {
    "is_masked_high": lambda x: _rows(x, _signed(x, 0), x.valid),
    "is_masked_low": lambda x: _rows(x, _signed(x, 1) * below(_advantages(x), 0.0), x.valid),
    "masked_advantage_positive": lambda x: _rows(x, above(_advantages(x), 0.0), _lost(x)),
    "masked_advantage_negative": lambda x: _rows(x, below(_advantages(x), 0.0), _lost(x)),
}


def correction(x: Seen) -> dict[str, Tensor]:
    """The trust region, two-sided or by the sign of the advantage."""
    found = filled(EITHER, x)
    return found | filled(SIGNED, x) if len(x.rule.gates) == 2 else found
