"""AReaL's way from rewards to advantages, from what `read` found."""

from __future__ import annotations

import torch
from torch import Tensor

import trimtab
from trimtab import Gae
from trimtab.dialects import Reading


def way(
    reading: Reading,
    *,
    rewards: Tensor,
    mask: Tensor,
    size: int,
    attention_mask: Tensor,
    behavior: Tensor,
    reference: Tensor | None = None,
    values: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Advantages, and returns where there are any. `mask` is the loss mask looking one token ahead, `size` the rows of a prompt."""
    assert reading.advantage is not None
    group = torch.arange(len(mask)) // size
    *first, last = reading.shaping or (trimtab.Shaping(),)
    for shaping in first:
        rewards = trimtab.shaped(shaping, rewards, mask=mask, group=group, baseline="all").rewards
    behavior = behavior.roll(-1, -1)  # the framework looks one token ahead
    penalty = torch.zeros_like(behavior)
    if reading.reward_kl is not None:
        compared = torch.zeros_like(behavior) if reference is None else reference
        penalty = -trimtab.kl_penalty(reading.reward_kl, policy=behavior, reference=compared, mask=mask)
    learnt: dict[str, Tensor] = {}
    if isinstance(reading.advantage, Gae):
        values = torch.zeros_like(behavior) if values is None else values
        learnt = {"values": values, "bootstrap": values[:, -1]}
    found = trimtab.advantages(
        reading.advantage,
        rewards=rewards,
        mask=mask,
        group=group,
        ended=attention_mask.sum(1) < attention_mask.shape[1],
        token_rewards=penalty,
        shaping=last,
        **learnt,
    )
    if reading.advantage_norm is None:
        return found.advantages, found.returns
    return trimtab.normalised(reading.advantage_norm, found.advantages, mask=mask), found.returns
