"""`correct`: a rule and log-probs in; a weight and a mask per token out.

log-probs ──► batch ──► gate 1 ──► gate 2 ──► … ──► weight ──► normalise ──► weight, kept
             (finite)     │ passes    │ passes          over trained or kept tokens
                          ▼           ▼
                         kept = trained × passes × passes …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.utils._python_dispatch import _get_current_dispatch_mode  # pyright: ignore[reportPrivateUsage]

from trimtab.config.correction import Correction
from trimtab.config.presets.named import as_correction
from trimtab.core.batch import Batch, batch
from trimtab.core.bounds import is_fixed
from trimtab.core.cached import cache_by_identity
from trimtab.core.decisions import Decisions
from trimtab.core.fast.decide import fast_decisions
from trimtab.core.fast.fits import is_bare
from trimtab.core.gate import GateResult, gate_result
from trimtab.core.head import HeadLogProbs
from trimtab.core.inputs import checked_layout, takes_arrays
from trimtab.core.layout import Layout, Packed
from trimtab.core.metrics import Metrics, WeightMetrics, say_all_rejected
from trimtab.core.ranks import groups
from trimtab.core.ratio import indicator, is_finite, working_type, zero_outside
from trimtab.core.weight import token_weights, weighing
from trimtab.errors import InputError


@dataclass(frozen=True, eq=False)
class Corrected:
    """What a correction decided, per token; everything detached."""

    weight: Float[Tensor, "*tokens"]
    """The factor on each token's loss: 0 where the token is masked, rejected or zeroed."""
    kept: Bool[Tensor, "*tokens"]
    """The mask after the gates."""
    trained: Bool[Tensor, "*tokens"]
    """The mask before the gates, less the tokens whose log-probs are missing."""
    log_r: Float[Tensor, "*tokens"]
    """The log-ratio of the rule's own pair of policies; 0 outside `trained`."""
    metrics: Mapping[str, Float[Tensor, ""]]
    """0-d tensors by name, worked out when asked for. With process groups, ask on every rank."""
    rule: Correction | None = None
    """What was asked for; None: weights and masks from elsewhere."""
    centered: Bool[Tensor, "*tokens"] | None = None
    """Whose gradient is centered: a token that weighs nothing by itself is among them. None without centering."""

    @classmethod
    @takes_arrays()
    @torch.no_grad()
    def of_weights(
        cls,
        weight: Float[Tensor, "*tokens"],
        *,
        mask: Tensor,
        kept: Tensor | None = None,
        rule: Correction | None = None,
        cu_seqlens: Int[Tensor, " bounds"] | None = None,
        process_group: ProcessGroup | None = None,
    ) -> Corrected:
        """Decisions made elsewhere: a weight per token, and what was kept of the mask (left out: all of it).

        A weight that is NaN or infinite takes its token out, as a missing log-prob does. The log-ratio is not known and is 0; the
        metrics are the counts and those of the weight. `rule` says what the loss asks of it: pair of policies, denominator.
        """
        if weight.shape != mask.shape:
            raise InputError(
                f"weight needs the shape of mask {tuple(mask.shape)}, got {tuple(weight.shape)}. One weight per token."
            )
        layout = checked_layout({}, mask, cu_seqlens, groups(process_group, None))
        tokens, given = batch({}, (), mask, layout, advantages=None), weight.detach()
        given = given.to(working_type(given))
        valid = tokens.valid.to(given.dtype).mul_(is_finite(given))
        kept_tokens = valid if kept is None else valid * indicator(kept, valid.dtype)
        weights, tokens = zero_outside(given, kept_tokens), replace(tokens, valid=valid)
        asked = as_correction("off") if rule is None else rule
        decisions = Decisions(rule=asked, batch=tokens, results=(), weighing=None, kept=kept_tokens, weight=weights)
        return cls(weights, kept_tokens.bool(), valid.bool(), torch.zeros_like(weights), WeightMetrics(decisions), rule)

    def part(self, index: slice | Tensor | tuple[Tensor | slice, ...]) -> Corrected:
        """The same decisions for some rows (padded; a second index cuts their width) or tokens (packed), the metrics of the whole.

        A rule with statistics over the batch (budget, normalize) is worked out once, over the whole step, and handed to
        each micro-batch in parts.
        """
        names = ("weight", "kept", "trained", "log_r", "centered")
        parts = {name: getattr(self, name)[index] for name in names if getattr(self, name) is not None}
        return replace(self, **parts)


