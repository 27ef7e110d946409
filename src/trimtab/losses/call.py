"""One call of `policy_loss`, its settings resolved and its tensors checked: what both forms of a loss work on."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributed import ProcessGroup

from trimtab.config.correction import Correction
from trimtab.config.losses import REDUCTIONS, EntropyBonus, Fipo, Gspo, KlPenalty, Objective, Reduction
from trimtab.core.correct import Corrected, required_log_probs
from trimtab.core.head import HeadLogProbs
from trimtab.core.layout import Layout
from trimtab.core.reduce import Denominator
from trimtab.errors import ConfigError, ConfigWarning, InputError
from trimtab.losses.table import OBJECTIVES


@dataclass(frozen=True, eq=False, kw_only=True)
class LossCall:
    """What one call asks for. `policies` are those that are compared, in `pairs`; `anchor` the one that ρ divides by."""

    loss: Objective
    correction: Correction | Corrected | None
    reduction: Reduction
    penalty: tuple[KlPenalty | None, float]
    bonus: tuple[EntropyBonus | None, float]
    policies: Mapping[str, Tensor]
    pairs: tuple[str, ...]
    anchor: str
    advantages: Tensor
    mask: Tensor
    layout: Layout
    entropy: Tensor | None
    denominator: Denominator | None
    group: Tensor | None
    generator: torch.Generator | None
    head: HeadLogProbs | None = None
    age: Tensor | None = None


def compared_policies(policies: Mapping[str, Tensor | None], pairs: tuple[str, ...]) -> dict[str, Tensor]:
    """The policies that are compared; the others are not looked at."""
    named = {policy for pair in pairs for policy in pair.split("/")}
    return {name: log_probs for name, log_probs in policies.items() if log_probs is not None and name in named}


def chosen_reduction(loss: Objective, asked: Reduction | str | None) -> Reduction:
    """The reduction asked for, or the loss's own. Named ones are made beforehand: nothing is validated while it is compiled."""
    name = loss.own_reduction if asked is None else asked
    known = REDUCTIONS.get(name) if isinstance(name, str) else None
    return Reduction.from_settings(name) if known is None else known


def rule_of(correction: Correction | Corrected | None) -> Correction | None:
    """The rule of a correction, made already or not."""
    return correction.rule if isinstance(correction, Corrected) else correction


def anchor_of(loss: Objective, policies: Mapping[str, Tensor | None], correction: Correction | Corrected | None) -> str:
    """The policy that ρ divides by; `current` itself where a loss has no ratio and none was given."""
    rule = rule_of(correction)
    name = "behavior" if rule is not None and rule.policies == "bypass" else "proximal"
    if policies[name] is not None:
        return name
    if not loss.uses_ratio:
        return "current"
    remedy = "It divides by them." if name == "behavior" else "On data just sampled, pass proximal=current.detach()."
    raise InputError(f"{type(loss).__name__} needs {name} log-probs, got None. {remedy}")


def compared_pairs(correction: Correction | Corrected | None, anchor: str, kl: KlPenalty | None) -> tuple[str, ...]:
    """The pairs of policies to compare, each once: the correction's, ρ's, and the reference's."""
    of_rule = correction.pairs if isinstance(correction, Correction) else ()
    reference = () if kl is None else ("current/reference",)
    return tuple(dict.fromkeys([*of_rule, f"current/{anchor}", *reference]))


def known_mask(
    mask: Tensor,
    correction: Correction | Corrected | None,
    policies: Mapping[str, Tensor | None],
    advantages: Tensor,
    context_group: ProcessGroup | None,
) -> Tensor:
    """The mask less the tokens that a correction made beforehand found missing; one still to be made must have what it reads."""
    if isinstance(correction, Correction):
        required_log_probs(correction, policies, advantages, context_group)
    if not isinstance(correction, Corrected):
        return mask
    if correction.weight.shape != mask.shape:
        raise InputError(
            f"correction needs the shape of mask {tuple(mask.shape)}, got {tuple(correction.weight.shape)}. "
            "Take this micro-batch out of it with .part(index)."
        )
    return torch.where(correction.trained, mask, torch.zeros_like(mask))


UNUSED_BEHAVIOR = (
    "policy_loss got behavior log-probs and no correction, so they change nothing. Pass correction='token-tis' or another, "
    "correction='off' to measure only, or leave behavior out."
)


def warn_of_doubts(loss: Objective, rule: Correction | None, reduction: Reduction, *, behavior: Tensor | None) -> None:
    """Warn the caller of `policy_loss` of what is probably not meant; nothing is said while it is compiled."""
    if torch.compiler.is_compiling():
        return
    for doubt in loss.doubts_beside(rule, reduction):
        warnings.warn(doubt, ConfigWarning, stacklevel=4)
    if behavior is not None:
        warnings.warn(UNUSED_BEHAVIOR, ConfigWarning, stacklevel=4)


def check_has_tokens(mask: Tensor) -> None:
    """A call that is the whole step has tokens."""
    if mask.numel() == 0:
        raise InputError(
            f"policy_loss needs tokens, got a mask of shape {tuple(mask.shape)}. Leave the empty batch out."
        )


def check_terms(
    loss: object,
    kl: KlPenalty | None,
    reference: Tensor | None,
    bonus: EntropyBonus | None,
    entropy: Tensor | None,
    mask: Tensor,
    context_group: ProcessGroup | None,
) -> None:
    """A loss that is known, and what its terms look at."""
    if type(loss) not in OBJECTIVES:
        raise ConfigError(f"policy_loss needs a loss such as trimtab.Clip(), got {loss!r}. See trimtab.config.losses.")
    if isinstance(loss, Gspo) and loss.level == "segment" and context_group is not None:
        raise InputError("Gspo by segment needs whole sequences, got a context_group. Use level sequence.")
    if isinstance(loss, Fipo) and context_group is not None:
        raise InputError("Fipo needs whole sequences, got a context_group. It looks at every token after a token.")
    if kl is not None and reference is None:
        raise InputError("KlPenalty needs reference log-probs, got None. Pass reference, or drop kl.")
    if bonus is not None and entropy is None:
        raise InputError("EntropyBonus needs entropy, got None. Pass the entropy of each token, or drop entropy_bonus.")
    if entropy is not None and (entropy.shape != mask.shape or not entropy.is_floating_point()):
        raise InputError(
            f"entropy needs one number per token, shape {tuple(mask.shape)}, got {entropy.dtype} {tuple(entropy.shape)}."
        )
