"""What stands behind the metrics of a correction and of a loss, and the few means that frameworks take of it.

Frameworks log what one process sees, so these are the numbers of the rows at hand. Rows without tokens count where a framework
counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.correction import Correction, Gate
from trimtab.config.losses import Cispo, Gspo, Luspo, Objective, Sapo
from trimtab.core.bounds import Bound
from trimtab.core.decisions import Decisions
from trimtab.core.gate import GateResult
from trimtab.core.layout import Layout
from trimtab.core.ratio import above, below, zero_outside
from trimtab.core.weight import Weighing
from trimtab.losses.table import OBJECTIVES
from trimtab.losses.terms import Surrogate, Terms

Viewed = TypeVar("Viewed")
Table = Mapping[str, Callable[[Viewed], Tensor]]
"""A framework's name for a scalar → the scalar."""


def fill(table: Table[Viewed], view: Viewed, prefix: str = "") -> dict[str, Tensor]:
    """The scalars of a table."""
    return {f"{prefix}{name}": value(view) for name, value in table.items()}


def mean(value: Tensor, over: Tensor) -> Float[Tensor, ""]:
    """The mean over the indicated units; 0 where there is none."""
    total, number = (value * over).sum(dtype=torch.float64), over.sum(dtype=torch.float64)
    return (total / number.clamp(min=1.0)).float()


def deviation(value: Tensor, over: Tensor, *, biased: bool = False) -> Float[Tensor, ""]:
    """The standard deviation over the indicated units; 0 where there are fewer than two."""
    number = over.sum(dtype=torch.float64)
    apart = (value.double() - mean(value, over)).square() * over
    return (apart.sum() / (number if biased else number - 1).clamp(min=1.0)).sqrt().float()


def greatest(value: Tensor, over: Tensor) -> Float[Tensor, ""]:
    """The greatest of the indicated units; 0 where there is none."""
    return torch.where(over.any(), torch.where(over > 0, value, -torch.inf).amax(), 0.0)


def least(value: Tensor, over: Tensor) -> Float[Tensor, ""]:
    """The least of the indicated units; 0 where there is none."""
    return -greatest(-value, over)


def beyond(value: Tensor, lower: Bound, upper: Bound) -> tuple[Tensor, Tensor]:
    """1 above the upper bound and 1 below the lower one; an open side turns nothing away."""
    nowhere = torch.zeros_like(value)
    return nowhere if upper is None else above(value, upper), nowhere if lower is None else below(value, lower)


@dataclass(frozen=True, eq=False)
class GateView:
    """One gate of a correction, as it judged."""

    gate: Gate
    verdict: GateResult
    seen: CorrectionView

    @property
    def bounds(self) -> tuple[Bound, Bound]:
        """In the space of the statistic: logarithms for ratios."""
        return self.verdict.bounds.lower, self.verdict.bounds.upper

    @cached_property
    def tokens(self) -> Float[Tensor, "*tokens"]:
        """The statistic over the tokens."""
        return self.seen.per_token(self.verdict.high, self.verdict.units)

    @cached_property
    def rows(self) -> Float[Tensor, " rows"]:
        """The statistic of each sequence; the mean of its tokens where they are judged one by one."""
        return self.verdict.high if self.gate.level == "sequence" else self.seen.by_row(self.tokens)

    @property
    def units(self) -> tuple[Tensor, Tensor]:
        """What was judged, and where there was something to judge."""
        if self.gate.level == "sequence":
            return self.rows, self.seen.present
        return self.tokens, self.seen.valid

    @cached_property
    def sides(self) -> tuple[Tensor, Tensor]:
        """Units above the upper bound, and units below the lower one."""
        lower, upper = self.bounds
        return beyond(self.verdict.high, None, upper)[0], beyond(self.verdict.low, lower, None)[1]

    @cached_property
    def fails(self) -> Float[Tensor, "*tokens"]:
        """1 on the tokens turned away."""
        return (1.0 - self.verdict.passes) * self.seen.valid