@takes_arrays()
@torch.no_grad()
def correct(
    rule: Correction | str,
    *,
    behavior: Float[Tensor, "*tokens"],
    mask: Tensor,
    proximal: Float[Tensor, "*tokens"] | None = None,
    current: Float[Tensor, "*tokens"] | None = None,
    advantages: Tensor | None = None,
    head: HeadLogProbs | None = None,
    age: Tensor | None = None,
    entropy: Tensor | None = None,
    group: Tensor | None = None,
    cu_seqlens: Int[Tensor, " bounds"] | None = None,
    process_group: ProcessGroup | None = None,
    context_group: ProcessGroup | None = None,
) -> Corrected:
    """Weight and mask of each token under a correction, which may be a preset's name.

    Tokens are padded `[rows, width]`, or packed `[tokens]` with `cu_seqlens`. `advantages` are per token or per sequence.
    `head` is what the policies say of more ids than the sampled one, for gates on `head_tv` and `head_kl`;
    `age` the learner's version less that of the weights that sampled each token, negative where it is not known, for gates on `age`;
    `entropy` that of each token's distribution, for `bound_scale: entropy`, and where it is not known (NaN, negative) a bound has no width;
    `group` a prompt id per sequence, for `normalize: group`, every sequence of a group on one rank.
    `process_group` spans the ranks that hold the batch together, for statistics over all of it; `context_group` the ranks
    that each hold a part of every sequence.
    """
    rule = as_correction(rule)
    given = {"behavior": behavior, "proximal": proximal, "current": current}
    policies = required_log_probs(rule, given, advantages, context_group)
    layout = checked_layout(policies, mask, cu_seqlens, groups(process_group, context_group))
    check_head(rule, head, mask)
    check_further(rule, age=age, entropy=entropy, group=group)

    def plain(mask: Tensor) -> Decisions:
        beside: dict[str, Any] = {
            "advantages": advantages,
            "head": head,
            "age": age,
            "entropy": entropy,
            "group": group,
        }
        return decide(rule, batch(policies, rule.pairs, mask, layout, **beside))

    # the same in one pass, where it fits
    fast = fast_decisions(rule, policies, mask, layout) if advantages is None else None
    run = None if fast is None else fast.run
    if fast is not None and run is not None:
        metrics = fast.metrics(plain, aged=age is not None)
        corrected = Corrected(run.weight, run.kept, run.trained, run.log_r, metrics, rule)
    else:
        decisions = plain(mask)
        kept, trained = decisions.kept.bool(), decisions.batch.valid.bool()
        metrics = Metrics(rule, lambda: decisions, valued=advantages is not None, aged=age is not None)
        centered = None if decisions.centered is None else decisions.centered.bool()
        corrected = Corrected(decisions.weight, kept, trained, decisions.log_r, metrics, rule, centered)
    if (
        is_whole_batch(rule, corrected.kept, layout)
        and not bool(corrected.kept.any())
        and bool(corrected.trained.any())
    ):
        say_all_rejected(rule, metrics)
    return corrected


def is_whole_batch(rule: Correction, tokens: Tensor, layout: Layout) -> bool:
    """Whether a rule that rejects can be asked, at no cost, what it left of a batch: on the host, and of more than one sequence."""
    if not rule.gates or torch.compiler.is_compiling() or not is_bare(tokens) or layout.ranks.whole is not None:
        return False
    if _get_current_dispatch_mode() is not None:  # FakeTensorMode and its like hold no numbers
        return False
    return (len(layout.cu_seqlens) - 1 if isinstance(layout, Packed) else len(tokens)) > 1


class Needs(NamedTuple):
    """What a rule looks at, asked once of each: an answer goes over all of its gates."""

    policies: tuple[str, ...]
    advantages: bool
    head: bool
    age: bool
    entropy: bool
    group: bool


@cache_by_identity
def needs_of(rule: Correction) -> Needs:
    """What a rule looks at."""
    return Needs(
        rule.needs, rule.needs_advantages, rule.needs_head, rule.needs_age, rule.needs_entropy, rule.needs_group
    )


