"""The pieces from which every dialect builds a correction, a loss and advantages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from trimtab.config.advantages import Estimator, Grpo, Normalise, ReinforcePlusPlus, Rloo, Shaping
from trimtab.config.correction import Correction, Gate, Limit, Weight
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction
from trimtab.dialects.given import Given
from trimtab.dialects.reading import NOTHING
from trimtab.errors import ConfigError, UnknownNameError, nearest

# ── corrections ───────────────────────────────────────────────────────────────────────────────────────────────────────

OFF = NOTHING
OPEN = 1e12
"""A ratio bound this far out, or its inverse, stands for an open side where a framework demands a number."""

UNITS: dict[str, dict[str, Any]] = {
    "token": {"level": "token"},
    "segment": {"level": "segment", "agg": "mean"},
    "geometric": {"level": "sequence", "agg": "mean"},
    "sequence": {"level": "sequence", "agg": "sum"},
    "max": {"level": "sequence", "agg": "max"},
    "every": {"level": "sequence", "agg": "every"},
}
"""What a ratio is gathered over: the names under which frameworks know the levels."""

Gates = tuple[Gate, ...]


def limit(bound: float | None, unit: str) -> Limit | None:
    """A safety bound where frameworks put it: on the token at token level, on what was gathered elsewhere."""
    if bound is None:
        return None
    return Limit(bound=bound, at="token" if unit in ("token", "max", "every") else "gathered")


def ratio_gate(unit: str, lower: float | None, upper: float | None, **more: Any) -> Gates:
    """A gate on the ratio of a unit; none where both sides are open."""
    low = lower if lower is not None and lower > 0 else None
    if low is None and upper is None:
        return ()
    return (Gate(metric="ratio", **UNITS[unit], lower=low, upper=upper, **more),)


def weight_of(
    unit: str, lower: float | None = None, upper: float | None = None, *, zero: bool = False, **more: Any
) -> Weight:
    """A weight of a unit, held or zeroed outside its bounds; a lower bound of 0 is none."""
    low = lower if lower is not None and lower > 0 else None
    outside = "zero" if zero and (low, upper) != (None, None) else "clamp"
    return Weight(level=unit, lower=low, upper=upper, outside=outside, **more)  # pyright: ignore[reportArgumentType]


def opsm(delta: float, **more: Any) -> Gate:
    """The off-policy sequence mask: mean(base − target) at most `delta` where the advantage is negative."""
    fields: dict[str, Any] = {"pair": "current/behavior", "action": "zero", **more}
    return Gate(metric="k1", level="sequence", upper=delta, when="negative_advantage", **fields)


def alone(given: Given, gates: Gates) -> Correction:
    """Gates with pairs of their own and no weight.

    Where the settings also say the loss, its ratio divides by proximal. Where they do not, nothing here reads proximal, and
    `bypass` spares the caller those log-probs.
    """
    if not gates:
        return OFF
    return Correction(policies="decoupled" if given.speaks_of("loss") else "bypass", gates=gates)


# ── losses and advantages ─────────────────────────────────────────────────────────────────────────────────────────────

ALL: dict[str, Any] = {"baseline": "all"}
"""In every framework each row votes, also one that was rejected."""
RAW: dict[str, Any] = {"baseline": "all", "singleton": "raw"}
"""…and a group of one keeps its reward."""

Table = dict[str, Callable[[Any], Any]]
"""A framework's name for a loss or an estimator → ours, made from its settings."""


@dataclass(frozen=True)
class LossPart:
    """A loss with its reduction and KL term."""

    loss: Objective | None = None
    reduction: Reduction | None = None
    kl: KlPenalty | None = None
    kl_to: Literal["reference", "behavior", "teacher"] = "reference"
    entropy: EntropyBonus | None = None
    advantage_scale: float = 1.0
    rows: Literal["with tokens", "all"] = "with tokens"


@dataclass(frozen=True)
class AdvantagePart:
    """An advantage estimator with what comes before and after it."""

    advantage: Estimator | None = None
    shaping: tuple[Shaping, ...] = ()
    advantage_norm: Normalise | None = None
    reward_kl: KlPenalty | None = None
    advantage_clip: float | None = None


def bonus(coefficient: float | None, **more: Any) -> EntropyBonus | None:
    """The entropy term; none where its coefficient is 0 or left out."""
    return EntropyBonus(coefficient=coefficient, **more) if coefficient else None


def refuse(said: Any, what: str, why: str) -> None:
    """A ConfigError that names an option, where it is in use."""
    if said:
        raise ConfigError(f"{what} is not supported: {why}.")


def row(table: Table, key: str, name: str, given: Any) -> Any:
    """What a table says under a name; a name that is not there is refused."""
    if name not in table:
        raise UnknownNameError(f"{key} {name!r} is not supported. {nearest(name, table)}")
    return table[name](given)


def reduction_of(table: Mapping[str, str], key: str, name: str, constant: int | float | None = None) -> Reduction:
    """The reduction of that name; only Dr. GRPO's takes the constant."""
    if name not in table:
        raise UnknownNameError(f"{key} {name!r} is not supported. {nearest(name, table)}")
    mode: Any = table[name]
    if mode != "seq-mean-token-sum-norm":
        return Reduction(mode=mode)
    if constant is None:
        raise ConfigError(f"{key} {name!r} divides by a number these settings do not hold. Pass width=… to read.")
    return Reduction(mode=mode, constant=float(constant))


def as_group_estimator(part: AdvantagePart) -> AdvantagePart:
    """The same with GRPO or RLOO in place of normalised rewards and returns that come to them.

    AReaL and ROLL normalise the rewards of a group and sum them to the end. Undiscounted, each token of a row gets the normalised
    reward of the row: (1, 0, 0, 0) less 0.25, over 0.5 (n − 1), is (1.5, −0.5, −0.5, −0.5), as GRPO has it.
    """
    last = part.shaping[-1] if part.shaping else None
    if last is None or last.normalise is None or not isinstance(part.advantage, ReinforcePlusPlus):
        return part
    found = _group_estimator(part.advantage, last, last.normalise)
    if found is None:
        return part
    rest = last.but(normalise=None)
    return replace(part, advantage=found, shaping=(*part.shaping[:-1], *([] if rest == Shaping() else [rest])))


def _group_estimator(returns: ReinforcePlusPlus, shaping: Shaping, norm: Normalise) -> Estimator | None:
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
