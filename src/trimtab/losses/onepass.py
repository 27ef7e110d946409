"""The hand-over of `policy_loss`: PPO's clip in one pass, which writes the gradient; backward is one multiplication.

What it cannot do is the plain form's: other losses, KL and entropy terms, reductions by row, corrections made beforehand, and second
derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.config.losses import Clip, Objective
from trimtab.config.presets import preset
from trimtab.core.batch import edits, per_token
from trimtab.core.checks import rounding
from trimtab.core.correct import Corrected
from trimtab.core.decisions import Decisions
from trimtab.core.fast.figures import as_tensors
from trimtab.core.fast.onepass import QuickDecisions, run_pass
from trimtab.core.fast.switch import is_in_memory, pass_fits
from trimtab.core.observe import Metrics
from trimtab.core.once import of_identity, once
from trimtab.core.reduce import Denominator, denominator_of, share
from trimtab.errors import InputError
from trimtab.losses.call import LossCall
from trimtab.losses.metrics import Measured, PolicyMetrics
from trimtab.losses.terms import Surrogate, Terms

NOTHING = preset("off")
"""Without a correction every token that has its log-probs is kept, at weight 1."""
DRIFT = ("k1", "k3", "ratio_mean", "ratio_min", "ratio_max")
"""Metrics that come last, as in the plain form."""
SELECTION = frozenset(
    [
        "advantage/missing_fraction",
        "selection/kept_given_positive",
        "selection/kept_given_negative",
        "selection/net_advantage",
        "selection/mean_advantage",
    ]
)
"""Metrics of a correction that look at advantages."""
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
    whole = is_in_memory(call.advantages.detach().contiguous())
    return whole and pass_fits(_rule_of(call), tuple(call.policies.values()), call.mask, call.layout)


def _is_bare_clip(call: LossCall) -> bool:
    """Whether the loss is PPO's clip with no term beside it."""
    loss, beside = call.loss, (call.penalty[0], call.bonus[0], call.entropy, call.group)
    known = type(call.denominator) in (Denominator, type(None)) and all(each is None for each in beside)
    return known and type(loss) is Clip and loss.ratio_cap is None and loss.log_limit is None


