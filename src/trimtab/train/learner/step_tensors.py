"""What one learner step leaves: its tensors, and the metrics that are read from them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor

from trimtab.advantage.estimate import Advantages
from trimtab.core.correct import Corrected
from trimtab.core.staleness import staleness
from trimtab.log_probs.public import SelectedLogProbs
from trimtab.train.devices import to_host
from trimtab.train.learner.notes import floats
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


def selection_metrics(rows: Rows, seen: Corrected) -> dict[str, float]:
    """How much of the right and of the wrong answers is left: shares of their tokens with a weight; NaN where there are none."""
    stays = (seen.weight != 0).float()
    found: dict[str, Tensor] = {}
    for name, chosen in (("right", rows.correct), ("wrong", ~rows.correct)):
        tokens = seen.trained & chosen.unsqueeze(-1)
        found[f"selection/kept_given_{name}"] = (stays * tokens).sum() / tokens.sum()
    return floats(found)


def row_metrics(rows: Rows, found: Advantages, before: SelectedLogProbs | None, version: int) -> dict[str, float]:
    """What the batch was: its rewards, lengths and entropy, what its tokens are worth, how old they are."""
    seen = {
        "rollout/reward": rows.reward.nan_to_num(0.0).mean(),
        "rollout/accuracy": rows.correct.float().mean(),
        "rollout/length": rows.drawn.float().mean(),
        "rollout/truncated": 1.0 - rows.ended.float().mean(),
    }
    if before is not None and before.entropy is not None:
        seen["policy/entropy"] = before.entropy.sum() / rows.mask.sum().clamp(min=1)
    seen |= {f"advantage/{name}": value for name, value in found.metrics.items()}
    if rows.heads is not None:
        seen |= rows.heads.metrics(rows.tokens, rows.mask)
    return floats(seen | dict(staleness(rows.versions, rows.mask, learner=version).metrics))


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
