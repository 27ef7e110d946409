"""The hand-over of `policy_loss`: a correction and PPO's clip in one sweep, which writes the gradient; backward is one multiplication.

What it cannot do is the plain form's: other losses, KL and entropy terms, reductions by row, corrections made beforehand, and second
derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from trimtab.config.correction import Correction
from trimtab.config.losses import Clip, Objective
from trimtab.config.presets import preset
from trimtab.core.batch import edits
from trimtab.core.cached import cached
from trimtab.core.correct import Corrected
from trimtab.core.decisions import Decisions
from trimtab.core.fast.decide import (
    FastDecisions,
    FastRun,
    flat,
    flat_marks,
    later_decisions,
    pair_of,
    readable_mask,
    row_offsets,
    with_both,
)
from trimtab.core.fast.fits import is_bare, pass_fits
from trimtab.core.fast.metrics import as_numbers, as_tensors, per
from trimtab.core.inputs import per_token, rounding
from trimtab.core.metrics import Metrics
from trimtab.core.reduce import Denominator, common_factor
from trimtab.core.sums import GAPS, SELECTION
from trimtab.errors import InputError
from trimtab.losses.call import LossCall
from trimtab.losses.metrics import DOUBTFUL, DRIFT, Measured, PolicyMetrics

NOTHING = preset("off")
"""Without a correction every token that has its log-probs is kept, at weight 1."""
CLIPPED = {
    "policy/clip_high": ("clipped_high", "kept"),
    "policy/clip_low": ("clipped_low", "kept"),
    "policy/clip_dual": ("clipped_dual", "kept"),
}
"""Metrics of the clip that are a sum over a sum of `FastLoss.sums`."""
_BY_ROW = ("seq-mean-token-mean", "prompt-mean")


Plain = Callable[[LossCall, Tensor], tuple[Tensor, PolicyMetrics]]
"""The plain form: a call and current log-probs to a loss and its metrics."""


def _rule_of(call: LossCall) -> Correction:
    assert not isinstance(call.correction, Corrected)
    return NOTHING if call.correction is None else call.correction


def loss_fits(call: LossCall) -> bool:
    """Whether the pass gives the numbers of the plain form for this call."""
    if torch.compiler.is_compiling() or isinstance(call.correction, Corrected) or not _is_bare_clip(call):
        return False
    if call.reduction.mode in _BY_ROW or call.layout.ranks.whole is not None:
        return False
    rule = call.correction
    if rule is not None and rule.pairs != ("proximal/behavior",) and call.anchor != "behavior":
        return False
    is_readable = is_bare(call.advantages.detach().contiguous())
    return is_readable and pass_fits(_rule_of(call), tuple(call.policies.values()), call.mask, call.layout)


def _is_bare_clip(call: LossCall) -> bool:
    """Whether the loss is PPO's clip with no term beside it."""
    loss, beside = call.loss, (call.penalty[0], call.bonus[0], call.entropy, call.group)
    known = type(call.denominator) in (Denominator, type(None)) and all(each is None for each in beside)
    return known and type(loss) is Clip and loss.ratio_cap is None and loss.log_limit is None


@dataclass(frozen=True, eq=False)
class FastLoss:
    """What a pass made of a loss: its value, and the arrays its metrics are worked out from when read."""

    decided: FastDecisions
    loss: Tensor
    averaged_over: int
    anchor: str
    arrays: tuple[Any, ...]  # current log-probs, their anchor, advantages
    clip: Any  # an array of one record `records.CLIP`
    advantages: Tensor
    edits: int | None

    @cached
    def sums(self) -> dict[str, float] | None:
        """The sums and extremes of `records.CLIP_TOTALS` and what is made of them; None: the plain form has to work them out."""
        from trimtab.core.fast import clip, records

        self.decided.check_unchanged()
        if self.edits != edits(self.advantages):
            raise InputError(
                "Metrics need the advantages they are worked out from, got a tensor that was modified in place. "
                "Read the metrics first, or pass a copy."
            )
        run = self.decided.run
        if run is None:
            return None
        current, anchor, advantages = self.arrays
        totals, per_token = records.fresh(records.CLIP_TOTALS), (flat(run.weight), flat_marks(run.trained))
        policies = current, anchor, self._third(run)
        clip.clip_sums(policies, advantages, *per_token, flat_marks(run.kept), self.clip, totals)
        return _with_parts(as_numbers(totals[0]), run.total["tokens"], self.decided.partial)

    def _third(self, run: FastRun) -> Any:
        """The log-probs of the policy that is neither current nor the anchor, where they have to be looked at; else the current ones."""
        decided = self.decided
        known = decided.pair.split("/") if run.total["max_log_prob"] <= rounding(torch.float32) else []
        third = [name for name in decided.policies if name not in ("current", self.anchor, *known)]
        assert len(third) <= 1, "a loss with a reference takes the plain form"
        return flat(decided.policies[third[0]]) if third else self.arrays[0]


