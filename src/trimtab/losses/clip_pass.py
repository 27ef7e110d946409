"""PPO's clip by the pass on a CPU: the correction, the loss and its gradient, and the sums its metrics are made of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.config.losses import Clip, Objective
from trimtab.core.batch import edits, per_token
from trimtab.core.checks import rounding
from trimtab.core.fast.decide import flat, flat_marks, goes_by_rows, load_program, row_offsets
from trimtab.core.fast.decided import pair_of, readable_mask
from trimtab.core.fast.figures import as_tensors
from trimtab.core.fast.onepass import QuickDecisions, later_pass, run_pass
from trimtab.core.fast.sloped import as_numbers, clip_totals, row_lengths, scale_slopes, slope_pass
from trimtab.core.once import once
from trimtab.core.reduce import Denominator, common_factor
from trimtab.errors import InputError
from trimtab.losses.call import LossCall


@dataclass(frozen=True, eq=False)
class ClippedPass:
    """What a pass made of a loss: its value, and the arrays its metrics are worked out from when read."""

    quick: QuickDecisions
    loss: Tensor
    averaged_over: int
    anchor: str
    arrays: tuple[Any, ...]  # current log-probs, their anchor, advantages
    settings: Any
    advantages: Tensor
    edits: int | None

    @once
    def sums(self) -> tuple[list[float], list[float]]:
        """The sums and extremes of `clip_rows.clip_sums`."""
        self.quick.check_unchanged()
        if self.edits != edits(self.advantages):
            raise InputError(
                "Metrics need the advantages they are worked out from, got a tensor changed in place since. "
                "Read them before, or pass a copy."
            )
        current, anchor, advantages = self.arrays
        return clip_totals((current, anchor, self._third()), advantages, _decided(self.quick), self.settings)

    def _third(self) -> Any:
        """The log-probs of the policy that is neither current nor the anchor, where they have to be looked at; else the current ones."""
        quick = self.quick
        known = quick.pair.split("/") if float(quick.found.tops[6]) <= rounding(torch.float32) else []
        third = [name for name in quick.policies if name not in ("current", self.anchor, *known)]
        assert len(third) <= 1, "a loss with a reference takes the plain form"
        return flat(quick.policies[third[0]]) if third else self.arrays[0]


def _decided(quick: QuickDecisions) -> tuple[Any, ...]:
    """Weight, trained and kept, as compiled code takes them."""
    found = quick.found
    return flat(found.weight), flat_marks(found.trained), flat_marks(found.kept)


def clip_pass(call: LossCall, rule: Correction, written: list[Tensor]) -> ClippedPass | None:
    """The correction and the clip, whose gradient goes to `written`: in one sweep over the tokens, or one after the other."""
    current, anchor = call.policies["current"], call.policies[call.anchor]
    advantages = per_token(call.advantages, call.mask, call.layout)
    if advantages.dtype != torch.float32 or advantages.shape != current.shape or not advantages.is_contiguous():
        advantages = advantages.to(torch.float32).expand_as(current).contiguous()
    arrays = flat(current), flat(anchor), flat(advantages)
    clipped = _in_one_sweep(call, rule, arrays, written)
    return _in_two(call, rule, arrays, written) if clipped is None else clipped


def _in_one_sweep(
    call: LossCall, rule: Correction, arrays: tuple[Any, ...], written: list[Tensor]
) -> ClippedPass | None:
    """Rows are decided one by one. Slopes are divided by the tokens of the mask; where others count, they are scaled afterwards."""
    masked, also = readable_mask(call.mask, call.layout), f"current/{call.anchor}"
    offsets, settings = row_offsets(masked, call.layout), _settings(call.loss)
    if not goes_by_rows(load_program(rule).program, masked, offsets):
        return None
    target, base = (call.policies[name] for name in pair_of(rule, call.policies, also).split("/"))
    lengths, slopes = row_lengths(masked, offsets), torch.empty_like(call.policies["current"], requires_grad=False)
    step, factor = _factor(call, lengths)
    found = slope_pass(rule, (target, base), masked, offsets, (*arrays, flat(slopes)), settings, factor)
    if found is None:
        return None
    counted = found[0][:, 3 if rule.denominator == "kept" else 0]
    if (counted != lengths).any():
        before = float(factor)
        step, factor = _factor(call, counted)
        if before == 0.0:
            return None
        scale_slopes(slopes, float(factor) / before)
    written.append(slopes)
    quick = later_pass(rule, call.policies, also, call.mask, masked, call.layout)
    loss = torch.tensor(found[1] * float(factor), dtype=torch.float32)
    return ClippedPass(
        quick, loss, step.averaged_over, call.anchor, arrays, settings, call.advantages, edits(call.advantages)
    )


def _in_two(call: LossCall, rule: Correction, arrays: tuple[Any, ...], written: list[Tensor]) -> ClippedPass | None:
    """The whole correction, then the clip. Every trained token is taken to have its current log-prob until one is found that does not."""
    from trimtab.core.fast import clip_rows

    also, settings = f"current/{call.anchor}", _settings(call.loss)
    for complete in (True, False):
        quick = run_pass(rule, call.policies, also, call.mask, call.layout, complete=complete, observes=False)
        if quick is None:
            return None
        total, slopes = (
            torch.zeros(1, dtype=torch.float64),
            torch.empty_like(call.policies["current"], requires_grad=False),
        )
        step, factor = _factor(call, quick.found.rows[:, 3 if rule.denominator == "kept" else 0])
        given = (*arrays, *_decided(quick), settings, factor)
        state = clip_rows.clip_slopes(*given, flat(slopes), total.numpy())
        if state == clip_rows.SLOPED:
            written.append(slopes)
            loss, edited = (total[0] * float(factor)).to(torch.float32), edits(call.advantages)
            return ClippedPass(quick, loss, step.averaged_over, call.anchor, arrays, settings, call.advantages, edited)
        if state == clip_rows.LEFT:
            return None
    return None


def _factor(call: LossCall, lengths: Any) -> tuple[Denominator, Any]:
    """What the step divides by, and what each token's loss is multiplied by in float32, for rows with so many tokens."""
    from trimtab.core.fast import machine

    step = call.denominator or Denominator(float(lengths.sum()), float((lengths > 0).sum()))  # no other rank has rows
    return step, machine.f32(common_factor(call.reduction, step))


