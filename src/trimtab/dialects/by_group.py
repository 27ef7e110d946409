"""GRPO and RLOO by another name: rewards normalised in their group, of which every token then gets what is to come."""

from __future__ import annotations

from dataclasses import replace

from trimtab.config.advantages import Estimator, Grpo, Normalise, ReinforcePlusPlus, Rloo, Shaping
from trimtab.dialects.objectives import AdvantagePart


def by_group(part: AdvantagePart) -> AdvantagePart:
    """The same with the estimator it amounts to.

    AReaL and ROLL normalise the rewards of a group and sum them to the end. Undiscounted, each token of a row gets the normalised
    reward of the row: (1, 0, 0, 0) less 0.25, over 0.5 (n − 1), is (1.5, −0.5, −0.5, −0.5), as GRPO has it.
    """
    last = part.shaping[-1] if part.shaping else None
    if last is None or last.normalise is None or not isinstance(part.advantage, ReinforcePlusPlus):
        return part
    found = _estimator(part.advantage, last, last.normalise)
    if found is None:
        return part
    rest = last.but(normalise=None)
    return replace(part, advantage=found, shaping=(*part.shaping[:-1], *([] if rest == Shaping() else [rest])))


def _estimator(returns: ReinforcePlusPlus, shaping: Shaping, norm: Normalise) -> Estimator | None:
    """None where discounts, a vote, a centre of another level or an eps elsewhere make it another thing."""
    silent_rows = shaping.no_eos != "keep" and returns.normalise is not None
    if returns.gamma != 1 or returns.group_mean or norm.mean != "group" or silent_rows:
        return None
    shared = {name: getattr(returns, name) for name in ("baseline", "normalise", "lower", "upper")}
    if norm.leave_one_out:
        return Rloo(singleton=norm.singleton, **shared) if norm.std is None else None
    if norm.std is None:
        return Grpo(std=False, singleton=norm.singleton, **shared)
    if norm.std != "group" or norm.eps_at != "std":
        return None
    return Grpo(unbiased=norm.unbiased, eps=norm.eps, singleton=norm.singleton, **shared)
