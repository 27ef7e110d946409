"""A framework's step three times: with its own correction, with ours of the same settings, and with none, which must be far off."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

FIGURES: list[tuple[str, str, float, float]] = []
"""(framework, case, difference, control), as the tests passed; printed at the end."""
CLOSE = 1e-6
FAR = 1e-3


@dataclass(frozen=True)
class Step:
    """What a step did: its gradient (or the change of the weights under plain descent), its loss, what was logged."""

    gradient: Tensor
    loss: float
    metrics: Mapping[str, float]


def same_step(framework: str, case: str, theirs: Step, ours: Step, off: Step, close: float = CLOSE) -> None:
    """Ours is theirs, and the step without a correction is neither. A gradient of nothing compares with nothing."""
    size = float(theirs.gradient.abs().max())
    assert math.isfinite(size), f"{case}: the framework's own gradient is not finite"
    assert size > 1e-6, f"{case}: the framework's own gradient is zero"
    assert torch.isfinite(ours.gradient).all()
    difference = max(_apart(ours, theirs) / size, abs(ours.loss - theirs.loss) / max(abs(theirs.loss), 0.01))
    control = _apart(off, theirs) / size
    assert difference <= close, f"{case}: {difference:.1e} apart"
    assert control > max(FAR, 1000 * difference), f"{case}: without a correction only {control:.1e} apart"
    FIGURES.append((framework, case, difference, control))


def _apart(one: Step, other: Step) -> float:
    return float((one.gradient - other.gradient).abs().max())


def same_metrics(theirs: Mapping[str, float], ours: Mapping[str, float], names: str = "", rtol: float = 1e-5) -> int:
    """Every metric of theirs whose name starts so is among ours with the same value; how many there were, at least one."""
    wanted = [name for name in theirs if name.startswith(names)]
    assert wanted, f"nothing named {names}… was logged"
    for name in wanted:
        assert name in ours, f"{name} is not logged"
        assert math.isclose(theirs[name], ours[name], rel_tol=rtol, abs_tol=2e-6), (name, theirs[name], ours[name])
    return len(wanted)
