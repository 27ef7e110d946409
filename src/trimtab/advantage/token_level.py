"""Estimators that look at single tokens: returns along a sequence, less a critic's values or a baseline; a table, one row each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.advantage.episodes import Episodes
from trimtab.advantage.outcome import group_centred, within_bounds
from trimtab.config.advantages import Gae, Gaps, Normalise, OptimalToken, ReinforcePlusPlus, ReMax, Shaping
from trimtab.core.layout import after_last, ends, last_trained, prefix_sums, reverse_scan
from trimtab.core.ratio import zero_outside
from trimtab.errors import InputError


@dataclass(frozen=True, eq=False)
class Estimate:
    """What an estimator found, before the advantages are normalised over tokens."""

    tokens: Float[Tensor, "*tokens"]
    rows: Float[Tensor, " rows"] | None = None
    returns: Float[Tensor, "*tokens"] | None = None
    whiten: Normalise | None = None
    size: Float[Tensor, "*tokens"] | None = None
    """The sizes of what each number is a difference of: their last digits are what it is off by."""


@dataclass(frozen=True, eq=False)
class Path:
    """How a recurrence walks back over the tokens, all flat. Slots after the last trained token are always walked through."""

    trained: Float[Tensor, " n"]
    stop: Float[Tensor, " n"]  # the last slot of each sequence: nothing comes from beyond
    last: Float[Tensor, " n"]  # the last trained token of each sequence
    steps: Float[Tensor, " n"]  # slots that discount
    passes: Float[Tensor, " n"]  # slots that hand on what they get
    shape: torch.Size

    def back(self, factor: float | Tensor, add: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """x[t] = add[t] + factor · x[next], along each sequence."""
        return reverse_scan((self.steps * factor + self.passes) * (1.0 - self.stop), add)


def path(batch: Episodes, gaps: Gaps) -> Path:
    """The way back over the trained tokens, and what an untrained one between them means."""
    layout, trained = batch.layout, batch.trained.flatten()
    passes = 1.0 - trained if gaps == "skip" else after_last(layout, batch.trained).flatten()
    return Path(
        trained=trained,
        stop=ends(layout, batch.trained).flatten(),
        last=last_trained(layout, batch.trained).flatten(),
        steps=1.0 - passes if gaps == "step" else trained,
        passes=passes,
        shape=batch.trained.shape,
    )


def token_rewards(batch: Episodes, way: Path, task: Float[Tensor, " rows"] | None) -> Float[Tensor, " n"]:
    """The reward of each token: `task` on each row's last trained token (None: as given per token), and what came besides.

    Last trained, not last kept: a rejected token still hands its reward back to the others.
    """
    if task is None:
        assert batch.per_token is not None
        reward = batch.per_token.flatten()
    else:
        reward = batch.spread(task).expand(way.shape).flatten() * way.last
    extra = batch.given.token_rewards
    return reward if extra is None else reward + batch.clean(extra).flatten()


def _task(batch: Episodes) -> Float[Tensor, " rows"] | None:
    """The task reward of each row; None where it came per token."""
    return batch.reward if batch.per_token is None else None


def to_go(way: Path, reward: Float[Tensor, " n"], gamma: float) -> Float[Tensor, "*tokens"]:
    """The discounted reward to come, from each trained token on."""
    return (way.back(gamma, reward) * way.trained).view(way.shape)


def gae(config: Gae, shaping: Shaping, batch: Episodes) -> Estimate:
    """Advantages from a critic's values, and the returns the critic learns."""
    way, values = path(batch, config.gaps), batch.given.values
    assert values is not None
    value = batch.clean(values).flatten()
    follows = _next_value(batch, way, value, _bootstrap(shaping, batch))
    delta = (token_rewards(batch, way, _task(batch)) - value) * way.trained + way.steps * follows * config.gamma
    lam = _lam(config, batch)
    advantages = way.back(lam * config.gamma, delta) * way.trained
    same = config.value_lam is None
    learnt = advantages if same else way.back(config.value_lam * config.gamma, delta) * way.trained  # pyright: ignore[reportOptionalOperand]
    returns = (learnt + value).view(way.shape)
    size = batch.clean(values).abs() + returns.abs()
    return Estimate(advantages.view(way.shape), returns=returns, whiten=config.normalise, size=size)


def _bootstrap(shaping: Shaping, batch: Episodes) -> Float[Tensor, " rows"] | None:
    """The value after each row's end where it did not end there; with no_eos zero, a row without EOS ends at 0."""
    after, truncated = batch.given.bootstrap, batch.truncated
    if after is None or truncated is None or shaping.no_eos == "zero":
        return None
    return torch.where(truncated & (batch.not_dropped > 0), after.detach().double(), 0.0)


def _next_value(batch: Episodes, way: Path, value: Tensor, bootstrapped: Tensor | None) -> Tensor:
    """The value of the state after each token: of the next slot that has one, never of a masked one."""
    beyond = way.stop.new_zeros(()) if bootstrapped is None else batch.spread(bootstrapped).expand(way.shape).flatten()
    first = reverse_scan(way.passes * (1.0 - way.stop), value + way.passes * way.stop * beyond)
    return torch.cat([first[1:], first.new_zeros(min(1, len(first)))]) * (1.0 - way.stop) + way.stop * beyond


