"""What the updates of a step saw, and the metrics it becomes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.losses.metrics import PolicyMetrics
from trimtab.train.devices import to_host
from trimtab.train.learner.ranks import LearnerRanks


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
