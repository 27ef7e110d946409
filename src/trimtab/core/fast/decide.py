"""A rule run over a batch in one pass: the decisions per token, the sums per row and of the batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.fast.program import RowProgram, row_program
from trimtab.core.layout import Layout, Packed
from trimtab.core.once import of_identity

SHORT = 64
"""Rows of fewer tokens on average are judged by chunks: a vector is longer than they are."""


@dataclass(frozen=True, eq=False)
class RowPass:
    """What the pass found: per token, per row, and of the batch (`figures.py` names the places of `sums` and `tops`)."""

    program: RowProgram
    by_rows: bool
    offsets: Any  # where each row starts and ends in memory
    log_r: Float[Tensor, "*tokens"]
    weight: Float[Tensor, "*tokens"]
    trained: Bool[Tensor, "*tokens"]
    kept: Bool[Tensor, "*tokens"]
    rows: Float[Tensor, "rows columns"]
    sums: Float[Tensor, " sums"]
    tops: Float[Tensor, " tops"]
    counts: list[Any] = field(default_factory=list[Any])
    """How many trained log-ratios lie in each bin, once a quantile was asked for."""

    def observe(self, target: Tensor, base: Tensor) -> None:
        """Add the moments, where the pass was run without them."""
        from trimtab.core.fast import machine, tokens

        scratch = torch.empty(3 * machine.BLOCK, dtype=torch.float32).numpy()
        given = (_flat(self.log_r), _flat(target), _flat(base), _bytes(self.trained))
        if self.by_rows:
            rows = (self.offsets, scratch, self.rows.numpy())
            tokens.observe_rows(*given, *rows, self.sums.numpy(), self.tops.numpy())
        else:
            tokens.observe_tokens(*given, scratch, self.sums.numpy(), self.tops.numpy())
        self.observe_gates()

    def observe_gates(self) -> None:
        """Add the moments of what gates on tokens measured, which go by those of all tokens."""
        from trimtab.core.fast import fold

        if self.by_rows and self.program.has_token_gates:
            given = (_flat(self.log_r), _bytes(self.trained), self.offsets, self.rows.numpy())
            fold.observe_gates(*given, self.program.gate_codes.numpy(), self.sums.numpy())


@dataclass(frozen=True, eq=False)
class Loaded:
    """A program with its arrays as compiled code takes them, and a plan for each way to run it."""

    program: RowProgram
    arrays: tuple[Any, ...]
    plans: dict[tuple[bool, bool], Any]


@of_identity
def load_program(rule: Correction) -> Loaded:
    """The program of a rule that fits: making one takes longer than running it on a small batch."""
    program = row_program(rule)
    parts = (program.gate_codes, program.gate_numbers, program.weight_codes, program.weight_numbers)
    plans = {
        (by_rows, observes): torch.tensor(
            [by_rows, observes, program.needs_k3, program.token_limit], dtype=torch.float64
        ).numpy()
        for by_rows in (False, True)
        for observes in (False, True)
    }
    return Loaded(program, tuple(part.numpy() for part in parts), plans)


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
    from trimtab.core.fast import fold, places  # compiled code is loaded when it is first needed

    loaded, offsets = load_program(rule), _offsets(masked, layout)
    by_rows = loaded.program.is_by_rows and masked.numel() >= SHORT * (len(offsets) - 1)
    state, found = _run(loaded, by_rows, target, base, masked, offsets, observes)
    if state == places.TOKENS:
        state, found = _run(loaded, False, target, base, masked, offsets, observes)
    if state != places.DONE:
        return None
    if observes:
        found.observe_gates()
    fold.fold_rows(found.rows.numpy(), *loaded.arrays[:2], found.sums.numpy(), found.tops.numpy())
    return found


def _run(
    loaded: Loaded, by_rows: bool, target: Tensor, base: Tensor, masked: Tensor, offsets: Any, observes: bool
) -> tuple[int, RowPass]:
    from trimtab.core.fast import by_tokens, places, rows

    number, gates = len(offsets) - 1, len(loaded.arrays[0])
    log_r, weight = _pair_like(masked)
    trained, kept = torch.empty_like(masked), torch.empty_like(masked)
    by_row = torch.zeros(number, places.ROW + gates * places.ROW_GATE, dtype=torch.float64)
    sums = torch.zeros(places.TOKEN_SUMS + gates * places.GATE_SUMS, dtype=torch.float64)
    tops = torch.full((places.TOKEN_TOPS + 2 * gates,), -torch.inf, dtype=torch.float64)
    size = rows.SCRATCH if by_rows else by_tokens.SCRATCH * int(rows.longest_chunk(offsets))
    scratch = torch.empty(size, dtype=torch.float32).numpy()
    given = (_flat(target), _flat(base), _bytes(masked), offsets)
    found = (_flat(log_r), _flat(weight), _bytes(trained), _bytes(kept), by_row.numpy(), sums.numpy(), tops.numpy())
    state = rows.decide_rows(*given, *loaded.arrays, loaded.plans[by_rows, observes], scratch, *found)
    return state, RowPass(loaded.program, by_rows, offsets, log_r, weight, trained, kept, by_row, sums, tops)


def _pair_like(masked: Tensor) -> tuple[Tensor, Tensor]:
    """Two tensors of numbers that lie one behind the other, in storages of their own.

    The system gets large pieces back once enough of them are free at the end of the heap, and their pages cost as much as the pass
    when they come again. It keeps twice the largest piece: one of both sizes, and all that a call frees stays.
    """
    import numpy as np

    number = masked.numel()
    both = np.empty(2 * number, dtype=np.float32)
    return torch.from_numpy(both[:number]).view(masked.shape), torch.from_numpy(both[number:]).view(masked.shape)


def _offsets(masked: Tensor, layout: Layout) -> Any:
    """Where each row starts and ends in memory."""
    if isinstance(layout, Packed):
        return layout.cu_seqlens.to(torch.int64).contiguous().numpy()
    rows, width = masked.shape
    return torch.arange(0, rows * width + 1, width, dtype=torch.int64).numpy()


def _flat(tensor: Tensor) -> Any:
    return tensor.detach().view(-1).numpy()


def _bytes(flags: Tensor) -> Any:
    return flags.view(torch.uint8).view(-1).numpy()
