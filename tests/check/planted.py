"""Small losses, estimators and ages: one of each that is sound, and copies with one fault each."""

from __future__ import annotations

import torch
from torch import Tensor

CAP = 2.0


def _weight(proximal: Tensor, behavior: Tensor, on: Tensor) -> Tensor:
    return torch.where(on, proximal - behavior, 0.0).exp().clamp(max=CAP).detach()


def _surrogate(current: Tensor, proximal: Tensor, advantages: Tensor, on: Tensor) -> Tensor:
    ratio = (torch.where(on, current, 0.0) - torch.where(on, proximal, 0.0)).exp()
    value = torch.where(on, advantages, 0.0)
    return -torch.minimum(ratio * value, ratio.clamp(0.8, 1.2) * value)


def sound(current, proximal, behavior, mask, advantages, step_tokens):
    on = mask & behavior.isfinite()
    loss = _surrogate(current, proximal, advantages, on) * _weight(proximal, behavior, on)
    mean = loss.detach().sum() / on.sum().clamp(min=1)
    return loss.sum() / max(step_tokens, 1), {"mean": mean}


# --- masked ----------------------------------------------------------------------------------------------------------


def nan_under_the_mask(current, proximal, behavior, mask, advantages, step_tokens):
    """0 · NaN."""
    on = mask & behavior.isfinite()
    loss = -(current - proximal).exp() * advantages * _weight(proximal, behavior, on)
    return (loss * on).sum() / max(step_tokens, 1)


def mask_leaks(current, proximal, behavior, mask, advantages, step_tokens):
    """A row's loss grows with what stands beside its tokens."""
    beside = 1 + 0.1 * torch.where(mask, 0.0, behavior).nan_to_num(0.0, 0.0, 0.0).sum(1, keepdim=True)
    return sound(current, proximal, behavior, mask, advantages * beside, step_tokens)


# --- splits ----------------------------------------------------------------------------------------------------------


def mean_of_each_micro_batch(current, proximal, behavior, mask, advantages):
    return sound(current, proximal, behavior, mask, advantages, step_tokens=int(mask.sum()))


# --- empty -----------------------------------------------------------------------------------------------------------


def divided_by_nothing(current, proximal, behavior, mask, advantages, step_tokens):
    """0 / 0 where a micro-batch has no token."""
    own = mask.sum()
    loss, _ = sound(current, proximal, behavior, mask, advantages, step_tokens=1)
    return loss / own * (own / step_tokens)


def without_a_graph(current, proximal, behavior, mask, advantages, step_tokens):
    """A micro-batch with nothing to train on returns a constant: its rank skips backward, and the others wait."""
    if not mask.any():
        return torch.zeros(())
    return sound(current, proximal, behavior, mask, advantages, step_tokens)


# --- padding ---------------------------------------------------------------------------------------------------------


def padding_counted(current, proximal, behavior, mask, advantages, step_rows):
    loss, _ = sound(current, proximal, behavior, mask, advantages, step_tokens=1)
    return loss / max(step_rows * mask.shape[1], 1)


def padding_logged(current, proximal, behavior, mask, advantages, step_tokens):
    loss, _ = sound(current, proximal, behavior, mask, advantages, step_tokens)
    return loss, {"trained": mask.float().mean()}


# --- alignment -------------------------------------------------------------------------------------------------------


def later_tokens_weigh_more(current, proximal, behavior, mask, advantages, step_tokens):
    place = 1 + torch.arange(mask.shape[1]) / 10
    return sound(current, proximal, behavior, mask, advantages * place, step_tokens)


def missing_is_ratio_one(current, proximal, behavior, mask, advantages, step_tokens):
    return sound(current, proximal, torch.where(behavior.isnan(), proximal, behavior), mask, advantages, step_tokens)


# --- weight ----------------------------------------------------------------------------------------------------------


def weight_with_a_gradient(current, proximal, behavior, mask, advantages, step_tokens):
    """Right in value on the first step, where current is proximal, and not detached."""
    on = mask & behavior.isfinite()
    weight = torch.where(on, current - torch.where(on, behavior, 0.0), 0.0).exp().clamp(max=CAP)
    return (_surrogate(current, proximal, advantages, on) * weight).sum() / max(step_tokens, 1)


def weight_of_the_wrong_policy(current, proximal, behavior, mask, advantages, step_tokens):
    """current in place of proximal."""
    on = mask & behavior.isfinite()
    loss = _surrogate(current, proximal, advantages, on) * _weight(current, behavior, on)
    return loss.sum() / max(step_tokens, 1)


def ascends(current, proximal, behavior, mask, advantages, step_tokens):
    loss, _ = sound(current, proximal, behavior, mask, advantages, step_tokens)
    return -loss


def nothing_at_all(current, proximal, behavior, mask, advantages, step_tokens):
    """Zero whatever comes: it obeys every law, and says nothing."""
    return torch.where(mask, current, 0.0).sum() * 0.0


# --- advantages ------------------------------------------------------------------------------------------------------


def _centred(rewards: Tensor, group: Tensor, votes: Tensor) -> Tensor:
    found = torch.zeros_like(rewards)
    for one in group.unique():
        own = group == one
        voters = own & votes
        if voters.any():
            found = torch.where(own, rewards - rewards[voters].mean(), found)
    return found


def sound_estimator(rewards, mask, group):
    return _centred(rewards, group, mask.any(1)) * mask.any(1)


def removed_row_votes(rewards, mask, group):
    return _centred(rewards, group, torch.ones_like(mask[:, 0]))


def groups_by_stride(rewards, mask, group):
    return sound_estimator(rewards, mask, torch.arange(len(group)) // 2)


def singleton_without_baseline(rewards, mask, group):
    alone = torch.tensor([int((group == one).sum()) == 1 for one in group])
    return torch.where(alone, rewards, sound_estimator(rewards, mask, group))


# --- ages ------------------------------------------------------------------------------------------------------------


def sound_ages(versions, mask, learner):
    known = mask & (versions >= 0)
    oldest = torch.where(known, versions, learner).amin(1)
    return torch.where(known.any(1), (learner - oldest).float(), float("nan"))


def age_of_the_newest(versions, mask, learner):
    known = mask & (versions >= 0)
    return torch.where(known.any(1), (learner - torch.where(known, versions, -1).amax(1)).float(), float("nan"))


def unknown_is_new(versions, mask, learner):
    return sound_ages(versions, mask, learner).nan_to_num(0.0)
