"""The estimators of verl and SkyRL, which have one signature: a reward per token, a mask, a prompt per row."""

from __future__ import annotations

from typing import Any

from torch import Tensor


def outcome_advantages(
    function: Any, *, rewards: Tensor, mask: Tensor, group: Tensor, settings: dict[str, Any]
) -> dict[str, Any]:
    """`function` has the signature of compute_grpo_outcome_advantage; the reward stands on the first token."""
    token_rewards = mask.new_zeros(mask.shape, dtype=rewards.dtype)
    token_rewards[:, 0] = rewards
    found, _ = function(token_level_rewards=token_rewards, response_mask=mask.float(), index=group.numpy(), **settings)
    return {"advantages": (found * mask).sum(1) / mask.sum(1).clamp(min=1)}
