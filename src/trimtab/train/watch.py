"""What a user is told while a run goes on: gates that do nothing or nearly everything; and when it stops: steps without an update."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.correction import Correction, Gate
from trimtab.config.kept_shares import IDLE, STARVING
from trimtab.core.batch import batch
from trimtab.core.correct import decide
from trimtab.core.gate import GateResult
from trimtab.core.layout import Padded
from trimtab.errors import RunError
from trimtab.train.messages import Group, Score, Stepped

STREAK = 20
"""Steps in a row before a gate is called out."""

REMEDIES = {
    "no rows": "No response had a token to train on. Look at rollout/broken, the share cut off at logits that are not finite (the "
    "weights are spoilt, or overflow in rollout.precision), at rollout/failed, the share that a verifier could not score, and at "
    "rollout/length.",
    "all rejected": "The correction rejected every token. Look at drift/k3 and the gate/… metrics: the policies differ more than the "
    "bounds allow. Lower rollout.max_staleness or learner.lr, widen the gate, or raise rollout.precision.",
    "no signal": "Every group of samples got the same reward, or what differed was rejected. Look at rollout/reward: the task may be "
    "too hard or too easy, or rollout.samples too few; and at rollout/failed, the share that a verifier could not score.",
    "not finite": "The gradient was NaN or infinite. Look at ratio/max, weight/max and policy/ratio_max: bound the weight, lower "
    "learner.lr, or set learner.clip_norm.",
}


@dataclass
class Watch:
    """Counts over the steps of a run; all but `streaks` is saved with it."""

    rule: Correction
    patience: int
    idle_steps: int = 0
    seen: Counter[str] = field(default_factory=Counter[str])
    streaks: dict[int, int] = field(default_factory=dict[int, int])
    told: set[int] = field(default_factory=set[int])

    def notes(self, stepped: Stepped) -> list[str]:
        """What to tell about this step. Raises RunError after `patience` steps without an update."""
        if stepped.outcome == "updated":
            self.idle_steps = 0
        else:
            self.idle_steps += 1
            self.seen[stepped.outcome] += 1
            if self.idle_steps >= self.patience:
                raise RunError(
                    f"{self.idle_steps} steps in a row brought no update: {stepped.outcome}. {REMEDIES[stepped.outcome]}"
                )
        return [note for place, gate in enumerate(self.rule.gates) if (note := self._gate(place, gate, stepped))]

    def _gate(self, place: int, gate: Gate, stepped: Stepped) -> str | None:
        """A sentence about a gate that has kept nearly all, or too little, for many steps; once per run."""
        kept = 1.0 - stepped.metrics.get(f"gate/{place}-{gate.metric}-{gate.level}/rejected_tokens", 0.0)
        extreme = kept > IDLE or kept < STARVING
        self.streaks[place] = self.streaks.get(place, 0) + 1 if extreme else 0
        if self.streaks[place] < STREAK or place in self.told or gate.when != "always" or gate.bounds is not None:
            return None
        self.told.add(place)
        name = f"Gate {place} ({gate.level} {gate.metric})"
        known = thresholds(self.rule, stepped, 0.9).get(place)
        hint = f" On this batch {known} would keep 90 %." if known else ""
        if kept > IDLE:
            return f"{name} has kept {kept:.1%} of the tokens for {STREAK} steps: it does next to nothing.{hint}"
        return f"{name} has kept only {kept:.1%} of the tokens for {STREAK} steps: the run learns from the rest.{hint}"


@torch.no_grad()
def thresholds(rule: Correction, stepped: Stepped, keep: float) -> dict[int, str]:
    """For each gate, the bounds that would keep this share of its units on a batch; none of a rule that looks at more than log-probs."""
    if rule.needs_head or rule.needs_age or rule.needs_entropy:
        return {}
    rule = rule.but(normalize=None)  # gates know nothing of it, and it may need more than is here
    target = torch.from_numpy(stepped.current if stepped.proximal is None else stepped.proximal)
    tokens = batch(
        {"proximal": target, "current": target, "behavior": torch.from_numpy(stepped.behavior)},
        rule.pairs,
        torch.from_numpy(stepped.mask) & ~target.isnan(),
        Padded(),
        advantages=torch.from_numpy(stepped.advantages),
    )
    found = {place: _bounds(each, keep) for place, each in enumerate(decide(rule, tokens).results)}
    return {place: text for place, text in found.items() if text}


def _bounds(found: GateResult, keep: float) -> str | None:
    counted = found.counted > 0
    gate = found.gate
    varying = gate.bounds is not None or gate.bound_scale != "none" or (gate.lower, gate.upper) == (None, None)
    if gate.agg in ("every", "budget") or varying or not bool(counted.any()):
        return None
    values = found.high[counted].flatten().double()
    if found.gate.metric == "ratio":
        values = values.exp()
    lower, upper = found.gate.lower is not None, found.gate.upper is not None
    tail = (1.0 - keep) / (lower + upper)
    low, high = _quantile(values, tail), _quantile(values, 1.0 - tail)
    sides = ([f"lower {low:.4g}"] if lower else []) + ([f"upper {high:.4g}"] if upper else [])
    return " and ".join(sides)


def _quantile(values: Float[Tensor, " units"], share: float) -> float:
    """The order statistic with at least that share at or below it; torch.quantile refuses large inputs."""
    place = min(max(int(-(-share * len(values) // 1)) - 1, 0), len(values) - 1)
    return float(values.sort().values[place])


CAUSES = 5
"""How many causes of failed verifiers a session tells; they can be as many as there are responses."""


class SampleFaults:
    """Verifiers that failed, and logits that were not finite."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._is_broken = False

    def notes(self, group: Group, scores: Sequence[Score]) -> Iterator[tuple[str, str]]:
        """Kinds of events and sentences about a group, if there is anything new in it."""
        causes = dict.fromkeys(score.failed for score in scores if score.failed and score.failed not in self._told)
        for cause in list(causes)[: max(0, CAUSES - len(self._told))]:
            self._told.add(cause)
            yield (
                "reward",
                f"A verifier failed: {cause}. Such responses are not trained on; rollout/failed is their share of a step.",
            )
        broken = sum(sample.finish == "error" for sample in group.samples)
        if broken and not self._is_broken:
            self._is_broken = True
            yield (
                "logits",
                f"{broken} of {len(group.samples)} responses to group {group.job.group} met logits that are not finite "
                "and were cut off there; they are not trained on. rollout/broken is their share of a step.",
            )