def check_head(rule: Correction, head: HeadLogProbs | None, mask: Tensor) -> None:
    """A head for a rule that looks at one, of the tokens of the mask."""
    if needs_of(rule).head and head is None:
        raise InputError(
            "This correction needs head, got None. One of its gates is on head_tv or head_kl: pass trimtab.HeadLogProbs."
        )
    if head is not None and head.targets.shape != mask.shape:
        raise InputError(
            f"head needs targets in the shape of mask {tuple(mask.shape)}, got {tuple(head.targets.shape)}. Cut it with the batch."
        )


def check_further(rule: Correction, *, age: Tensor | None, entropy: Tensor | None, group: Tensor | None) -> None:
    """What a rule looks at beside log-probs is there."""
    needs = needs_of(rule)
    if needs.age and age is None:
        raise InputError(
            "This correction needs age, got None. One of its gates is on age: pass the learner's version less that of each token."
        )
    if needs.entropy and entropy is None:
        raise InputError(
            "This correction needs entropy, got None. One of its bounds is scaled by it: pass the entropy of each token, which "
            "trimtab.selected_log_probs(..., entropy=True) gives."
        )
    if needs.group and group is None:
        raise InputError(
            "This correction needs group, got None. Its weights are normalised by group: pass one prompt id per sequence."
        )


def required_log_probs(
    rule: Correction,
    given: Mapping[str, Tensor | None],
    advantages: Tensor | None,
    context_group: ProcessGroup | None,
) -> dict[str, Tensor]:
    """The log-probs a rule reads, or an error that names what is missing."""
    needs = needs_of(rule)
    policies = {name: log_probs for name in needs.policies if (log_probs := given[name]) is not None}
    for name in needs.policies:
        if name not in policies:
            raise InputError(
                f"This correction ({rule.policies}) needs {name} log-probs, got None. It compares {', '.join(rule.pairs)}."
            )
    if needs.advantages and advantages is None:
        raise InputError(
            "This correction needs advantages, got None. One of its gates acts by the sign of the advantage."
        )
    if context_group is not None and rule.has_segments:
        raise InputError(
            "A segment or prefix level needs whole sequences, got a context_group. Gather the sequence, or judge by sequence."
        )
    return policies


def decide(rule: Correction, tokens: Batch) -> Decisions:
    """What a rule decides about a batch, as indicators."""
    trained = kept = not_zeroed = tokens.valid
    results: list[GateResult] = []
    for gate in rule.gates:
        result = gate_result(gate, gate.pair or rule.pair, tokens, kept if gate.scope == "kept" else trained)
        results.append(result)
        if gate.action == "reject":
            kept = kept * result.passes
        elif gate.action == "zero":
            not_zeroed = not_zeroed * result.passes
    weight, weighed = kept * not_zeroed, None
    if rule.weight is not None and rule.weight.level != "one":
        weighed = weighing(rule.weight, rule.pair, tokens, kept if rule.weight.scope == "kept" else trained)
        weight.mul_(_clamp(token_weights(weighed, tokens, rule.normalize), results))
    return Decisions(rule=rule, batch=tokens, results=tuple(results), weighing=weighed, kept=kept, weight=weight)


def _clamp(per_token: Float[Tensor, "*#tokens"], results: list[GateResult]) -> Float[Tensor, "*#tokens"]:
    """The weight over the tokens, held at the bounds of the clamp gates that fired."""
    for result in results:
        if result.gate.action == "clamp":
            per_token = torch.where(result.passes > 0, per_token, _at_bounds(per_token, result))
    return per_token


def _at_bounds(per_token: Float[Tensor, "*#tokens"], result: GateResult) -> Float[Tensor, "*#tokens"]:
    """The weight at the bounds of a gate on the ratio."""
    if is_fixed(result.gate):
        return per_token.clamp(min=result.gate.lower, max=result.gate.upper)
    for bound, hold in zip(result.bounds.of_ratio(per_token), (torch.maximum, torch.minimum), strict=True):
        if bound is not None:
            over_tokens = bound if bound.ndim == 0 or result.units is None else result.units.spread(bound)
            per_token = hold(per_token, over_tokens)
    return per_token
