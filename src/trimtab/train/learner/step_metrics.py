"""What a learner step leaves: its tensors, the notes of its updates, how far these went, and the metrics that are read from all that."""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from trimtab.advantage.estimate import Advantages
from trimtab.core.correct import Corrected
from trimtab.core.staleness import staleness
from trimtab.log_probs.public import SelectedLogProbs
from trimtab.losses.metrics import PolicyMetrics
from trimtab.train.devices import to_host
from trimtab.train.learner.ranks import LearnerRanks
from trimtab.train.learner.rows import Rows
from trimtab.train.messages import Outcome, Stepped


@dataclass(frozen=True, eq=False)
class StepTensors:
    """What a step did, on the device; `metrics` are floats."""

    outcome: Outcome
    metrics: Mapping[str, float]
    corrected: Corrected
    advantages: Float[Tensor, "rows width"]
    proximal: Float[Tensor, "rows width"] | None
    current: Float[Tensor, "rows width"]
    """What the policy thought of each row when it was trained; NaN for rows that could not contribute."""
    rows: Rows

    def message(self, places: Mapping[tuple[int, int], int]) -> Stepped:
        """The same in host arrays; `places` says which row each answer is."""
        tensors = {
            "mask": self.rows.mask,
            "behavior": self.rows.behavior,
            "current": self.current,
            "kept": self.corrected.kept,
            "weight": self.corrected.weight,
            "advantages": self.advantages,
        }
        if self.proximal is not None:
            tensors["proximal"] = self.proximal
        arrays: dict[str, Any] = {"proximal": None}
        arrays |= {name: value.numpy() for name, value in zip(tensors, to_host(list(tensors.values())), strict=True)}
        return Stepped(outcome=self.outcome, metrics=self.metrics, places=places, **arrays)


def selection_metrics(rows: Rows, corrected: Corrected) -> dict[str, float]:
    """How much of the right and of the wrong answers is left: shares of their tokens with a weight; NaN where there are none."""
    stays = (corrected.weight != 0).float()
    found: dict[str, Tensor] = {}
    for name, chosen in (("right", rows.correct), ("wrong", ~rows.correct)):
        tokens = corrected.trained & chosen.unsqueeze(-1)
        found[f"selection/kept_given_{name}"] = (stays * tokens).sum() / tokens.sum()
    return floats(found)


def row_metrics(
    rows: Rows, advantages: Advantages, proximal_pass: SelectedLogProbs | None, version: int
) -> dict[str, float]:
    """What the batch was: its rewards, lengths and entropy, what its tokens are worth, how old they are."""
    metrics = {
        "rollout/reward": rows.reward.nan_to_num(0.0).mean(),
        "rollout/accuracy": rows.correct.float().mean(),
        "rollout/length": rows.drawn.float().mean(),
        "rollout/truncated": 1.0 - rows.ended.float().mean(),
    }
    if proximal_pass is not None and proximal_pass.entropy is not None:
        metrics["policy/entropy"] = proximal_pass.entropy.sum() / rows.mask.sum().clamp(min=1)
    metrics |= {f"advantage/{name}": value for name, value in advantages.metrics.items()}
    if rows.heads is not None:
        metrics |= rows.heads.metrics(rows.tokens, rows.mask)
    return floats(metrics | dict(staleness(rows.versions, rows.mask, learner=version).metrics))


class LapClock:
    """Seconds between laps."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, name: str) -> None:
        """Note the seconds since the last one under a name."""
        now = time.perf_counter()
        self.laps[f"time/{name}"] = now - self._last
        self._last = now


@dataclass(frozen=True, eq=False)
class Note:
    """What the loss said of one micro-batch, still on the device: nobody waits for it before the step is over."""

    names: tuple[str, ...]
    values: Float[Tensor, " numbers"]
    """Tokens first, then one number per name."""

    @classmethod
    def of(cls, metrics: PolicyMetrics, mask: Tensor) -> Note:
        """The metrics that are the loss's own."""
        names = tuple(metrics.sections)
        return cls(names, torch.stack([mask.sum().float(), *(metrics[name].detach().float() for name in names)]))


