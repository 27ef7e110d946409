"""The hand-over to the kernels of `cuda/`: one decides, then a record of the batch is folded and its metrics written, when one is read.

    decide_rows ─► log r, weight, trained, kept          fold_records ─► a record of the batch ─► write_figures ─► metrics
               └─► a record of each row ────────────────────┘

Nothing is read on the host: numbers of the rule are arguments, sums and metrics stay on the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.checks import rounding
from trimtab.core.fast.decided import PassDecisions, edits_before, pair_of, readable_mask
from trimtab.core.fast.program import row_program
from trimtab.core.fast.switch import made_by_kernels
from trimtab.core.layout import Layout, Packed
from trimtab.core.once import of_identity, once

SHORT, BLOCK = 128, 1024
"""Tokens of a row that a kernel looks at together: of short rows, and of others. Each is compiled once for a rule's codes."""
RUN, TABLE = 1024, 32
"""Records that one program folds into one, and how many of them at a time."""


@dataclass(frozen=True, eq=False)
class KernelPlan:
    """A rule as kernels take it: codes, for which they are compiled, and numbers, which are arguments."""

    gates: tuple[tuple[int, ...], ...]
    numbers: tuple[tuple[float, ...], ...]
    weighs: tuple[int, ...]
    limits: tuple[float, ...]
    figures: Any  # a FigurePlan, which cannot be named where Triton is not installed


@of_identity
def kernel_plan(rule: Correction) -> KernelPlan:
    """The plan of a rule that fits."""
    from trimtab.core.fast.cuda.figures import figure_plan

    program = row_program(rule)
    gates = tuple(tuple(codes) for codes, _ in program.gates)
    numbers = tuple(tuple(each) for _, each in program.gates) or ((0.0, 0.0, 0.0),)  # an empty tuple is no argument
    weighs, limits = program.weight
    return KernelPlan(gates, numbers, tuple(weighs), tuple(limits), figure_plan(rule))


@dataclass(frozen=True, eq=False)
class KernelPass:
    """What the kernels found: decisions per token, and a record of each row (`cuda/places.py`)."""

    plan: KernelPlan
    log_r: Float[Tensor, "*tokens"]
    weight: Float[Tensor, "*tokens"]
    trained: Bool[Tensor, "*tokens"]
    kept: Bool[Tensor, "*tokens"]
    records: Float[Tensor, "rows columns"]

    @once
    def record(self) -> Float[Tensor, "1 columns"]:
        """That of the batch."""
        from trimtab.core.fast.cuda import places

        return folded(self.records, places.record_sizes(len(self.plan.gates)))

    @once
    def figures(self) -> dict[str, Float[Tensor, ""]]:
        """Every metric but quantiles."""
        from trimtab.core.fast.cuda import figures, places
        from trimtab.core.fast.cuda.launch import launch

        plan, (sums, tops, count) = self.plan.figures, places.record_sizes(len(self.plan.gates))
        out = self.records.new_empty(len(plan.names), dtype=torch.float32)
        tables = (plan.quotients, plan.counts, plan.tops, plan.described, plan.shares)
        launch(figures.write_figures, 1, out, self.record, out, *tables, sums, sums + tops, count)
        return dict(zip(plan.names, out.unbind(), strict=True))


def folded(records: Float[Tensor, "rows columns"], sizes: tuple[int, int, int]) -> Float[Tensor, "1 columns"]:
    """Records of rows as one; `sizes`: how many sums, extremes and descriptions one holds."""
    from trimtab.core.fast.cuda import fold
    from trimtab.core.fast.cuda.launch import launch

    wide = tuple(max(1 << (size - 1).bit_length(), 2) for size in sizes)
    while len(records) > 1:
        rows, columns = records.shape
        out = records.new_empty(-(-rows // RUN), columns)
        run = min(rows, RUN)
        launch(fold.fold_records, len(out), out, records, out, rows, run, columns, *sizes, *wide, block=TABLE)
        records = out
    return records


@dataclass(frozen=True, eq=False)
class KernelDecisions(PassDecisions):
    """What the kernels decided about a batch. Quantiles are the plain form's."""

    found: KernelPass

    def known_section(self, name: str) -> dict[str, Tensor] | None:
        """Every metric but quantiles, all at once."""
        if name not in self.found.plan.figures.names:
            return None
        return made_by_kernels(lambda: self.found.figures)


def kernel_decisions(
    rule: Correction, policies: Mapping[str, Tensor], also: str | None, mask: Tensor, layout: Layout
) -> KernelDecisions:
    """The decisions of a rule that fits, about the tokens that have the log-probs of the pair `also` too, where one is named."""
    masked, pair = readable_mask(mask, layout), pair_of(rule, policies, also or rule.pair)
    target, base = (policies[name] for name in pair.split("/"))
    joint = None if also in (None, pair) else tuple(policies[name] for name in also.split("/"))
    found = _run(rule, target, base, joint, mask, masked, layout)
    return KernelDecisions(rule, layout, policies, pair, masked, edits_before(policies, masked), found)


def _run(
    rule: Correction,
    target: Tensor,
    base: Tensor,
    joint: tuple[Tensor, ...] | None,
    mask: Tensor,
    like: Tensor,
    layout: Layout,
) -> KernelPass:
    from trimtab.core.fast.cuda import decide, places
    from trimtab.core.fast.cuda.launch import launch

    plan, (rows, offsets, width) = kernel_plan(rule), where_rows_lie(flag_bytes(mask), layout)
    log_r, weight = (torch.empty_like(like, dtype=torch.float32) for _ in range(2))
    trained, kept = (torch.empty_like(like, dtype=torch.bool) for _ in range(2))
    columns = places.columns(len(plan.gates))
    records = torch.empty(rows, columns, dtype=torch.float64, device=mask.device)
    beside = joint or (target, base)
    given = (target.detach(), base.detach(), flag_bytes(mask.detach()), *(each.detach() for each in beside))
    launch(
        decide.decide_rows,
        rows,
        mask,
        given,
        (log_r, weight, flag_bytes(trained), flag_bytes(kept)),
        records,
        offsets,
        width,
        plan.numbers,
        plan.limits,
        tuple(rounding(each.dtype) for each in (target, base, *beside)),
        columns=columns,
        gates=plan.gates,
        weighs=plan.weighs,
        packed=isinstance(layout, Packed),
        joint=joint is not None,
        block=block_of(mask.numel(), rows),
    )
    return KernelPass(plan, log_r, weight, trained, kept, records)


def block_of(tokens: int, rows: int) -> int:
    """How many tokens of a row a kernel looks at together."""
    return SHORT if tokens <= SHORT * rows else BLOCK


def where_rows_lie(mask: Tensor, layout: Layout) -> tuple[int, Tensor, int]:
    """How many rows there are, and what a kernel finds them by: offsets (any tensor, where it needs none) and a width."""
    if isinstance(layout, Packed):
        return len(layout.cu_seqlens) - 1, layout.cu_seqlens.contiguous(), 0
    return len(mask), mask, mask.shape[1]


def flag_bytes(flags: Tensor) -> Tensor:
    """Booleans as the bytes they are; other tensors as they are."""
    return flags.view(torch.uint8) if flags.dtype == torch.bool else flags
