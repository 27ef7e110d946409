"""ROLL's `actor/train_infer_…`; what it sums over padding too is left out."""

from __future__ import annotations

from torch import Tensor

from trimtab.core.layout import Layout
from trimtab.logged.views import CorrectionView, Table, fill, mean


def _gather(x: CorrectionView, value: Tensor, units: Layout | None, total: bool) -> Tensor:
    """A value per token gathered over each unit."""
    if units is None:
        return value
    found = units.total(value * x.valid)
    return found if total else found / units.total(x.valid).clamp(min=1.0)


def _rows(x: CorrectionView, value: Tensor) -> Tensor:
    """The mean of each sequence, averaged over those with tokens."""
    return mean(x.by_row(value), x.present)


def _ratio(x: CorrectionView, units: Layout | None, total: bool = False) -> Tensor:
    return _rows(x, x.per_token(_gather(x, x.log_r, units, total).exp(), units))


def _diff(x: CorrectionView, units: Layout | None, total: bool = False) -> Tensor:
    moved = x.log_prob(0).exp() - x.log_prob(1).exp()
    return _rows(x, x.per_token(_gather(x, moved, units, total), units))


APART: Table[CorrectionView] = {
    "ratio_token": lambda x: _ratio(x, None),
    "diff_token": lambda x: _diff(x, None),
    "ratio_segment": lambda x: _ratio(x, x.trace.batch.turns),
    "diff_segment": lambda x: _diff(x, x.trace.batch.turns),
    "ratio_geometric": lambda x: _ratio(x, x.layout),
    "diff_geometric": lambda x: _diff(x, x.layout),
    "ratio_sequence": lambda x: _ratio(x, x.layout, total=True),
    "diff_sequence": lambda x: _diff(x, x.layout, total=True),
}


def correction(x: CorrectionView) -> dict[str, Tensor]:
    """Means of sequences, each token with the number of its unit."""
    found = {f"actor/train_infer_{name}_mean@sum": value for name, value in fill(APART, x).items()}
    if x.rule.gates:
        found["actor/train_infer_final_mask_mean"] = x.mean(x.kept)
    return found