def _with_parts(sums: dict[str, float], trained: float, partial: float) -> dict[str, float]:
    some = float(sums["kept"] > 0)
    return sums | {
        "tokens": trained,
        "partial": partial,
        "some": some,
        "minus_log_rho": -sums["log_rho"],
        "rho": sums["kept"] + sums["excess"],
        "min_rho": math.exp(-sums["max_minus_log_rho"]) if some else 0.0,
        "max_rho": math.exp(sums["max_log_rho"]) if some else 0.0,
    }


def fast_loss(call: LossCall, rule: Correction, written: list[Tensor]) -> FastLoss | None:
    """The correction and the clip in one sweep over the tokens; the gradient goes to `written`.

    Every trained token is taken to have its current log-prob until one is found that does not. Gradients are divided by the tokens of the
    mask; where others count, they are scaled afterwards.
    """
    from trimtab.core.fast import clip, loops

    current, anchor = call.policies["current"], call.policies[call.anchor]
    advantages = per_token(call.advantages, call.mask, call.layout)
    if advantages.dtype != torch.float32 or advantages.shape != current.shape or not advantages.is_contiguous():
        advantages = advantages.to(torch.float32).expand_as(current).contiguous()
    masked, also = readable_mask(call.mask, call.layout), f"current/{call.anchor}"
    gradient, arrays = torch.empty_like(current, requires_grad=False), (flat(current), flat(anchor), flat(advantages))
    settings, offsets = _settings(call.loss), row_offsets(masked, call.layout)
    pair, present = pair_of(rule, call.policies, also), masked
    policies = tuple(flat(call.policies[name]) for name in pair.split("/"))
    for is_complete in (True, False):
        present = masked if is_complete else with_both(call.policies, also, masked)
        lengths = clip.row_lengths(flat_marks(present), offsets)
        step, factor = _factor(call, lengths)
        asked = (*arrays, flat(gradient), settings, loops.f32(factor))
        state, rows, total = clip.sweep(rule, (*policies, flat_marks(present)), offsets, asked)
        if state != clip.MISSING:
            break
    if state != clip.WRITTEN:
        return None
    counted = rows["kept" if rule.denominator == "kept" else "tokens"]
    if (counted != lengths).any():
        before, (step, factor) = factor, _factor(call, counted)
        if before == 0.0:
            return None
        gradient.mul_(factor / before)
    written.append(gradient)
    decided = later_decisions(rule, call.policies, pair, (call.mask, masked, present), call.layout)
    loss, edited = torch.tensor(total * factor, dtype=torch.float32), edits(call.advantages)
    return FastLoss(decided, loss, step.averaged_over, call.anchor, arrays, settings, call.advantages, edited)


def _factor(call: LossCall, lengths: Any) -> tuple[Denominator, float]:
    """What the step divides by, and what each token's loss is multiplied by in float32, for rows with so many tokens."""
    from trimtab.core.fast import loops

    step = call.denominator or Denominator(float(lengths.sum()), float((lengths > 0).sum()))  # no other rank has rows
    return step, float(loops.f32(common_factor(call.reduction, step)))


