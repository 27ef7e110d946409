"""The hand-over from the plain form: decisions by the pass where they fit, metrics from its sums, the rest made when it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from jaxtyping import Bool
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.fast import figures, points
from trimtab.core.fast.decide import RowPass, row_pass
from trimtab.core.fast.decided import PassDecisions, edits_before, pair_of, readable_mask
from trimtab.core.fast.switch import pass_fits
from trimtab.core.layout import Layout
from trimtab.core.observe import gate_name
from trimtab.core.once import of_identity, once

SMALL = 4096
"""Tokens of which every metric is worked out faster than it takes to ask for one after the other."""


@dataclass(frozen=True, eq=False)
class QuickDecisions(PassDecisions):
    """What the pass on a CPU decided about a batch."""

    odd: Bool[Tensor, "*tokens"] | None
    """Where a mask is neither 0 nor 1; None: it is boolean."""
    run: Callable[[QuickDecisions], RowPass]
    """The pass, or what is left to run of it when something is read. It is given these decisions: one that held them would be a cycle,
    and the arrays of a batch would wait for the collector."""
    observes: bool

    @once
    def found(self) -> RowPass:
        """What the pass found: per token, per row and of the batch."""
        return self.run(self)

    @once
    def partial(self) -> float:
        """How many trained tokens have a mask that is neither 0 nor 1."""
        return 0.0 if self.odd is None else float((self.found.trained & self.odd).sum())

    def known_section(self, name: str) -> dict[str, Tensor] | None:
        """A metric and the others of its section, from the sums and the decisions of the pass; of a small batch, all at once."""
        sections = _sections(self.rule)
        if name not in sections:
            return None
        if self.masked.numel() > SMALL:
            return figures.as_tensors(sections[name](self))
        values: dict[str, float] = {}
        for section in dict.fromkeys(sections.values()):
            values |= section(self)
        return figures.as_tensors(values)

    @once
    def measured(self) -> RowPass:
        """What the pass found, with the moments."""
        if not self.observes:
            self.check_unchanged()
            target, base = self.pair.split("/")
            self.found.observe(self.policies[target], self.policies[base])
        return self.found

    def moments(self) -> dict[str, float]:
        """Every metric but quantiles; the weight before its bounds too, where rows say it."""
        found = figures.moment_figures(self.rule, self.measured, self.partial)
        return found | self.raw_weights() if self.rule.weighs and self.found.by_rows else found

    def raw_weights(self) -> dict[str, float]:
        """The weight before its bounds."""
        return figures.raw_weight_figures(self.measured)

    def ratio_points(self) -> dict[str, float]:
        """The quantiles of the ratio."""
        return points.ratio_points(self.found)

    def weight_points(self) -> dict[str, float]:
        """The quantiles of the weight."""
        return points.weight_points(self.found)


PassSection = Callable[[QuickDecisions], dict[str, float]]


@of_identity
def _sections(rule: Correction) -> dict[str, PassSection]:
    """Metrics by name that are worked out from the sums and the decisions of the pass."""
    found: dict[str, PassSection] = dict.fromkeys(figures.moment_names(rule), QuickDecisions.moments)
    ratios = [*(f"ratio/{point}" for point in points.POINTS), "drift/abs_log_r_p50"]
    found |= dict.fromkeys(ratios, QuickDecisions.ratio_points)
    if rule.weighs:
        found |= dict.fromkeys([f"weight/{point}" for point in points.POINTS], QuickDecisions.weight_points)
        found |= dict.fromkeys(figures.RAW_NAMES, QuickDecisions.raw_weights)
    for index, gate in enumerate(rule.gates):
        name = gate_name(index, gate)
        measure = points.gate_points if gate.level == "sequence" else points.token_gate_points
        section = partial(_gate_section, measure, index, name)
        found |= dict.fromkeys([f"{name}/{point}" for point in points.POINTS], section)
    return found


def _gate_section(
    measure: Callable[[RowPass, int, str], dict[str, float]], index: int, name: str, quick: QuickDecisions
) -> dict[str, float]:
    return measure(quick.found, index, name)


def one_pass(rule: Correction, policies: Mapping[str, Tensor], mask: Tensor, layout: Layout) -> QuickDecisions | None:
    """The decisions of a rule in one pass; None where the call or the batch does not fit, and the plain form has to decide."""
    if not pass_fits(rule, tuple(policies.values()), mask, layout):
        return None
    return run_pass(rule, policies, rule.pair, mask, layout, complete=True, observes=True)


def run_pass(
    rule: Correction,
    policies: Mapping[str, Tensor],
    also: str,
    mask: Tensor,
    layout: Layout,
    *,
    complete: bool,
    observes: bool,
) -> QuickDecisions | None:
    """The decisions of a rule that fits, about the tokens that have the log-probs of the pair `also` too.

    `complete`: every token of the rule's own pair is known to have those. `observes`: with the moments; else they are worked out when
    one is read. Without policies of its own (it looks at none), a rule is run on that pair.
    """
    masked, pair = readable_mask(mask, layout), pair_of(rule, policies, also)
    found = _run_masked(rule, policies, also, pair, masked, layout, complete=complete, observes=observes)
    if found is None:
        return None
    return _quick(rule, policies, pair, mask, masked, layout, lambda _: found, observes=observes)


def later_pass(
    rule: Correction, policies: Mapping[str, Tensor], also: str, mask: Tensor, masked: Tensor, layout: Layout
) -> QuickDecisions:
    """The same, known to fit and to find every log-prob, and run with the moments when something is read."""
    pair = pair_of(rule, policies, also)

    def run(quick: QuickDecisions) -> RowPass:
        quick.check_unchanged()
        quick.check_mask()
        found = _run_masked(rule, policies, also, pair, masked, layout, complete=True, observes=True)
        if found is None:  # k3 is summed in another order beside the moments, and lies beside a bound there
            found = _run_masked(rule, policies, also, pair, masked, layout, complete=True, observes=False)
            assert found is not None, "a batch that was decided can be decided again"
            found.observe(*(policies[name] for name in pair.split("/")))
        return found

    return _quick(rule, policies, pair, mask, masked, layout, run, observes=True)


def _run_masked(
    rule: Correction,
    policies: Mapping[str, Tensor],
    also: str,
    pair: str,
    masked: Bool[Tensor, "*tokens"],
    layout: Layout,
    *,
    complete: bool,
    observes: bool,
) -> RowPass | None:
    target, base = (policies[name] for name in pair.split("/"))
    whole = complete or pair == also
    there = masked if whole else _with_both(policies, also, masked)
    found = row_pass(rule, target, base, there, layout, observes=observes)
    if found is not None and not whole:  # the tokens asked for, with and without log-probs
        found.sums[0] = int(masked.view(torch.uint8).sum(dtype=torch.int64))
    return found


def _quick(
    rule: Correction,
    policies: Mapping[str, Tensor],
    pair: str,
    mask: Tensor,
    masked: Tensor,
    layout: Layout,
    run: Callable[[QuickDecisions], RowPass],
    *,
    observes: bool,
) -> QuickDecisions:
    odd = None if mask.dtype == torch.bool else masked & (mask != 1)
    before = edits_before(policies, masked)
    return QuickDecisions(rule, layout, policies, pair, masked, before, odd, run, observes)


def _with_both(policies: Mapping[str, Tensor], pair: str, masked: Bool[Tensor, "*tokens"]) -> Bool[Tensor, "*tokens"]:
    """The mask less the tokens without both log-probs of a pair."""
    from trimtab.core.fast import clip_rows

    out = torch.empty_like(masked)
    arrays = [each.detach().view(-1).numpy() for each in (*(policies[name] for name in pair.split("/")), masked, out)]
    clip_rows.mask_missing(*arrays)
    return out