def _settings(loss: Objective) -> Any:
    """1 − low, 1 + high, the dual bound, and above which log-prob a token is doubtful, as compiled code takes them."""
    assert isinstance(loss, Clip)
    dual = torch.inf if loss.dual is None else loss.dual
    return as_numbers(1.0 - loss.low, 1.0 + loss.high, dual, rounding(torch.float32))


def _per(total: float, number: float) -> float:
    return total / number if number else 0.0


def own_figures(call: LossCall, sums: list[float], tops: list[float], valid: float) -> dict[str, float]:
    """How much was clipped, what came without an advantage, and how far the policy has moved from the anchor."""
    assert isinstance(call.loss, Clip)
    number, some = sums[1], sums[1] > 0
    names = ["clip_high", "clip_low", *(["clip_dual"] if call.loss.dual is not None else [])]
    marks = {f"policy/{name}": _per(sums[5 + place], number) for place, name in enumerate(names)}
    return marks | {
        "advantage/missing_fraction": _per(sums[8], valid),
        "policy/k1": _per(-sums[2], number),
        "policy/k3": _per(sums[3], number),
        "policy/ratio_mean": 1.0 + sums[4] / number if some else 0.0,
        "policy/ratio_min": math.exp(-tops[1]) if some else 0.0,
        "policy/ratio_max": math.exp(tops[0]) if some else 0.0,
    }


def selection_figures(sums: list[float], valid: float) -> dict[str, float]:
    """Does the correction keep right answers as often as wrong ones?"""
    return {
        "advantage/missing_fraction": _per(sums[8], valid),
        "selection/kept_given_positive": _per(sums[10], sums[9]),
        "selection/kept_given_negative": _per(sums[12], sums[11]),
        "selection/net_advantage": _per(sums[15], sums[13]),
        "selection/mean_advantage": _per(sums[14], valid),
    }


def doubtful_figures(clipped: ClippedPass) -> dict[str, Tensor]:
    """How much of what is trained came with log-probs above 0, or with a mask of neither 0 nor 1."""
    valid = float(clipped.quick.found.sums[1])
    partials = {"partial_fraction": _per(clipped.quick.partial, valid)}
    return as_tensors({"positive_fraction": _per(clipped.sums[0][0], valid)} | partials)