def _settings(loss: Objective) -> Any:
    """The clip as compiled code takes it."""
    from trimtab.core.fast import records

    assert isinstance(loss, Clip)
    dual = torch.inf if loss.dual is None else loss.dual
    return records.clip_record(1.0 - loss.low, 1.0 + loss.high, dual, rounding(torch.float32))


class _Written(torch.autograd.Function):
    """A loss whose gradient was written beside it. Who asks for it again, or for a second derivative, gets it from the plain form."""

    @staticmethod
    def forward(  # without `setup_context`, for which torch reads this signature at every call, longer than a small loss takes
        ctx: Any, current: Tensor, value: list[Tensor], written: list[Tensor], plain: Callable[[Tensor], Tensor]
    ) -> Tensor:
        ctx.save_for_backward(current)
        ctx.written, ctx.plain = written, plain
        return value.pop()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (current,) = ctx.saved_tensors
        twice = torch.is_grad_enabled()  # a second derivative is asked for
        if ctx.written and not twice:
            gradient, factor = ctx.written.pop(), gradients[0]
            return (gradient if float(factor) == 1.0 else gradient.mul_(factor)).to(current.dtype), None, None, None
        with torch.enable_grad():
            leaf = current if twice else current.detach().requires_grad_()
            (gradient_of_plain,) = torch.autograd.grad(ctx.plain(leaf), leaf, gradients[0], create_graph=twice)
        return gradient_of_plain, None, None, None


def fast_policy_loss(call: LossCall, plain: Plain) -> tuple[Tensor, PolicyMetrics] | None:
    """The loss and its metrics by one pass; None where the call or the batch does not fit. `plain` is the same by the plain form."""
    if not loss_fits(call):
        return None
    written: list[
        Tensor
    ] = []  # the only reference: torch then takes the gradient as it is, where it would copy a shared one
    result = fast_loss(call, _rule_of(call), written)
    if result is None:
        return None
    return _with_gradient(call, result.loss.clone(), written, plain), _metrics(call, result, plain)


def _with_gradient(call: LossCall, value: Tensor, written: list[Tensor], plain: Plain) -> Tensor:
    """A loss as a function of the current log-probs, whose gradient was written."""

    def plain_value(leaf: Tensor) -> Tensor:
        return plain(call, leaf)[0]

    return _Written.apply(call.policies["current"], [value], written, plain_value)  # pyright: ignore[reportReturnType]


def _metrics(call: LossCall, fast: FastLoss, plain: Plain) -> PolicyMetrics:
    """Every metric of the call, from the sums of its pass, under the names and in the order of the plain form."""
    assert isinstance(call.loss, Clip)
    decided, value = fast.decided, fast.loss / fast.averaged_over

    @cache
    @torch.no_grad()
    def plain_metrics() -> PolicyMetrics:
        decided.check_unchanged()
        decided.check_mask()
        return plain(replace(call, mask=decided.masked), call.policies["current"].detach())[1]

    means = {name: row for name, row in CLIPPED.items() if name != "policy/clip_dual" or call.loss.dual is not None}
    means |= GAPS | DOUBTFUL | DRIFT

    def section(table: dict[str, tuple[str, str]]) -> dict[str, Tensor]:
        sums = fast.sums
        if sums is None:
            return {name: plain_metrics()[name] for name in table}
        return as_tensors({name: per(sums[part], sums[number]) for name, (part, number) in table.items()})

    sections: dict[str, Measured] = {"policy/loss": lambda: {"policy/loss": value}}
    sections |= dict.fromkeys(means, partial(section, means))
    correction: Any = {}
    if isinstance(call.correction, Correction):
        selected = GAPS | SELECTION

        def known(name: str) -> dict[str, Tensor] | None:
            return section(selected) if name in selected else decided.known_section(name)

        def decisions() -> Decisions:
            plain_seen = plain_metrics().correction
            assert isinstance(plain_seen, Metrics)
            return plain_seen.decisions

        correction = Metrics(call.correction, decisions, valued=True, aged=call.age is not None, known=known)
    by_token = lambda: (plain_metrics().terms, plain_metrics().surrogate)  # noqa: E731
    return PolicyMetrics(sections, correction, by_token, by_pass=True)
