"""The pieces from which a dialect says its loss and its advantages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from trimtab.config.advantages import Estimator, Normalise, Shaping
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction
from trimtab.errors import ConfigError, UnknownNameError, nearest

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
        raise ConfigError(f"{what} cannot be said: {why}.")


def row(table: Table, key: str, name: str, given: Any) -> Any:
    """What a table says under a name; a name that is not there is refused."""
    if name not in table:
        raise UnknownNameError(f"{key} {name!r} cannot be said. {nearest(name, table)}")
    return table[name](given)


def reduction_of(table: Mapping[str, str], key: str, name: str, constant: int | float | None = None) -> Reduction:
    """The reduction of that name; only Dr. GRPO's takes the constant."""
    if name not in table:
        raise UnknownNameError(f"{key} {name!r} cannot be said. {nearest(name, table)}")
    mode: Any = table[name]
    if mode != "seq-mean-token-sum-norm":
        return Reduction(mode=mode)
    if constant is None:
        raise ConfigError(f"{key} {name!r} divides by a number these settings do not hold. Pass width=… to read.")
    return Reduction(mode=mode, constant=float(constant))
