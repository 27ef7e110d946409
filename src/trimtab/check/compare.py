"""Whether two results agree, and the number by which they differ most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trimtab.check.question import Pair, View

RELATIVE, ABSOLUTE = 1e-4, 1e-6
"""float32 results of a few dozen operations; a broken law is off by far more."""


@dataclass(frozen=True)
class Disagreement:
    """One number that should be the same in both."""

    key: str
    """loss, gradient, sign, finite, advantages, ages, or the name of a metric."""
    place: tuple[int, ...] | None
    first: float
    other: float
    is_metric: bool = False

    @property
    def where(self) -> str:
        """The number in words."""
        return self.key if not self.place else f"{self.key} at {list(self.place)}"


def with_derived(result: Mapping[str, Any]) -> dict[str, Any]:
    """A result with the sign of its gradient, and whether loss and gradient are finite."""
    if "loss" not in result:
        return dict(result)
    if result["gradient"] is None:
        raise RuntimeError("backward left no gradient on the log-probs")
    finite = bool(torch.as_tensor(result["loss"]).isfinite()) and bool(result["gradient"].isfinite().all())
    return {**result, "sign": result["gradient"].sign(), "finite": float(finite)}


def is_usable(result: Mapping[str, Any]) -> bool:
    """Whether a result can be compared with: finite throughout."""
    return bool(result.get("finite", 1.0))


def disagreement(
    first: Mapping[str, Any], other: Mapping[str, Any], compared: tuple[str, ...], pair: Pair
) -> Disagreement | None:
    """The worst of what should agree and does not."""
    view = pair.view if pair.others else View()
    for key in compared:
        if key == "metrics":
            found = _of_metrics(first["metrics"], other["metrics"])
        else:
            left, right = torch.as_tensor(first[key]).detach().float(), torch.as_tensor(other[key]).detach().float()
            right = view.of(right) if right.dim() else right
            if pair.rows is not None and left.dim():
                left, right = left[list(pair.rows)], right[list(pair.rows)]
            scale = _size(first.get("gradient")) if key == "loss" else 0.0
            found = _of_tensors(key, left, right, scale, same_nan=key == "ages")
            if found is not None and pair.rows is not None and found.place is not None:
                place = (pair.rows[found.place[0]], *found.place[1:])
                found = Disagreement(key, place, found.first, found.other)
        if found is not None:
            return found
    return None


def _size(gradient: Tensor | None) -> float:
    """The loss may cancel to nothing; its rounding is that of its parts."""
    return 0.0 if gradient is None else float(gradient.detach().abs().nan_to_num(0.0, 0.0, 0.0).sum())


def _of_tensors(key: str, left: Tensor, right: Tensor, scale: float, *, same_nan: bool) -> Disagreement | None:
    size = max(
        scale, *(float(each.abs().nan_to_num(0.0, 0.0, 0.0).max()) if each.numel() else 0.0 for each in (left, right))
    )
    gap = (left - right).abs()
    gap = torch.where(left == right, 0.0, gap).nan_to_num(float("inf"), float("inf"), float("inf"))
    if same_nan:
        gap = torch.where(left.isnan() & right.isnan(), 0.0, gap)
    if gap.numel() == 0 or float(gap.max()) <= ABSOLUTE + RELATIVE * size:
        return None
    worst = int(gap.argmax())
    place = tuple(int(each) for each in torch.unravel_index(torch.tensor(worst), gap.shape)) if gap.dim() else None
    return Disagreement(key, place, float(left.flatten()[worst]), float(right.flatten()[worst]))


def _of_metrics(first: Mapping[str, float], other: Mapping[str, float]) -> Disagreement | None:
    for key in first:
        if key not in other:
            continue
        left, right = torch.tensor(float(first[key])), torch.tensor(float(other[key]))
        if _of_tensors(key, left, right, 0.0, same_nan=True) is not None:
            return Disagreement(key, None, float(left), float(right), is_metric=True)
    return None