@dataclass(eq=False)
class Notes:
    """Those of a step."""

    norms: list[float] = field(default_factory=list[float])
    cosines: list[Tensor] = field(default_factory=list[Tensor])
    """Of each update's gradient with the one before, where they are recorded; 0-d, on the device."""
    scales: list[float] = field(default_factory=list[float])
    """What the learning rate of each update was multiplied by, where it is."""
    seen: list[Note] = field(default_factory=list[Note])
    sums: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))
    tokens: dict[str, float] = field(default_factory=lambda: defaultdict[str, float](float))

    def read(self, ranks: LearnerRanks) -> None:
        """Put together what the ranks saw; all have to ask."""
        read = to_host([note.values for note in self.seen])
        named = [(note.names, values.tolist()) for note, values in zip(self.seen, read, strict=True)]
        for names, (tokens, *values) in ranks.join(named):
            self._add(dict(zip(names, values, strict=True)), tokens)

    def _add(self, metrics: Mapping[str, float], tokens: float) -> None:
        for name, value in metrics.items():
            extreme = name.endswith(("_max", "_min"))
            if name == "policy/loss":
                self.sums[name] += value
            elif extreme:
                worst = max if name.endswith("_max") else min
                self.sums[name] = worst(self.sums[name], value) if name in self.sums else value
            else:
                self.sums[name] += value * tokens
                self.tokens[name] += tokens

    def metrics(self, updates: int) -> dict[str, float]:
        """Means over the micro-batches by their tokens; the loss and the norm before clipping are means over the updates."""
        found = {name: value / self.tokens[name] if self.tokens[name] else value for name, value in self.sums.items()}
        loss = found.pop("policy/loss", 0.0) / max(updates, 1)
        norms = [norm for norm in self.norms if math.isfinite(norm)]
        return found | {
            "train/loss": loss,
            "train/grad_norm": sum(norms) / len(norms) if norms else math.nan if self.norms else 0.0,
            "train/grad_norm_max": max(norms, default=math.nan if self.norms else 0.0),
            "train/not_finite": float(len(self.norms) - len(norms)),
        }

    def cosine(self) -> float:
        """The mean of the recorded cosines; NaN where there is none."""
        cosines = torch.stack(self.cosines).tolist() if self.cosines else []
        return sum(cosines) / len(cosines) if cosines else math.nan

    def scale(self) -> float:
        """The mean factor of the learning rate; NaN where there was no update."""
        return sum(self.scales) / len(self.scales) if self.scales else math.nan


def floats(metrics: Mapping[str, Tensor]) -> dict[str, float]:
    """Every metric as a number, in one transfer."""
    names = list(metrics)
    if not names:
        return {}
    return dict(zip(names, torch.stack([metrics[name].float() for name in names]).tolist(), strict=True))


def ess_sums(weight: Float[Tensor, "*tokens"], trained: Bool[Tensor, "*tokens"]) -> Float[Tensor, "3"]:
    """Σw, Σw² and the number of trained tokens; those of the parts of a minibatch add up."""
    held = torch.where(trained, weight, 0.0).double()
    return torch.stack([held.sum(), held.square().sum(), trained.sum(dtype=torch.float64)])


def effective_share(sums: Float[Tensor, "3"]) -> float:
    """(Σw)² / (n·Σw²), read on the host; 1 where nothing was trained."""
    total, squares, number = sums.tolist()
    return total * total / (number * squares) if number * squares > 0 else 1.0


@contextmanager
def scaled_rate(optimizer: torch.optim.Optimizer, scale: float) -> Generator[None]:
    """Inside, every learning rate is multiplied by `scale`: AdamW divides a gradient by its own size, so that scaling that does nothing."""
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * scale
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


class GradientMemory:
    """The gradient of the last update, of which each rank keeps the part that it holds."""

    def __init__(self, ranks: LearnerRanks) -> None:
        self.ranks = ranks
        self.last: list[Tensor] | None = None

    @torch.no_grad()
    def cosine(self, parameters: Iterable[nn.Parameter]) -> Float[Tensor, ""] | None:
        """The cosine of this gradient with the last, which it then replaces; None for the first. Nothing is read on the host."""
        now = [_own_part(each.grad) for each in parameters if each.grad is not None]
        last, self.last = self.last, [each.clone() for each in now]
        if last is None or [each.shape for each in last] != [each.shape for each in now]:
            return None
        pairs = (zip(now, last, strict=True), zip(now, now, strict=True), zip(last, last, strict=True))
        sums = torch.stack([_dots(each) for each in pairs])
        if self.ranks.shard == "fsdp":
            sums = self.ranks.sum(sums)
        return sums[0] / (sums[1] * sums[2]).sqrt().clamp(min=torch.finfo(torch.float64).tiny)


def _own_part(gradient: Tensor) -> Tensor:
    return (gradient.to_local() if isinstance(gradient, DTensor) else gradient).detach()


def _dots(pairs: Iterable[tuple[Tensor, Tensor]]) -> Float[Tensor, ""]:
    return torch.stack([(a.float() * b.float()).sum(dtype=torch.float64) for a, b in pairs]).sum()
