"""Returns and generalised advantages along sequences: the estimators that look at single tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.advantage.episodes import Episodes
from trimtab.advantage.scan import after_last, last_trained
from trimtab.config.advantages import Gae, Gaps
from trimtab.core.scan import ends, reverse_scan


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


def to_go(way: Path, reward: Float[Tensor, " n"], gamma: float) -> Float[Tensor, "*tokens"]:
    """The discounted reward to come, from each trained token on."""
    return (way.back(gamma, reward) * way.trained).view(way.shape)


def gae(
    config: Gae, batch: Episodes, task: Float[Tensor, " rows"] | None, bootstrapped: Float[Tensor, " rows"] | None
) -> tuple[Float[Tensor, "*tokens"], Float[Tensor, "*tokens"]]:
    """Advantages and the returns a critic learns. `bootstrapped`: the value after each row's end, 0 where it ended there."""
    way, values = path(batch, config.gaps), batch.given.values
    assert values is not None
    value = batch.clean(values).flatten()
    follows = _next_value(batch, way, value, bootstrapped)
    delta = (token_rewards(batch, way, task) - value) * way.trained + way.steps * follows * config.gamma
    lam = _lam(config, batch)
    advantages = way.back(lam * config.gamma, delta) * way.trained
    same = config.value_lam is None
    learnt = advantages if same else way.back(config.value_lam * config.gamma, delta) * way.trained  # pyright: ignore[reportOptionalOperand]
    return advantages.view(way.shape), (learnt + value).view(way.shape)


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
