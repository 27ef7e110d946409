"""The hand-over of `policy_loss`: PPO's clip in one pass, which writes the gradient; backward is one multiplication.

What it cannot do is the plain form's: other losses, KL and entropy terms, reductions by row, corrections made beforehand, and second
derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.config.losses import Clip
from trimtab.config.presets import preset
from trimtab.core.batch import check_unchanged, per_token
from trimtab.core.checks import rounding
from trimtab.core.correct import Corrected
from trimtab.core.decisions import Decisions
from trimtab.core.fast.figures import as_tensors
from trimtab.core.fast.onepass import QuickDecisions, run_pass
from trimtab.core.fast.switch import is_in_memory, pass_fits
from trimtab.core.observe import Metrics
from trimtab.core.once import once
from trimtab.core.reduce import Denominator, denominator_of, share
from trimtab.losses.call import LossCall
from trimtab.losses.metrics import Measured, PolicyMetrics
from trimtab.losses.terms import Surrogate, Terms

NOTHING = preset("off")
"""Without a correction every token that has its log-probs is kept, at weight 1."""
DRIFT = ("policy/k1", "policy/k3", "policy/ratio")
"""Metrics that come last, as in the plain form."""
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
    """A loss whose gradient was written beside it. A second derivative goes through the plain form."""

    @staticmethod
    def forward(
        current: Tensor, value: Tensor, grad: Tensor, factor: Tensor, plain: Callable[[Tensor], Tensor]
    ) -> Tensor:
        return value.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        ctx.save_for_backward(inputs[0], inputs[2], inputs[3])
        ctx.plain = inputs[4]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        current, grad, factor = ctx.saved_tensors
        if torch.is_grad_enabled():
            (found,) = torch.autograd.grad(ctx.plain(current), current, gradients[0], create_graph=True)
            return found, None, None, None, None
        return grad * (gradients[0] * factor), None, None, None, None


def one_pass_loss(call: LossCall, plain: Plain) -> tuple[Tensor, PolicyMetrics] | None:
    """The loss and its metrics by one pass; None where the call or the batch does not fit. `plain` is the same by the plain form."""
    if not loss_fits(call):
        return None
    current, anchor = call.policies["current"], call.policies[call.anchor]
    rule, advantages = _rule_of(call), per_token(call.advantages, call.mask, call.layout)
    quick = run_pass(rule, call.policies, f"current/{call.anchor}", call.mask, call.layout)
    if quick is None:
        return None
    found = _clip_pass(call, quick, current, anchor, advantages)
    if found is None:
        return None
    grad, sums, tops = found
    lengths = quick.found.rows[:, 3 if rule.denominator == "kept" else 0].to(torch.float32)
    step = call.denominator or denominator_of(lengths, None, call.layout.ranks)
    factor = share(call.reduction, lengths, step, None).factor
    value = (sums[0] * factor.double()).to(torch.float32)

    def plain_value(leaf: Tensor) -> Tensor:
        return plain(call, leaf)[0]

    loss: Tensor = _Written.apply(current, value, grad, factor, plain_value)  # pyright: ignore[reportAssignmentType]
    return loss, _metrics(call, quick, value / step.averaged_over, sums.tolist(), tops.tolist(), plain)


def _clip_pass(
    call: LossCall, quick: QuickDecisions, current: Tensor, anchor: Tensor, advantages: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    from trimtab.core.fast import clip_rows

    assert isinstance(call.loss, Clip)
    dual = torch.inf if call.loss.dual is None else call.loss.dual
    settings = torch.tensor([1.0 - call.loss.low, 1.0 + call.loss.high, dual], dtype=torch.float32)
    scratch = torch.empty(clip_rows.PARTS * clip_rows.BLOCK, dtype=torch.float32)
    grad = torch.empty_like(current)
    sums, tops = torch.zeros(clip_rows.SUMS, dtype=torch.float64), torch.full((2,), -torch.inf, dtype=torch.float64)
    spread = advantages.to(torch.float32).expand_as(current).contiguous()
    given = (current, anchor, spread, quick.found.weight, quick.found.trained, quick.found.kept)
    arrays = [each.detach().view(-1).numpy() for each in (*given, settings, scratch, grad)]
    return (grad, sums, tops) if clip_rows.clip_rows(*arrays, sums.numpy(), tops.numpy()) else None


def _metrics(
    call: LossCall,
    quick: QuickDecisions,
    value: Tensor,
    sums: list[float],
    tops: list[float],
    plain: Plain,
) -> PolicyMetrics:
    """Every metric of the call, under the names and in the order of the plain form."""

    @torch.no_grad()
    def made() -> PolicyMetrics:
        for name, log_probs in call.policies.items():
            check_unchanged(name, log_probs, quick.before[name])
        return plain(replace(call, mask=quick.masked), call.policies["current"].detach())[1]

    valid = float(quick.found.sums[1])
    own = _own_figures(call, sums, tops, valid)
    table: dict[str, Measured] = {"policy/loss": lambda: {"policy/loss": value}}
    measured = partial(as_tensors, own)
    table |= dict.fromkeys(own, measured)
    table |= dict.fromkeys(("positive_fraction", "partial_fraction"), partial(_doubtful, call, quick))
    order = [
        *[name for name in table if not name.startswith(DRIFT)],
        *[name for name in table if name.startswith(DRIFT)],
    ]
    table = {name: table[name] for name in order}
    found = QuickPolicyMetrics(table, {}, made)
    if isinstance(call.correction, Correction):
        selected = _selection(sums, valid)
        known = quick.sections() | dict.fromkeys(selected, lambda: as_tensors(selected))

        def decisions() -> Decisions:
            assert isinstance(found.made.correction, Metrics)
            return found.made.correction.decisions

        found.correction = Metrics(call.correction, decisions, valued=True, known=known)
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

    marked = torch.zeros_like(quick.found.trained)
    for name, log_probs in call.policies.items():
        check_unchanged(name, log_probs, quick.before[name])
        arrays = [each.detach().view(-1).numpy() for each in (log_probs, quick.found.trained, marked)]
        clip_rows.mark_positive(arrays[0], arrays[1], rounding(log_probs.dtype), arrays[2])
    valid, partials = float(quick.found.sums[1]), 0.0 if quick.partial is None else float(quick.partial)
    positive = float(marked.view(torch.uint8).sum(dtype=torch.int64))
    return as_tensors({"positive_fraction": _per(positive, valid), "partial_fraction": _per(partials, valid)})
