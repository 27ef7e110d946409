"""A correction and a clip in one sweep over the tokens, where the rows of a batch can be decided one by one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.core.fast.decide import flat, flat_marks, fresh_sums, load_program


def row_lengths(masked: Tensor, offsets: Any) -> Any:
    """The tokens of the mask in each row, before anything is known to be missing."""
    import numpy as np

    from trimtab.core.fast import slope_rows

    lengths = np.empty(len(offsets) - 1)
    slope_rows.count_rows(flat_marks(masked), offsets, lengths)
    return lengths


def slope_pass(
    rule: Correction,
    pair: tuple[Tensor, Tensor],
    masked: Tensor,
    offsets: Any,
    clipped: tuple[Any, ...],
    settings: Any,
    factor: Any,
) -> tuple[Any, float] | None:
    """Write the slopes of a loss behind its correction; the numbers of each row, and the sum of the loss.

    For a program and rows that can be decided one by one. `clipped`: arrays of the current log-probs, their anchor, the advantages, and
    where slopes go. None: something of this batch has to be looked at again, and what was written means nothing.
    """
    import numpy as np

    from trimtab.core.fast import clip_rows, rows, slope_rows

    loaded = load_program(rule)
    by_row, sums, tops = fresh_sums(len(offsets) - 1, len(loaded.arrays[0]))
    longest, total = int(rows.longest_chunk(offsets)), np.zeros(1)
    room = np.empty(rows.SCRATCH, np.float32), np.empty(rows.ENDS, np.int64)
    tokens = np.empty((2, longest), np.float32), np.empty((2, longest), np.uint8)
    given = (*(flat(each) for each in pair), flat_marks(masked), offsets)
    written = (by_row, sums, tops, clipped, settings, factor, total)
    state = slope_rows.slope_rows(*given, *loaded.arrays, loaded.bare, *room, *tokens, *written)
    return (by_row, float(total[0])) if state == clip_rows.SLOPED else None


def clip_totals(
    policies: tuple[Any, ...], advantages: Any, decided: tuple[Any, ...], settings: Any
) -> tuple[list[float], list[float]]:
    """The sums and extremes that the metrics of a clip are made of (`clip_rows.clip_sums` names their places)."""
    import numpy as np

    from trimtab.core.fast import clip_rows

    sums, tops = np.zeros(clip_rows.SUMS), np.full(2, -np.inf)
    clip_rows.clip_sums(*policies, advantages, *decided, settings, sums, tops)
    return sums.tolist(), tops.tolist()


def as_numbers(*values: float) -> Any:
    """Numbers as compiled code takes them, in float32."""
    import numpy as np

    return np.array(values, np.float32)


def scale_slopes(slopes: Tensor, factor: float) -> None:
    """Multiply slopes that were written for another count of tokens."""
    from trimtab.core.fast import machine, slope_rows

    slope_rows.scale_in_place(flat(slopes), machine.f32(factor))