class QuickPolicyMetrics(PolicyMetrics):
    """The metrics of a loss from the sums of its pass; what the plain form works out on its way is made when it is read."""

    def __init__(self, sections: dict[str, Measured], correction: Any, plain: Callable[[], PolicyMetrics]) -> None:
        super(PolicyMetrics, self).__init__(sections)
        self.correction, self._plain = correction, plain

    @once
    def made(self) -> PolicyMetrics:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The metrics of the plain form."""
        return self._plain()

    @property
    def terms(self) -> Terms:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tokens of the call, after the correction."""
        return self.made.terms

    @property
    def surrogate(self) -> Surrogate:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The loss of each token."""
        return self.made.surrogate


class _Written(torch.autograd.Function):
    """A loss whose gradient was written beside it. Who asks for it again, or for a second derivative, gets it from the plain form."""

    @staticmethod
    def forward(current: Tensor, value: Tensor, written: list[Tensor], plain: Callable[[Tensor], Tensor]) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.written, ctx.plain = inputs[2], inputs[3]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (current,) = ctx.saved_tensors
        twice = torch.is_grad_enabled()  # a second derivative is asked for
        if ctx.written and not twice:
            gradient, factor = ctx.written.pop(), gradients[0]
            return gradient if float(factor) == 1.0 else gradient.mul_(factor), None, None, None
        with torch.enable_grad():
            leaf = current if twice else current.detach().requires_grad_()
            (found,) = torch.autograd.grad(ctx.plain(leaf), leaf, gradients[0], create_graph=twice)
        return found, None, None, None


def one_pass_loss(call: LossCall, plain: Plain) -> tuple[Tensor, PolicyMetrics] | None:
    """The loss and its metrics by one pass; None where the call or the batch does not fit. `plain` is the same by the plain form."""
    if not loss_fits(call):
        return None
    written: list[
        Tensor
    ] = []  # the only reference: torch then takes the gradient as it is, where it would copy a shared one
    clipped = _clip_pass(call, written)
    if clipped is None:
        return None

    def plain_value(leaf: Tensor) -> Tensor:
        return plain(call, leaf)[0]

    given = (call.policies["current"], clipped.loss, written, plain_value)
    loss: Tensor = _Written.apply(*given)  # pyright: ignore[reportAssignmentType]
    return loss, _metrics(call, clipped, plain)


@dataclass(frozen=True, eq=False)
class ClippedPass:
    """What a pass made of a loss: its value, and the arrays its metrics are worked out from when read."""

    quick: QuickDecisions
    loss: Tensor
    averaged_over: int
    arrays: tuple[Any, ...]
    advantages: Tensor
    edits: int | None

    @once
    def sums(self) -> tuple[list[float], list[float]]:
        """The sums and extremes of `clip_rows.clip_sums`."""
        from trimtab.core.fast import clip_rows

        self.quick.check_unchanged()
        if self.edits != edits(self.advantages):
            raise InputError(
                "Metrics need the advantages they are worked out from, got a tensor changed in place since. "
                "Read them before, or pass a copy."
            )
        sums, tops = torch.zeros(clip_rows.SUMS, dtype=torch.float64), torch.full((2,), -torch.inf, dtype=torch.float64)
        clip_rows.clip_sums(*self.arrays, sums.numpy(), tops.numpy())
        return sums.tolist(), tops.tolist()


def _clip_pass(call: LossCall, written: list[Tensor]) -> ClippedPass | None:
    """The correction and the clip, whose gradient goes to `written`.

    Every trained token is taken to have its current log-prob until one is found that does not.
    """
    from trimtab.core.fast import clip_rows

    rule, also = _rule_of(call), f"current/{call.anchor}"
    current, anchor = call.policies["current"], call.policies[call.anchor]
    advantages = per_token(call.advantages, call.mask, call.layout)
    spread = advantages.to(torch.float32).expand_as(current).contiguous()
    for complete in (True, False):
        quick = run_pass(rule, call.policies, also, call.mask, call.layout, complete=complete, observes=False)
        if quick is None:
            return None
        out, total, gradient = (
            quick.found,
            torch.zeros(1, dtype=torch.float64),
            torch.empty_like(current, requires_grad=False),
        )
        lengths = out.rows[:, 3 if rule.denominator == "kept" else 0].to(torch.float32)
        step = call.denominator or denominator_of(lengths, None, call.layout.ranks)
        factor = share(call.reduction, lengths, step, None).factor
        flags = [each.view(torch.uint8) for each in (out.trained, out.kept)]
        given = (current, anchor, spread, out.weight, *flags)
        arrays = (*(each.detach().view(-1).numpy() for each in given), _settings(call.loss))
        scale = factor.numpy()[()]  # a number of float32, as compiled code takes it
        state = clip_rows.clip_slopes(*arrays, scale, gradient.view(-1).numpy(), total.numpy())
        if state == clip_rows.SLOPED:
            written.append(gradient)
            loss, edited = (total[0] * factor).to(torch.float32), edits(call.advantages)
            return ClippedPass(quick, loss, step.averaged_over, arrays, call.advantages, edited)
        if state == clip_rows.LEFT:
            return None
    return None


@of_identity
def _settings(loss: Objective) -> Any:
    """1 − low, 1 + high and the dual bound, as compiled code takes them."""
    assert isinstance(loss, Clip)
    dual = torch.inf if loss.dual is None else loss.dual
    return torch.tensor([1.0 - loss.low, 1.0 + loss.high, dual], dtype=torch.float32).numpy()


def _metrics(call: LossCall, clipped: ClippedPass, plain: Plain) -> PolicyMetrics:
    """Every metric of the call, under the names and in the order of the plain form."""
    quick, value = clipped.quick, clipped.loss / clipped.averaged_over

    @torch.no_grad()
    def made() -> PolicyMetrics:
        quick.check_unchanged()
        quick.check_mask()
        return plain(replace(call, mask=quick.masked), call.policies["current"].detach())[1]

    def own() -> dict[str, Tensor]:
        return as_tensors(_own_figures(call, *clipped.sums, float(quick.found.sums[1])))

    assert isinstance(call.loss, Clip)
    marks = ["clip_high", "clip_low", *(["clip_dual"] if call.loss.dual is not None else [])]
    doubtful = ("positive_fraction", "partial_fraction")
    table: dict[str, Measured] = {"policy/loss": lambda: {"policy/loss": value}}
    table |= dict.fromkeys([*(f"policy/{name}" for name in marks), "advantage/missing_fraction"], own)
    table |= dict.fromkeys(doubtful, partial(_doubtful, call, quick))
    table |= dict.fromkeys([f"policy/{name}" for name in DRIFT], own)
    found = QuickPolicyMetrics(table, {}, made)
    if isinstance(call.correction, Correction):

        def known(name: str) -> dict[str, Tensor] | None:
            if name in SELECTION:
                return as_tensors(_selection(clipped.sums[0], float(quick.found.sums[1])))
            return quick.known_section(name)

        def decisions() -> Decisions:
            assert isinstance(found.made.correction, Metrics)
            return found.made.correction.decisions

        found.correction = Metrics(call.correction, decisions, valued=True, aged=call.age is not None, known=known)
    return found


def _per(total: float, number: float) -> float:
    return total / number if number else 0.0


def _own_figures(call: LossCall, sums: list[float], tops: list[float], valid: float) -> dict[str, float]:
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


def _selection(sums: list[float], valid: float) -> dict[str, float]:
    """Does the correction keep right answers as often as wrong ones?"""
    return {
        "advantage/missing_fraction": _per(sums[8], valid),
        "selection/kept_given_positive": _per(sums[10], sums[9]),
        "selection/kept_given_negative": _per(sums[12], sums[11]),
        "selection/net_advantage": _per(sums[15], sums[13]),
        "selection/mean_advantage": _per(sums[14], valid),
    }


def _doubtful(call: LossCall, quick: QuickDecisions) -> dict[str, Tensor]:
    """How much of what is trained came with log-probs above 0, or with a mask of neither 0 nor 1."""
    from trimtab.core.fast import clip_rows

    quick.check_unchanged()
    far, certain = float(quick.found.tops[0]), float(quick.found.tops[6])
    below = quick.pair.split("/") if max(certain, certain + far) <= rounding(torch.float32) else []
    marked = torch.zeros_like(quick.found.trained)
    for name, log_probs in call.policies.items():
        if name not in below:  # those of the rule's own pair are known from their extremes
            arrays = [each.detach().view(-1).numpy() for each in (log_probs, quick.found.trained, marked)]
            clip_rows.mark_positive(arrays[0], arrays[1], rounding(log_probs.dtype), arrays[2])
    valid, partials = float(quick.found.sums[1]), 0.0 if quick.partial is None else float(quick.partial)
    positive = float(marked.view(torch.uint8).sum(dtype=torch.int64))
    return as_tensors({"positive_fraction": _per(positive, valid), "partial_fraction": _per(partials, valid)})
