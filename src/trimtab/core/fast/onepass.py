"""The hand-over from the plain form: decisions by the pass where they fit, metrics from its sums, the rest made when it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.batch import as_mask, check_unchanged, edits
from trimtab.core.decisions import Decisions
from trimtab.core.fast import figures
from trimtab.core.fast.decide import RowPass, row_pass
from trimtab.core.fast.switch import pass_fits
from trimtab.core.layout import Layout
from trimtab.core.observe import Metrics, Section, gate_name


@dataclass(frozen=True, eq=False)
class QuickDecisions:
    """What the pass decided about a batch. `masked` is a copy of the mask, from which the plain form can be made later."""

    rule: Correction
    layout: Layout
    policies: Mapping[str, Tensor]
    masked: Bool[Tensor, "*tokens"]
    partial: Float[Tensor, ""] | None
    found: RowPass
    before: Mapping[str, int | None]

    def metrics(self, plain: Callable[[Tensor], Decisions]) -> Metrics:
        """The metrics; `plain` makes the decisions of the plain form from a mask, for what the sums of the pass do not hold.

        Over ranks all of them are made so: each rank has to send what the others wait for, and another may have had to be plain.
        """
        known = {} if self.layout.ranks.whole is not None else self.sections()
        return Metrics(self.rule, partial(self._decisions, plain), valued=False, known=known)

    def _decisions(self, plain: Callable[[Tensor], Decisions]) -> Decisions:
        for name, log_probs in self.policies.items():
            check_unchanged(name, log_probs, self.before[name])
        return plain(self.masked)

    def sections(self) -> dict[str, Section]:
        """Metrics by name that are worked out from the sums and the decisions of the pass."""
        names = [gate_name(index, gate) for index, gate in enumerate(self.rule.gates)]
        moments = partial(figures.figures, self.rule, names, self.found, self.partial, self.layout.ranks)
        found: dict[str, Section] = dict.fromkeys(figures.moment_names(self.rule, names), moments)
        points = [f"ratio/{point}" for point in figures.POINTS]
        found |= dict.fromkeys([*points, "drift/abs_log_r_p50"], partial(figures.ratio_points, self.found))
        if self.rule.weighs:
            weights = partial(figures.weight_points, self.found)
            found |= dict.fromkeys([f"weight/{point}" for point in figures.POINTS], weights)
        for index, (name, gate) in enumerate(zip(names, self.rule.gates, strict=True)):
            measure = figures.gate_points if gate.level == "sequence" else figures.token_gate_points
            found |= dict.fromkeys(
                [f"{name}/{point}" for point in figures.POINTS], partial(measure, self.found, index, name)
            )
        return found


def one_pass(rule: Correction, policies: Mapping[str, Tensor], mask: Tensor, layout: Layout) -> QuickDecisions | None:
    """The decisions of a rule in one pass; None where the call or the batch does not fit, and the plain form has to decide."""
    if not pass_fits(rule, tuple(policies.values()), mask, layout):
        return None
    return run_pass(rule, policies, rule.pair, mask, layout)


def run_pass(
    rule: Correction, policies: Mapping[str, Tensor], also: str, mask: Tensor, layout: Layout
) -> QuickDecisions | None:
    """The decisions of a rule that fits, about the tokens that have the log-probs of the pair `also` too.

    Without policies of its own (it looks at none), a rule is run on that pair.
    """
    masked = as_mask(mask)
    pair = rule.pair if all(name in policies for name in rule.pair.split("/")) else also
    target, base = (policies[name] for name in pair.split("/"))
    here = masked if pair == also else _with_both(policies, also, masked)
    found = row_pass(rule, target, base, here, layout, observes=True)
    if found is None:
        return None
    if pair != also:
        found.sums[0] = masked.view(torch.uint8).sum(
            dtype=torch.int64
        )  # the tokens asked for, with and without log-probs
    partial = None if mask.dtype == torch.bool else (found.trained & (mask != 1)).sum().double()
    before = {name: edits(log_probs) for name, log_probs in policies.items()}
    return QuickDecisions(rule, layout, policies, masked, partial, found, before)


def _with_both(policies: Mapping[str, Tensor], pair: str, masked: Bool[Tensor, "*tokens"]) -> Bool[Tensor, "*tokens"]:
    """The mask less the tokens without both log-probs of a pair."""
    from trimtab.core.fast import clip_rows

    out = torch.empty_like(masked)
    arrays = [each.detach().view(-1).numpy() for each in (*(policies[name] for name in pair.split("/")), masked, out)]
    clip_rows.mask_missing(*arrays)
    return out
