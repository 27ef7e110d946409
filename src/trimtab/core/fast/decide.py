"""A rule run over a batch in one pass: the decisions per token, the sums per row and of the batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.fast.program import RowProgram, row_program
from trimtab.core.layout import Layout, Packed

_PROGRAMS: dict[int, tuple[Correction, RowProgram]] = {}
_KNOWN = 256
"""Programs kept: making one takes longer than running it on a small batch."""


@dataclass(frozen=True, eq=False)
class RowPass:
    """What the pass found: per token, per row, and of the batch (`figures.py` names the places of `sums` and `tops`)."""

    program: RowProgram
    offsets: Any  # where each row starts and ends in memory
    log_r: Float[Tensor, "*tokens"]
    weight: Float[Tensor, "*tokens"]
    trained: Bool[Tensor, "*tokens"]
    kept: Bool[Tensor, "*tokens"]
    rows: Float[Tensor, "rows columns"]
    sums: Float[Tensor, " sums"]
    tops: Float[Tensor, " tops"]


def row_pass(
    rule: Correction,
    target: Tensor,
    base: Tensor,
    masked: Bool[Tensor, "*tokens"],
    layout: Layout,
    *,
    observes: bool,
) -> RowPass | None:
    """Run a rule that fits; `observes`: with the moments. None: this batch holds numbers that only the plain form may judge."""
    from trimtab.core.fast import fold, rows  # compiled code is loaded when it is first needed

    program, offsets = _program(rule), _offsets(masked, layout)
    made = _run(program, program.is_by_rows, target, base, masked, offsets, observes)
    if made[0] == rows.TOKENS:
        made = _run(program, False, target, base, masked, offsets, observes)
    if made[0] != rows.DONE:
        return None
    found = made[1]
    codes, bounds = program.gate_codes.numpy(), program.gate_numbers.numpy()
    fold.fold_rows(found.rows.numpy(), codes, bounds, found.sums.numpy(), found.tops.numpy())
    return found


def _run(
    program: RowProgram, by_rows: bool, target: Tensor, base: Tensor, masked: Tensor, offsets: Any, observes: bool
) -> tuple[int, RowPass]:
    from trimtab.core.fast import by_tokens, machine, places, rows

    number, gates = len(offsets) - 1, len(program.gate_codes)
    log_r, weight = torch.empty_like(masked, dtype=torch.float32), torch.empty_like(masked, dtype=torch.float32)
    trained, kept = torch.empty_like(masked), torch.empty_like(masked)
    by_row = torch.zeros(number, places.ROW + gates * places.ROW_GATE, dtype=torch.float64)
    sums = torch.zeros(places.TOKEN_SUMS + gates * places.GATE_SUMS, dtype=torch.float64)
    tops = torch.full((places.TOKEN_TOPS + 2 * gates,), -torch.inf, dtype=torch.float64)
    size = rows.CHUNK + machine.BLOCK if by_rows else by_tokens.SCRATCH * int(rows.longest_chunk(offsets))
    scratch = torch.empty(size, dtype=torch.float32)
    plan = torch.tensor([by_rows, observes, program.needs_k3, program.token_limit], dtype=torch.float64)
    codes = (program.gate_codes, program.gate_numbers, program.weight_codes, program.weight_numbers, plan, scratch)
    given = (_flat(target), _flat(base), _flat(masked.view(torch.uint8)), offsets)
    flags = (_flat(trained.view(torch.uint8)), _flat(kept.view(torch.uint8)))
    found = (_flat(log_r), _flat(weight), *flags, by_row.numpy(), sums.numpy(), tops.numpy())
    state = rows.decide_rows(*given, *(each.numpy() for each in codes), *found)
    return state, RowPass(program, offsets, log_r, weight, trained, kept, by_row, sums, tops)


def _program(rule: Correction) -> RowProgram:
    known = _PROGRAMS.get(id(rule))
    if known is None:
        if len(_PROGRAMS) >= _KNOWN:
            _PROGRAMS.clear()
        known = _PROGRAMS[id(rule)] = rule, row_program(rule)  # with the rule, so that no other gets its id
    return known[1]


def _offsets(masked: Tensor, layout: Layout) -> Any:
    """Where each row starts and ends in memory."""
    if isinstance(layout, Packed):
        return layout.cu_seqlens.to(torch.int64).contiguous().numpy()
    rows, width = masked.shape
    return torch.arange(0, rows + 1, dtype=torch.int64).mul_(width).numpy()


def _flat(tensor: Tensor) -> Any:
    return tensor.detach().view(-1).numpy()