def _lam(config: Gae, batch: Episodes) -> float | Tensor:
    if config.length_adaptive is None:
        return config.lam
    lengths = batch.layout.total(batch.trained.double()).clamp(min=1.0)
    lam = (1.0 - 1.0 / (config.length_adaptive * lengths)).clamp(min=0.0)
    return batch.spread(lam).expand(batch.trained.shape).flatten()


def optimal_token(config: OptimalToken, shaping: Shaping, batch: Episodes) -> Estimate:
    """The reward to come less the group's weighted mean of it at the same step. A step is the t-th trained token of a row.

    W of a token is the sum up to it of w²·‖∇log π‖², of which 1 − 2π + Σπ² is the square with respect to the logits. The host reads once
    how many steps the longest row has.
    """
    del shaping
    trained, groups, way = batch.trained, batch.levels["group"], path(batch, "skip")
    returns = to_go(way, token_rewards(batch, way, _task(batch)), 1.0)
    energy = prefix_sums(batch.layout, _energy(batch)) * trained
    step = (prefix_sums(batch.layout, trained) - 1.0).long().clamp(min=0)
    longest = step.amax() + 1 if step.numel() else torch.ones((), dtype=torch.int64, device=step.device)
    steps = int(groups.ranks.greatest(longest))  # asked on every rank, also on one without rows
    place = batch.layout.spread(groups.index.double()).expand(trained.shape).long() * steps + step
    place = torch.where(batch.voting > 0, place, groups.count * steps).flatten()  # whoever does not vote is apart

    worth, weight, votes = (each.double().flatten() for each in (returns, energy, batch.voting))
    sums = worth.new_zeros(groups.count * steps + 1, 3)
    local = torch.stack([worth * weight, weight, votes], -1) * votes.unsqueeze(-1)
    gained, total, number = groups.ranks.total(sums.index_add_(0, place, local)).unbind(-1)

    at = (batch.layout.spread(groups.index.double()).expand(trained.shape).long() * steps + step).flatten()
    baseline = gained[at] / (total[at] + config.eps).clamp(min=1e-300)
    if config.tail == "raw":
        baseline = torch.where(number[at] > 1, baseline, 0.0)
    alone = batch.spread((groups.spread(groups.total(batch.votes)) <= 1).double()).expand(trained.shape).flatten()
    found = worth - torch.where(alone > 0, 0.0 if config.singleton == "raw" else worth, baseline)
    tokens = found.view(trained.shape).to(trained.dtype) * trained
    return Estimate(tokens, returns=returns, whiten=config.normalise, size=returns.abs())


def _energy(batch: Episodes) -> Float[Tensor, "*tokens"]:
    """w²·(1 − 2π + Σπ²) of the trained tokens, never negative."""
    given, trained = batch.given, batch.trained
    assert given.student is not None
    assert given.squares is not None
    own = zero_outside(given.student.detach(), trained).exp()
    square = (1.0 - 2.0 * own + zero_outside(given.squares.detach(), trained)).clamp(min=0.0) * trained
    return square if given.weight is None else square * zero_outside(given.weight.detach(), trained).square()


def remax(config: ReMax, shaping: Shaping, batch: Episodes) -> Estimate:
    """The reward to come less that of the greedy answer."""
    del shaping
    way, greedy = path(batch, "skip"), batch.given.baselines
    assert greedy is not None
    returns = to_go(way, token_rewards(batch, way, _task(batch)), 1.0)
    less = batch.spread(torch.nan_to_num(greedy.detach().double(), posinf=0.0, neginf=0.0) * batch.tasked)
    size = returns.abs() + less.abs()
    return Estimate(returns - less, returns=returns, whiten=config.normalise, size=size)


def reinforce_plus_plus(config: ReinforcePlusPlus, shaping: Shaping, batch: Episodes) -> Estimate:
    """The discounted reward to come, with or without the group's mean reward as its baseline."""
    del shaping
    way, task = path(batch, config.gaps), _task(batch)
    if config.group_mean:
        task = within_bounds(config, group_centred(config.singleton, batch.sample(batch.reward))) * batch.votes
    elif task is not None:
        task = within_bounds(config, task) * batch.tasked
    elif (config.lower, config.upper) != (None, None):
        raise InputError(
            "ReinforcePlusPlus with lower or upper needs one reward per sequence, got one per token. Bound them before."
        )
    returns = to_go(way, token_rewards(batch, way, task), config.gamma)
    return Estimate(returns, returns=returns, whiten=config.normalise)


TOKEN_LEVEL: dict[type, Callable[[Any, Shaping, Episodes], Estimate]] = {
    Gae: gae,
    ReMax: remax,
    OptimalToken: optimal_token,
    ReinforcePlusPlus: reinforce_plus_plus,
}
