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
    rows: Any  # arrays of float64
    sums: Any
    tops: Any
    counts: list[Any] = field(default_factory=list[Any])
    """How many trained log-ratios lie in each bin, once a quantile was asked for."""
    shares: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """The quantiles of the trained log-ratios and of the kept ones, once they were asked for."""

    def observe(self, target: Tensor, base: Tensor) -> None:
        """Add the moments, where the pass was run without them."""
        from trimtab.core.fast import machine, tokens

        scratch = torch.empty(3 * machine.BLOCK, dtype=torch.float32).numpy()
        given = (flat(self.log_r), flat(target), flat(base), flat_marks(self.trained))
        if self.by_rows:
            rows = (self.offsets, scratch, self.rows)
            tokens.observe_rows(*given, *rows, self.sums, self.tops)
        else:
            tokens.observe_tokens(*given, scratch, self.sums, self.tops)
        self.observe_gates()

    def observe_gates(self) -> None:
        """Add the moments of what gates on tokens measured, which go by those of all tokens."""
        from trimtab.core.fast import fold

        if self.by_rows and self.program.has_token_gates:
            given = (flat(self.log_r), flat_marks(self.trained), self.offsets, self.rows)
            fold.observe_gates(*given, self.program.gate_codes.numpy(), self.sums)


@dataclass(frozen=True, eq=False)
class Loaded:
    """A program with its arrays as compiled code takes them, and a plan for each way to run it."""

    program: RowProgram
    arrays: tuple[Any, ...]
    plans: dict[tuple[bool, bool], Any]  # by rows alone, with moments
    bare: Any  # by rows alone, without moments and sums of weights


@of_identity
def load_program(rule: Correction) -> Loaded:
    """The program of a rule that fits: making one takes longer than running it on a small batch."""
    program = row_program(rule)
    parts = (program.gate_codes, program.gate_numbers, program.weight_codes, program.weight_numbers)
    plans = {
        (by_rows, observes): torch.tensor(
            [by_rows, observes, program.needs_k3, program.token_limit, False], dtype=torch.float64
        ).numpy()
        for by_rows in (False, True)
        for observes in (False, True)
    }
    bare = plans[True, False].copy()
    bare[4] = True
    return Loaded(program, tuple(part.numpy() for part in parts), plans, bare)


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

    loaded, offsets = load_program(rule), row_offsets(masked, layout)
    by_rows = goes_by_rows(loaded.program, masked, offsets)
    state, found = _run(loaded, by_rows, target, base, masked, offsets, observes)
    if state == places.TOKENS:
        state, found = _run(loaded, False, target, base, masked, offsets, observes)
    if state != places.DONE:
        return None
    if observes:
        found.observe_gates()
    fold.fold_rows(found.rows, *loaded.arrays[:2], found.sums, found.tops)
    return found


def goes_by_rows(program: RowProgram, masked: Tensor, offsets: Any) -> bool:
    """Whether the sums and extremes of rows can decide, and rows are long enough."""
    return program.is_by_rows and masked.numel() >= SHORT * (len(offsets) - 1)


def _run(
    loaded: Loaded, by_rows: bool, target: Tensor, base: Tensor, masked: Tensor, offsets: Any, observes: bool
) -> tuple[int, RowPass]:
    import numpy as np

    from trimtab.core.fast import by_tokens, rows

    number, gates = len(offsets) - 1, len(loaded.arrays[0])
    numbers, flags = _fresh(masked, np.float32), _fresh(masked, np.bool_)
    by_row, sums, tops = fresh_sums(number, gates)
    size = rows.SCRATCH if by_rows else by_tokens.SCRATCH * int(rows.longest_chunk(offsets))
    scratch = np.empty(size, np.float32), np.empty(rows.ENDS, np.int64)
    given = (flat(target), flat(base), flat(masked).view(np.uint8), offsets)
    marks = flags.view(np.uint8)
    found = (*numbers, *marks, by_row, sums, tops)
    state = rows.decide_rows(*given, *loaded.arrays, loaded.plans[by_rows, observes], *scratch, *found)
    log_r, weight, trained, kept = (torch.from_numpy(each.reshape(masked.shape)) for each in (*numbers, *flags))
    return state, RowPass(loaded.program, by_rows, offsets, log_r, weight, trained, kept, by_row, sums, tops)


def fresh_sums(rows: int, gates: int) -> tuple[Any, Any, Any]:
    """Room for the numbers of each row, and for the sums and the extremes of the batch."""
    import numpy as np

    from trimtab.core.fast import places

    by_row = np.zeros((rows, places.ROW + gates * places.ROW_GATE))
    sums = np.zeros(places.TOKEN_SUMS + gates * places.GATE_SUMS)
    return by_row, sums, np.full(places.TOKEN_TOPS + 2 * gates, -np.inf)


def _fresh(masked: Tensor, kind: Any) -> Any:
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


def flat(tensor: Tensor) -> Any:
    """The numbers of a contiguous tensor as an array of one dimension."""
    return tensor.detach().numpy().reshape(-1)


def flat_marks(flags: Tensor) -> Any:
    """The same of booleans, as bytes."""
    return flags.numpy().reshape(-1).view("uint8")
