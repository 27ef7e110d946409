"""What a pass decided about a batch, whatever it is written in: decisions at hand, and metrics that know what was decided from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.batch import as_mask, check_unchanged, edits
from trimtab.core.decisions import Decisions
from trimtab.core.layout import Layout
from trimtab.core.observe import Metrics
from trimtab.errors import InputError


@dataclass(frozen=True, eq=False)
class PassDecisions(ABC):
    """What a pass decided about a batch. From `masked` the plain form can be made later, if nobody changed it since."""

    rule: Correction
    layout: Layout
    policies: Mapping[str, Tensor]
    pair: str
    masked: Bool[Tensor, "*tokens"]
    before: Mapping[str, int | None]

    @abstractmethod
    def known_section(self, name: str) -> dict[str, Tensor] | None:
        """A metric and others worked out with it, from what the pass found; None: it is left to the plain form."""

    def metrics(self, plain: Callable[[Tensor], Decisions], *, aged: bool = False) -> Metrics:
        """The metrics; `plain` makes the decisions of the plain form from a mask, for what the sums of the pass do not hold.

        Over ranks all of them are made so: each rank has to send what the others wait for, and another may have had to be plain.
        """
        known = None if self.layout.ranks.whole is not None else self.known_section
        return Metrics(self.rule, partial(self._decisions, plain), valued=False, aged=aged, known=known)

    def _decisions(self, plain: Callable[[Tensor], Decisions]) -> Decisions:
        self.check_unchanged()
        self.check_mask()
        return plain(self.masked)

    def check_unchanged(self) -> None:
        """The log-probs are what they were when the pass read them."""
        for name, log_probs in self.policies.items():
            check_unchanged(name, log_probs, self.before[name])

    def check_mask(self) -> None:
        """The mask is what it was when the pass read it."""
        if self.before["mask"] != edits(self.masked):
            raise InputError(
                "Metrics need the mask they are worked out from, got a tensor changed in place since. "
                "Read them before, or pass a copy."
            )


def readable_mask(mask: Tensor, layout: Layout) -> Bool[Tensor, "*tokens"]:
    """The mask as metrics will read it later: the caller's own where a change would be noticed, else a copy.

    Over ranks every metric is the plain form's, and a tensor of inference mode does not count its changes.
    """
    own = mask.dtype == torch.bool and layout.ranks.whole is None and not mask.is_inference()
    return mask.detach() if own else as_mask(mask)


def edits_before(policies: Mapping[str, Tensor], masked: Tensor) -> dict[str, int | None]:
    """How often the tensors that a pass reads were changed so far."""
    return {name: edits(each) for name, each in (*policies.items(), ("mask", masked))}


def pair_of(rule: Correction, policies: Mapping[str, Tensor], also: str) -> str:
    """The pair of policies a rule is run on: its own or, where it looks at none of these, the other one."""
    return rule.pair if all(name in policies for name in rule.pair.split("/")) else also
