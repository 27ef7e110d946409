"""What a correction worked out on its way, and the sums its metrics are made of."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from trimtab.config.correction import Correction
from trimtab.core.batch import Batch
from trimtab.core.cached import cached
from trimtab.core.gate import GateResult
from trimtab.core.ranks import Ranks
from trimtab.core.ratio import number_of
from trimtab.core.weight import Weighing


@dataclass(frozen=True, eq=False)
class Decisions:
    """What `correct` decided, with everything it worked out on its way, for the metrics to read."""

    rule: Correction
    batch: Batch
    results: tuple[GateResult, ...]
    weighing: Weighing | None
    kept: Float[Tensor, "*tokens"]
    weight: Float[Tensor, "*tokens"]

    @cached
    def number(self) -> Float[Tensor, ""]:
        """How many valid tokens this rank holds."""
        return number_of(self.batch.valid)

    @property
    def centered(self) -> Float[Tensor, "*tokens"] | None:
        """1 on the tokens whose gradient is centered: what a token by itself decides takes none out. None without centering."""
        if self.rule.centering is None:
            return None
        found = self.batch.valid
        for each in self.results:
            if each.gate.action in ("reject", "zero") and not each.gate.is_of_token:
                found = found * each.passes
        return found

    @property
    def ranks(self) -> Ranks:
        """The ranks that hold the batch."""
        return self.batch.layout.ranks

    @property
    def log_r(self) -> Float[Tensor, "*tokens"]:
        """The log-ratio of the rule's own pair."""
        return self.batch.log_r[self.rule.pair]

    @cached
    def total_log_r(self) -> Float[Tensor, " rows"]:
        """Its sum over each sequence, in float64."""
        return self.batch.sums(self.batch.layout, self.log_r)
