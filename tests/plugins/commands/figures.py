"""How far two runs of a command are apart: in the gradients that their optimisers were given."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.hooks import RemovableHandle

from tests.plugins.comparison import CLOSE, FAR

STEPS = 2


@dataclass(frozen=True)
class Run:
    """What came of a command."""

    gradients: Sequence[Tensor]
    """Flat, one for each step."""
    kept: Sequence[float] = ()
    """The share of tokens that trimtab's gates kept, as the framework logged it; empty where trimtab took no part."""


def keep_gradients(folder: str | Path) -> RemovableHandle:
    """From here on every optimiser of this process leaves what it steps with, as float32, before the learning rate has touched it."""
    numbers = itertools.count(1)
    Path(folder).mkdir(parents=True, exist_ok=True)

    def keep(optimizer: Any, *_: Any) -> None:
        weights = [each for group in optimizer.param_groups for each in group["params"]]
        found = torch.cat([_whole(torch.zeros_like(each) if each.grad is None else each.grad) for each in weights])
        save_file({"gradient": found}, Path(folder) / f"{next(numbers)}.safetensors")

    return register_optimizer_step_pre_hook(keep)


def _whole(gradient: Any) -> Tensor:
    """Flat, and gathered where it is spread over ranks."""
    gathered = gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient
    return gathered.detach().float().cpu().flatten()


def kept_gradients(folder: str | Path) -> list[Tensor]:
    """Those of a run, step by step."""
    files = sorted(Path(folder).glob("*.safetensors"), key=lambda file: int(file.stem))
    return [load_file(file)["gradient"] for file in files]


def judge(framework: str, runs: Mapping[str, Run]) -> int:
    """Print the figures; 1, as a process ends, where they show nothing.

    `theirs` is the framework's own correction, `ours` trimtab's reading of it, `off` none; the other runs are of rules the framework does
    not have, or has not in this form, and must be unlike all three.
    """
    faults = [fault for name, run in runs.items() for fault in _faults(name, run)]
    if not faults:
        theirs, ours, off = (runs[name].gradients for name in ("theirs", "ours", "off"))
        # after the first step the uncorrected run samples other answers
        steps, control = [*map(_apart, ours, theirs)], _apart(off[0], theirs[0])
        difference = max(steps)
        print(f"{framework}: difference {' and '.join(f'{each:.1e}' for each in steps)}, control {control:.1e}")
        if not difference <= CLOSE:
            faults.append(f"the difference is above {CLOSE:.0e}")
        if not control > max(FAR, 1000 * difference):
            faults.append("the control is not far larger")
    if not faults:
        faults = _alike(runs)
    for name, run in runs.items():
        sizes = [f"{float(each.abs().max()):.2g}" for each in run.gradients]
        kept = f", kept {[round(each, 3) for each in run.kept]}" if run.kept else ""
        print(f"{framework}: {name}: gradients up to {sizes}{kept}")
    for fault in faults:
        print(f"{framework}: that shows nothing: {fault}")
    return bool(faults)


def _faults(name: str, run: Run) -> Iterator[str]:
    """Why a run is no training."""
    if len(run.gradients) != STEPS:
        yield f"{name} took {len(run.gradients)} steps, not {STEPS}"
    elif not all(math.isfinite(each.sum()) and each.abs().max() > 1e-6 for each in run.gradients):
        yield f"{name} has a gradient of nothing, or one that is not finite"
    elif torch.equal(*run.gradients):
        yield f"{name} has one gradient in both steps"
    if name not in ("theirs", "off") and not (len(run.kept) == STEPS and all(0 < each < 1 for each in run.kept)):
        yield f"{name} kept {list(run.kept)}: its gates have to reject some in every step, and not all"


def _alike(runs: Mapping[str, Run]) -> list[str]:
    """Runs of other rules whose first step is one of the three."""
    three = ("theirs", "ours", "off")
    return [
        f"{name} is like {other}"
        for name in runs.keys() - set(three)
        for other in three
        if not _apart(runs[name].gradients[0], runs[other].gradients[0]) > FAR
    ]


def _apart(one: Tensor, other: Tensor) -> float:
    """The largest difference, in parts of the largest of `other`."""
    return float((one.double() - other.double()).abs().max() / other.double().abs().max())
