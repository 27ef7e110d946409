"""PPO's clip by kernels: the correction, the loss and its gradient without a number read on the host.

decide_rows ─► weight, kept ─► clip_rows ─► gradient      fold_records ─► write_loss ─► loss, metrics
    └─► fold_records ─► counts ───┘   └─► records ──────────┘
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.config.losses import Clip
from trimtab.core.batch import number_of_sequences, per_token
from trimtab.core.fast.kernels import (
    KernelDecisions,
    KernelPass,
    block_of,
    flag_bytes,
    folded,
    kernel_decisions,
    where_rows_lie,
)
from trimtab.core.layout import Packed
from trimtab.losses.call import LossCall


@dataclass(frozen=True, eq=False)
class KernelClip:
    """What the kernels made of a loss."""

    quick: KernelDecisions
    loss: Float[Tensor, ""]
    gradient: list[Float[Tensor, "*tokens"]]
    figures: dict[str, Float[Tensor, ""]]
    """The metrics of the loss, and those of the correction that look at advantages."""


@torch.no_grad()
def clip_by_kernels(call: LossCall, rule: Correction) -> KernelClip:
    """The correction and the clip of a call that fits."""
    from trimtab.core.fast.cuda import clip
    from trimtab.core.fast.cuda.launch import launch

    current, anchor = call.policies["current"].detach(), call.policies[call.anchor].detach()
    quick = kernel_decisions(rule, call.policies, f"current/{call.anchor}", call.mask, call.layout)
    found, tokens = quick.found, call.mask.numel()
    rows, offsets, width = where_rows_lie(flag_bytes(call.mask), call.layout)
    count, scale, averaged_over = _divisor(call, rule, found)
    advantages, by_row = _advantages(call)
    gradient = torch.empty_like(current, dtype=torch.float32)
    records = gradient.new_empty(rows, sum(clip.SIZES) + 2, dtype=torch.float64)
    divided, divisor = count is not None, records if count is None else count
    launch(
        clip.clip_rows,
        rows,
        current,
        (current, anchor, advantages),
        (found.weight, flag_bytes(found.trained), flag_bytes(found.kept)),
        gradient,
        records,
        offsets,
        width,
        _settings(call),
        divisor,
        scale,
        torch.finfo(torch.float32).max / tokens,
        divided=divided,
        by_row=by_row,
        packed=isinstance(call.layout, Packed),
        block=block_of(tokens, rows),
    )
    record, loss, out = folded(records, clip.SIZES), gradient.new_empty(()), gradient.new_empty(len(clip.NAMES))
    quotients = tuple(clip.QUOTIENTS.values())
    launch(clip.write_loss, 1, record, record, loss, out, divisor, scale, float(averaged_over), divided, quotients)
    return KernelClip(quick, loss, [gradient], dict(zip(clip.NAMES, out.unbind(), strict=True)))


def _settings(call: LossCall) -> tuple[float, float, float]:
    """1 − low, 1 + high and the dual bound."""
    loss = call.loss
    assert isinstance(loss, Clip)
    return 1.0 - loss.low, 1.0 + loss.high, torch.inf if loss.dual is None else loss.dual


def _advantages(call: LossCall) -> tuple[Tensor, bool]:
    """Advantages as given, and whether they are one per row; shapes are checked as `per_token` does."""
    given, rows = call.advantages.detach(), number_of_sequences(call.mask, call.layout)
    by_row = given.shape == (rows, 1) or (given.shape != call.mask.shape and given.shape == (rows,))
    if not by_row:
        given = per_token(given, call.mask, call.layout)
    return given.contiguous(), by_row


def _divisor(call: LossCall, rule: Correction, found: KernelPass) -> tuple[Tensor | None, float, int]:
    """A count on the device to divide by, what to multiply by, and over how many ranks gradients are averaged.

    The counts are those of the step or, where this call is the step, of the batch's own record.
    """
    from trimtab.core.fast.cuda import places

    step, by_token = call.denominator, call.reduction.mode == "token-mean"
    averaged_over = 1 if step is None else step.averaged_over
    scale = averaged_over / (call.reduction.constant or 1.0)
    if call.reduction.mode == "token-sum":
        return None, scale, averaged_over
    if step is None:
        after = rule.denominator == "kept"
        tokens, rows = (places.KEPT, places.ROWS_KEPT) if after else (places.TRAINED, places.ROWS)
        return found.record[0, (tokens if by_token else rows).value], scale, averaged_over
    count = step.tokens if by_token else step.sequences
    if isinstance(count, Tensor) and count.device == found.records.device:
        return count, scale, averaged_over
    number = float(count)
    return None, scale / number if number > 0 else 0.0, averaged_over
