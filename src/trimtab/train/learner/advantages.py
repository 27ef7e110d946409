"""Advantages of a step's tokens: by an estimator and their rewards, by a teacher, and by a teacher as the policy moves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.advantage.estimate import Advantages, advantages
from trimtab.advantage.teacher import teacher_signal
from trimtab.config.advantages import Distillation, Estimator
from trimtab.config.training import Train
from trimtab.core.ratio import indicator
from trimtab.train.learner.rows import Rows


@dataclass(frozen=True, eq=False)
class MovingAdvantages:
    """Advantages against the policy as it is: what rewards say stays, the teacher's log-ratio is that of the moment."""

    rule: Distillation
    base: Float[Tensor, "rows width"]
    teacher: Float[Tensor, "rows width"]
    trained: Bool[Tensor, "rows width"]

    def of(
        self, cut: tuple[Tensor, slice] | slice, current: Float[Tensor, "some narrow"]
    ) -> Float[Tensor, "some narrow"]:
        """Those of some rows, with these log-probs of the policy; detached."""
        counted = indicator(self.trained[cut], self.base.dtype)
        return self.base[cut] + teacher_signal(self.rule, self.teacher[cut], current, counted)

    def as_trained(self, current: Float[Tensor, "rows width"], before: Float[Tensor, "rows width"]) -> Tensor:
        """Those of each row when it was trained; of rows that were not, those of before the step."""
        return torch.where(current.isnan(), before, self.of(slice(None), current.nan_to_num(0.0)))


@dataclass(frozen=True, eq=False)
class RewardAdvantages:
    """Advantages by rewards alone, of the tokens in `mask`; gates that reject before they are estimated may leave others."""

    mask: Bool[Tensor, "rows width"]
    estimate: Advantages

    @property
    def has_advantage(self) -> Bool[Tensor, " rows"]:
        """Rows with a token whose advantage is not 0."""
        return ((self.estimate.advantages != 0) & self.mask & self.estimate.trained).any(-1)


@dataclass(frozen=True, eq=False)
class AdvantageRule:
    """How a step's rows become advantages. `teacher`: its log-probs, and those of the student it is compared with, by name."""

    config: Train
    teacher: dict[str, Tensor] = field(default_factory=dict[str, Tensor])

    @classmethod
    def of(
        cls, config: Train, rows: Rows, teacher: Float[Tensor, "rows width"] | None, proximal: Tensor | None
    ) -> AdvantageRule:
        """For these rows. A student that moves begins at proximal; without a pass ahead of the step, at what sampled it."""
        rule = config.advantage
        if teacher is None or not isinstance(rule, Distillation):
            return cls(config)
        start = rows.behavior if proximal is None or rule.student == "behavior" else proximal
        return cls(config, {"teacher": teacher, rule.student: start})

    def advantages(self, rows: Rows, kept: Tensor | None) -> Advantages:
        """At the start of the step."""
        return self._estimated(self.config.advantage, rows, kept, **self.teacher)

    def by_rewards(self, rows: Rows) -> RewardAdvantages | None:
        """What is known before any policy was asked; None where a teacher has a say in it."""
        if isinstance(self.config.advantage, Distillation):
            return None
        return RewardAdvantages(rows.mask, self.advantages(rows, None))

    def moving(self, rows: Rows, kept: Tensor | None, advantages: Advantages) -> MovingAdvantages | None:
        """Advantages that follow the policy; None where they do not."""
        rule = self.config.advantage
        if not isinstance(rule, Distillation) or rule.student != "current" or not self.teacher:
            return None
        base = torch.zeros_like(advantages.advantages)
        if rule.base is not None:
            base = self._estimated(rule.base, rows, kept, mask=advantages.trained).advantages
        return MovingAdvantages(rule, base, self.teacher["teacher"], advantages.trained)

    def _estimated(
        self, rule: Estimator, rows: Rows, kept: Tensor | None, mask: Tensor | None = None, **more: Any
    ) -> Advantages:
        alone = isinstance(rule, Distillation) and rule.base is None
        return advantages(
            rule,
            rewards=None if alone else rows.reward,
            mask=rows.mask if mask is None else mask,
            group=rows.group,
            kept=kept,
            shaping=self.config.shaping,
            ended=rows.ended,
            **more,
        )
