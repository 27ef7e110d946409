"""The hand-over from the plain form: decisions by the fast pass where they fit, metrics from its sums, the rest made when it is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.config.correction import Correction
from trimtab.core import gate_measures, measures
from trimtab.core.batch import as_mask, check_unchanged, edits
from trimtab.core.cached import cache_by_identity, cached
from trimtab.core.decisions import Decisions
from trimtab.core.fast import metrics
from trimtab.core.fast.fits import ON_TOKENS, TOKEN, pass_fits
from trimtab.core.layout import Layout, Packed
from trimtab.core.measures import Measure
from trimtab.core.metrics import Metrics, measures_of
from trimtab.errors import InputError

SMALL = 4096
"""Tokens of which every metric is worked out faster than it takes to ask for one after the other."""


@dataclass(frozen=True, eq=False)
class FastRun:
    """One run of the pass, per token, per row and of the batch: what `records.py` names."""

    program: Any
    offsets: Any  # where each row starts and ends in memory
    log_r: Float[Tensor, "*tokens"]
    weight: Float[Tensor, "*tokens"]
    trained: Bool[Tensor, "*tokens"]
    kept: Bool[Tensor, "*tokens"]
    rows: Any
    judged: Any
    totals: Any
    of_gates: Any

    @cached
    def total(self) -> dict[str, float]:
        """The sums and extremes of the batch."""
        return metrics.as_numbers(self.totals[0])

    @cached
    def raw_weights(self) -> tuple[float, float, float, float]:
        """Σw, Σw² and the logarithms of the least and the greatest w before bounds, of the kept tokens."""
        import numpy as np

        from trimtab.core.fast import weight

        if self.program.weight["level"] != TOKEN:
            return weight.raw_row_weights(self.rows)
        limited = self.program.weight["limit_at"] == ON_TOKENS
        limit = self.program.weight["limit"] if limited else np.float32(np.inf)
        return weight.raw_token_weights(flat(self.log_r), flat_marks(self.kept), self.offsets, self.rows, limit)

    @cached
    def log_r_counts(self) -> Any:
        """How many trained log-ratios lie in each bin of their quantiles."""
        from trimtab.core.fast import quantiles

        return quantiles.counts_of(flat(self.log_r), flat_marks(self.trained))

    @cached
    def log_r_quantiles(self) -> list[float]:
        """The quantiles of the trained log-ratios."""
        from trimtab.core.fast import quantiles

        return quantiles.log_r_quantiles(self)

    @cached
    def kept_log_r_quantiles(self) -> list[float]:
        """Those of the kept ones."""
        from trimtab.core.fast import quantiles

        return quantiles.kept_log_r_quantiles(self)


@dataclass(frozen=True, eq=False)
class FastDecisions:
    """What the pass decided about a batch. From `masked` the plain form can be made later, if nobody changed it since."""

    rule: Correction
    layout: Layout
    policies: Mapping[str, Tensor]
    pair: str
    masked: Bool[Tensor, "*tokens"]
    present: Bool[Tensor, "*tokens"]
    """The same less the tokens that lack a log-prob of another pair."""
    before: Mapping[str, int | None]
    odd: Bool[Tensor, "*tokens"] | None
    """Where a mask is neither 0 nor 1; None: it is boolean."""

    @cached
    def run(self) -> FastRun | None:
        """The run of the pass, made when it is first read; None: the batch is left to the plain form."""
        self.check_unchanged()
        self.check_mask()
        return _run(self)

    @cached
    def partial(self) -> float:
        """How many trained tokens have a mask that is neither 0 nor 1."""
        return 0.0 if self.odd is None or self.run is None else float((self.run.trained & self.odd).sum())

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
                "Metrics need the mask they are worked out from, got a tensor that was modified in place. "
                "Read the metrics first, or pass a copy."
            )

    def known_section(self, name: str) -> dict[str, Tensor] | None:
        """A metric and the others of its section, from the sums and the decisions of the pass; of a small batch, all at once.

        None: the pass does not give it, and the plain form has to.
        """
        sections, run = _sections(self.rule), self.run
        if name not in sections or run is None:
            return None
        asked = sections.values() if self.masked.numel() <= SMALL else [sections[name]]
        values: dict[str, float] = {}
        for section in dict.fromkeys(asked):
            values |= section(self, run)
        return metrics.as_tensors(values) if name in values else None


Section = Callable[[FastDecisions, FastRun], dict[str, float]]


@cache_by_identity
def _sections(rule: Correction) -> dict[str, Section]:
    """What works out each metric of the plain form from the sums and the decisions of the pass."""
    table = measures_of(rule)
    sections = {measure: _section(measure) for measure in dict.fromkeys(table.values())}
    return {name: sections[measure] for name, measure in table.items()}


def _section(measure: Measure) -> Section:
    """The fast form of a section: quantiles and raw weights have one of their own, all others are among the moments."""
    from trimtab.core.fast import quantiles

    known: dict[Measure, Callable[[FastRun], dict[str, float]]] = {
        measures.ratio_quantiles: quantiles.ratio_quantiles,
        measures.weight_quantiles: quantiles.weight_quantiles,
        measures.raw_weight: metrics.raw_weights,
    }
    if isinstance(measure, partial) and measure.func is gate_measures.gate_quantiles:
        known[measure] = partial(quantiles.gate_quantiles, *measure.args)
    if measure not in known:
        return _moments
    return lambda _, run: known[measure](run)


def _moments(decided: FastDecisions, run: FastRun) -> dict[str, float]:
    return metrics.moments(decided.rule, run, decided.partial)


def fast_decisions(
    rule: Correction, policies: Mapping[str, Tensor], mask: Tensor, layout: Layout
) -> FastDecisions | None:
    """The decisions of a rule in one pass; None where the call or the batch does not fit, and the plain form has to decide."""
    if not pass_fits(rule, tuple(policies.values()), mask, layout):
        return None
    masked = readable_mask(mask, layout)
    decided = later_decisions(rule, policies, rule.pair, (mask, masked, masked), layout)
    return None if decided.run is None else decided


def later_decisions(
    rule: Correction,
    policies: Mapping[str, Tensor],
    pair: str,
    masks: tuple[Tensor, Bool[Tensor, "*tokens"], Bool[Tensor, "*tokens"]],
    layout: Layout,
) -> FastDecisions:
    """The same, known to fit and run on a pair when something is read.

    `masks`: as given, as it is read later, and less the tokens that lack a log-prob of another pair.
    """
    mask, masked, present = masks
    odd = None if mask.dtype == torch.bool else masked & (mask != 1)
    before = {name: edits(each) for name, each in (*policies.items(), ("mask", masked))}
    return FastDecisions(rule, layout, policies, pair, masked, present, before, odd)


def _run(decided: FastDecisions) -> FastRun | None:
    """Run a rule with its moments. None: this batch holds numbers that only the plain form may judge."""
    import numpy as np

    from trimtab.core.fast import loops, records, stages  # compiled code is loaded when it is first needed

    masked, present, policies = decided.masked, decided.present, decided.policies
    offsets, program = row_offsets(masked, decided.layout), records.program(decided.rule)
    numbers, flags = _room(masked, np.float32), _room(masked, np.bool_)
    sums = rows, judged, totals, of_gates = records.fresh_sums(len(offsets) - 1, len(program.gates))
    given = (*(flat(policies[name]) for name in decided.pair.split("/")), flat_marks(present))
    tokens = (*numbers, *flags.view(np.uint8))
    if not stages.decide_rows(given, offsets, tokens, (program.gates, program.weights, True), scratch(offsets), sums):
        return None
    if present is not masked:  # the tokens asked for, with and without log-probs
        totals["masked"] = loops.count_bytes(flat_marks(masked))
    log_r, weight, trained, kept = (torch.from_numpy(each.reshape(masked.shape)) for each in (*numbers, *flags))
    return FastRun(program, offsets, log_r, weight, trained, kept, rows, judged, totals, of_gates)


def scratch(offsets: Any) -> tuple[Any, Any, Any]:
    """Room for the stages of a chunk: numbers and flags of its tokens, offsets of its rows."""
    import numpy as np

    from trimtab.core.fast import stages

    longest = int(stages.longest_chunk(offsets))
    numbers = np.empty((stages.SCRATCH, longest), np.float32)
    return numbers, np.empty((stages.FLAGS, longest), np.uint8), np.empty(stages.CHUNK + 1, np.int64)


def _room(masked: Tensor, kind: Any) -> Any:
    """Room for two tensors that lie one behind the other.

    The system gets large pieces back once enough of them are free at the end of the heap, and their pages cost as much as the pass
    when they come again. It keeps twice the largest piece: one of both sizes, and all that a call frees stays.
    """
    import numpy as np

    return np.empty((2, masked.numel()), dtype=kind)


def row_offsets(masked: Tensor, layout: Layout) -> Any:
    """Where each row starts and ends in memory."""
    import numpy as np

    if isinstance(layout, Packed):
        return np.ascontiguousarray(layout.cu_seqlens.numpy(), dtype=np.int64)
    rows, width = masked.shape
    return np.arange(0, rows * width + 1, width, dtype=np.int64) if width else np.zeros(rows + 1, dtype=np.int64)


def with_both(policies: Mapping[str, Tensor], pair: str, masked: Bool[Tensor, "*tokens"]) -> Bool[Tensor, "*tokens"]:
    """The mask less the tokens without both log-probs of a pair."""
    from trimtab.core.fast import clip

    out = torch.empty_like(masked)
    clip.mask_missing(*(flat(policies[name]) for name in pair.split("/")), flat(masked), flat(out))
    return out


def flat(tensor: Tensor) -> Any:
    """The numbers of a contiguous tensor as an array of one dimension."""
    return tensor.detach().numpy().reshape(-1)


def flat_marks(flags: Tensor) -> Any:
    """The same of booleans, as bytes."""
    return flags.numpy().reshape(-1).view("uint8")


def readable_mask(mask: Tensor, layout: Layout) -> Bool[Tensor, "*tokens"]:
    """The mask as metrics will read it later: the caller's own where a change would be noticed, else a copy.

    Over ranks every metric is the plain form's, and a tensor of inference mode does not count its changes.
    """
    is_safe = mask.dtype == torch.bool and layout.ranks.whole is None and not mask.is_inference()
    return mask.detach() if is_safe else as_mask(mask)


def pair_of(rule: Correction, policies: Mapping[str, Tensor], also: str) -> str:
    """The pair of policies a rule is run on: its own or, where it looks at none of these, the other one."""
    return rule.pair if all(name in policies for name in rule.pair.split("/")) else also
