"""The hand-over of `policy_loss`: PPO's clip in one pass, which writes the gradient; backward is one multiplication.

What it cannot do is the plain form's: other losses, KL and entropy terms, reductions by row, corrections made beforehand, and second
derivatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from trimtab.config.algebra import Correction
from trimtab.config.losses import Clip
from trimtab.config.presets import preset
from trimtab.core.correct import Corrected
from trimtab.core.decisions import Decisions
from trimtab.core.fast.decided import PassDecisions
from trimtab.core.fast.figures import as_tensors
from trimtab.core.fast.switch import is_bare, pass_fits
from trimtab.core.observe import Metrics
from trimtab.core.reduce import Denominator
from trimtab.losses.call import LossCall
from trimtab.losses.clip_pass import ClippedPass, clip_pass, doubtful_figures, own_figures, selection_figures
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
DOUBTFUL = ("positive_fraction", "partial_fraction")
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
    whole = is_bare(call.advantages.detach().contiguous())
    return whole and pass_fits(_rule_of(call), tuple(call.policies.values()), call.mask, call.layout)


def _is_bare_clip(call: LossCall) -> bool:
    """Whether the loss is PPO's clip with no term beside it."""
    loss, beside = call.loss, (call.penalty[0], call.bonus[0], call.entropy, call.group)
    known = type(call.denominator) in (Denominator, type(None)) and all(each is None for each in beside)
    return known and type(loss) is Clip and loss.ratio_cap is None and loss.log_limit is None


class QuickPolicyMetrics(PolicyMetrics):
    """The metrics of a loss from the sums of its pass; what the plain form works out on its way is made, once, when it is read."""

    def __init__(self, sections: dict[str, Measured], correction: Any, plain: Callable[[], PolicyMetrics]) -> None:
        super(PolicyMetrics, self).__init__(sections)
        self.correction, self._plain = correction, plain

    @property
    def terms(self) -> Terms:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The tokens of the call, after the correction."""
        return self._plain().terms

    @property
    def surrogate(self) -> Surrogate:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The loss of each token."""
        return self._plain().surrogate


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
            (found,) = torch.autograd.grad(ctx.plain(leaf), leaf, gradients[0], create_graph=twice)
        return found, None, None, None


def one_pass_loss(call: LossCall, plain: Plain) -> tuple[Tensor, PolicyMetrics] | None:
    """The loss and its metrics by one pass; None where the call or the batch does not fit. `plain` is the same by the plain form."""
    if not loss_fits(call):
        return None
    written: list[
        Tensor
    ] = []  # the only reference: torch then takes the gradient as it is, where it would copy a shared one
    clipped = clip_pass(call, _rule_of(call), written)
    if clipped is None:
        return None
    return _with_gradient(call, clipped.loss.clone(), written, plain), _metrics(call, clipped, plain)


def _with_gradient(call: LossCall, value: Tensor, written: list[Tensor], plain: Plain) -> Tensor:
    """A loss as a function of the current log-probs, whose gradient was written."""

    def plain_value(leaf: Tensor) -> Tensor:
        return plain(call, leaf)[0]

    return _Written.apply(call.policies["current"], [value], written, plain_value)  # pyright: ignore[reportReturnType]


def _metrics(call: LossCall, clipped: ClippedPass, plain: Plain) -> PolicyMetrics:
    """Every metric of the call, from the sums of a pass on a CPU."""
    quick, value = clipped.quick, clipped.loss / clipped.averaged_over

    def own() -> dict[str, Tensor]:
        return as_tensors(own_figures(call, *clipped.sums, float(quick.found.sums[1])))

    def selection() -> dict[str, Tensor]:
        return as_tensors(selection_figures(clipped.sums[0], float(quick.found.sums[1])))

    parts = {"loss": lambda: {"policy/loss": value}, "own": own, "selection": selection}
    return _in_order(call, quick, plain, parts | {"doubtful": partial(doubtful_figures, clipped)})


def _own_names(call: LossCall) -> list[str]:
    """The metrics of a loss, less the loss itself and those that come in front of its drift."""
    assert isinstance(call.loss, Clip)
    marks = ["clip_high", "clip_low", *(["clip_dual"] if call.loss.dual is not None else [])]
    return [*(f"policy/{name}" for name in (*marks, *DRIFT)), "advantage/missing_fraction"]


def _in_order(call: LossCall, quick: PassDecisions, plain: Plain, parts: dict[str, Measured]) -> PolicyMetrics:
    """Every metric of the call, under the names and in the order of the plain form."""

    @cache
    @torch.no_grad()
    def made() -> PolicyMetrics:
        quick.check_unchanged()
        quick.check_mask()
        return plain(replace(call, mask=quick.masked), call.policies["current"].detach())[1]

    first = [name for name in _own_names(call) if name.removeprefix("policy/") not in DRIFT]
    table: dict[str, Measured] = {"policy/loss": parts["loss"]} | dict.fromkeys(first, parts["own"])
    table |= dict.fromkeys(DOUBTFUL, parts["doubtful"])
    table |= dict.fromkeys([f"policy/{name}" for name in DRIFT], parts["own"])
    found = QuickPolicyMetrics(table, {}, made)
    if isinstance(call.correction, Correction):

        def known(name: str) -> dict[str, Tensor] | None:
            return parts["selection"]() if name in SELECTION else quick.known_section(name)

        def decisions() -> Decisions:
            correction = made().correction
            assert isinstance(correction, Metrics)
            return correction.decisions

        found.correction = Metrics(call.correction, decisions, valued=True, aged=call.age is not None, known=known)
    return found