@dataclass(frozen=True, eq=False)
class CorrectionView:
    """A correction on its rows."""

    trace: Decisions
    kl: str = "k3"
    """The estimate of the KL that is logged, where a framework's users choose it."""

    @property
    def rule(self) -> Correction:
        """What was asked for."""
        return self.trace.rule

    @property
    def layout(self) -> Layout:
        """Where sequences lie."""
        return self.trace.batch.layout

    @property
    def valid(self) -> Float[Tensor, "*tokens"]:
        """1 on the trained tokens."""
        return self.trace.batch.valid

    @property
    def kept(self) -> Float[Tensor, "*tokens"]:
        """1 on the tokens that the gates left."""
        return self.trace.kept

    @property
    def lengths(self) -> Float[Tensor, " rows"]:
        """Trained tokens of each sequence."""
        return self.trace.batch.lengths

    @cached_property
    def every(self) -> Float[Tensor, " rows"]:
        """1 for each row, with tokens or without."""
        return torch.ones_like(self.lengths)

    @cached_property
    def present(self) -> Float[Tensor, " rows"]:
        """1 for each row with tokens."""
        return self.lengths.clamp(max=1.0)

    @property
    def log_r(self) -> Float[Tensor, "*tokens"]:
        """The log-ratio of the rule's own pair; 0 outside the trained tokens."""
        return self.trace.log_r

    @cached_property
    def total_log_r(self) -> Float[Tensor, " rows"]:
        """Its sum over each sequence."""
        return self.layout.total(self.log_r)

    def log_r_within(self, limit: float) -> Float[Tensor, "*tokens"]:
        """The log-ratio within ±limit."""
        return self.log_r.clamp(-limit, limit)

    def log_prob(self, side: int) -> Float[Tensor, "*tokens"]:
        """Log-probs of the pair's target (0) or base (1); 0 outside the trained tokens."""
        return zero_outside(self.trace.batch.policies[self.rule.pair.split("/")[side]].detach(), self.valid)

    def surprise(self, side: int) -> Float[Tensor, " rows"]:
        """Minus the mean log-prob of each sequence: its log perplexity."""
        return -self.by_row(self.log_prob(side))

    def by_row(self, value: Tensor) -> Float[Tensor, " rows"]:
        """The mean of each sequence; 0 where it has no tokens."""
        return self.layout.total(value * self.valid) / self.lengths.clamp(min=1.0)

    def mean(self, value: Tensor) -> Float[Tensor, ""]:
        """The mean over the trained tokens."""
        return mean(value, self.valid)

    def per_token(self, value: Tensor, units: Layout | None) -> Float[Tensor, "*tokens"]:
        """A value per unit over the tokens; 0 outside the trained ones."""
        return (value if units is None else units.spread(value)) * self.valid

    def gates(self, *actions: str) -> list[GateView]:
        """The gates with one of these actions, in order."""
        found = [GateView(each.gate, each, self) for each in self.trace.results]
        return [each for each in found if each.gate.action in actions] if actions else found

    @property
    def weighed(self) -> Weighing | None:
        """The weight per unit; None where the rule has none."""
        return self.trace.weighing

    @cached_property
    def raw(self) -> Float[Tensor, "*tokens"]:
        """The ratio that the weight is made of, before its bounds."""
        weighed = self.weighed
        assert weighed is not None
        ratio = weighed.log_raw.exp().clamp(max=torch.finfo(self.valid.dtype).max)
        return self.per_token(ratio, weighed.units)

    @cached_property
    def unit_weight(self) -> Tensor:
        """The weight of each unit within its bounds."""
        weighed = self.weighed
        assert weighed is not None
        return weighed.value

    @cached_property
    def weight(self) -> Float[Tensor, "*tokens"]:
        """The weight within its bounds, what is zeroed at 0: before it is normalised and before anything is rejected."""
        weighed = self.weighed
        assert weighed is not None
        found = self.per_token(self.unit_weight, weighed.units)
        for each in self.gates("zero"):
            found = found * each.verdict.passes
        return found


@dataclass(frozen=True, eq=False)
class LossView:
    """A loss on its rows."""

    loss: Objective
    terms: Terms
    surrogate: Surrogate
    metrics: Mapping[str, Tensor]
    """Ours."""
    seen: CorrectionView | None = None
    """The correction, where it was worked out with the loss."""

    @property
    def valid(self) -> Float[Tensor, "*tokens"]:
        """1 on the trained tokens."""
        return self.terms.batch.valid

    @property
    def kept(self) -> Float[Tensor, "*tokens"]:
        """1 on the tokens that the correction left."""
        return self.terms.kept

    @cached_property
    def log_rho(self) -> Float[Tensor, "*tokens"]:
        """log current − log anchor of the trained tokens."""
        return self.terms.batch.log_r[f"current/{self.terms.anchor}"]

    @cached_property
    def rho(self) -> Float[Tensor, "*tokens"]:
        """What the loss bounds: ρ of the token, or the geometric mean of its sequence."""
        loss = self.loss
        sequence = isinstance(loss, Gspo | Cispo | Sapo) and loss.level in ("sequence", "sequence-token")
        if isinstance(loss, Luspo) or sequence:
            return self._of_sequence(self.log_rho).exp()
        return self.log_rho.exp()

    @cached_property
    def advantages(self) -> Float[Tensor, "*tokens"]:
        """Of the token, or the mean of its sequence where the loss takes that."""
        pooled = getattr(self.loss, "advantage", "token") == "sequence"
        return self._of_sequence(self.terms.advantages) if pooled else self.terms.advantages

    def _of_sequence(self, value: Tensor) -> Tensor:
        scope: str = getattr(self.loss, "scope", "kept")
        mean = self.terms.sequence_mean(value * self.terms.tokens(scope), scope)
        return self.terms.layout.spread(mean).expand(self.valid.shape)

    @property
    def value(self) -> Float[Tensor, "*tokens"]:
        """The loss of each token before its weight."""
        return self.surrogate.value.detach().expand(self.valid.shape)

    def toward(self, policy: str) -> Float[Tensor, "*tokens"]:
        """log current − log of another policy; 0 outside the trained tokens."""
        return self.log_prob - zero_outside(self.terms.batch.policies[policy].detach(), self.valid)

    @property
    def log_prob(self) -> Float[Tensor, "*tokens"]:
        """log current of the trained tokens, without gradient."""
        return zero_outside(self.terms.current.detach(), self.valid)

    def by_row(self, value: Tensor, over: Tensor) -> Float[Tensor, " rows"]:
        """The mean of each sequence over the indicated tokens; 0 where it has none."""
        return self.terms.layout.total(value * over) / self.terms.layout.total(over).clamp(min=1.0)

    def mark(self, *names: str) -> Float[Tensor, "*tokens"]:
        """1 on the tokens under any of these marks; 0 for a mark the loss does not have."""
        found = torch.zeros_like(self.valid)
        for name in names:
            if name in self.surrogate.marks:
                found = torch.maximum(found, self.surrogate.marks[name]().expand(found.shape))
        return found

    def before_rejection(self) -> LossView:
        """The same loss on every trained token."""
        terms = replace(self.terms, kept=self.valid, weight=self.valid)
        return replace(self, terms=terms, surrogate=OBJECTIVES[type(self.loss)](self.loss, terms))
