"""How far two runs of a command are apart: in the steps that their weights took."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tests.plugins.comparison import CLOSE, FAR

Weights = Sequence[Tensor]
"""The weights of a run, flat: before its first step, and after each."""


def keep_weights(folder: str | Path, step: int, weights: dict[str, Tensor]) -> None:
    """What the trainer published after a step."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    save_file(
        {name: each.detach().float().cpu().contiguous() for name, each in weights.items()},
        Path(folder) / f"{step}.safetensors",
    )


def kept_weights(folder: str | Path) -> list[Tensor]:
    """Those of a run, step by step."""
    files = sorted(Path(folder).glob("*.safetensors"), key=lambda file: int(file.stem))
    loaded = [load_file(file) for file in files]
    return [torch.cat([each[name].flatten() for name in sorted(each)]) for each in loaded]


def judge(framework: str, theirs: Weights, ours: Weights, off: Weights, steps: int = 2) -> int:
    """Print the figures; 1, as a process ends, where they show nothing.

    The difference is over all steps. The control is of the first step only: after it the uncorrected run samples other answers.
    """
    for name, run in (("theirs", theirs), ("ours", ours), ("off", off)):
        if len(run) != steps + 1:
            print(f"{framework}: the run {name} published {len(run)} weights, not {steps + 1}")
            return 1
    size = _step(theirs, 1).abs().max().item()
    moved = min(_step(theirs, number).abs().max().item() for number in range(1, steps + 1))
    apart = max((_step(ours, number) - _step(theirs, number)).abs().max().item() for number in range(1, steps + 1))
    difference, control = apart / moved, (_step(off, 1) - _step(theirs, 1)).abs().max().item() / size
    print(f"{framework}: {steps} steps, difference {difference:.1e}, control {control:.1e}")
    sound = math.isfinite(moved) and moved > 1e-6 and difference <= CLOSE and control > max(FAR, 1000 * difference)
    if not sound:
        print(
            f"{framework}: that shows nothing: a step of {moved:.1e}, a difference above {CLOSE:.0e}, or a control that is no larger"
        )
    return 0 if sound else 1


def _step(run: Weights, number: int) -> Tensor:
    return run[number].double() - run[number - 1].double()
