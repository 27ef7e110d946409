"""verl: `distillation`, a teacher's log-ratio as the advantage, or a KL to the teacher beside the policy's loss."""

from __future__ import annotations

from trimtab.config.advantages import Distillation
from trimtab.config.losses import Clip
from trimtab.dialects.framework import Given
from trimtab.dialects.parts import ALL, refuse

OPTION = "verl distillation"


def follows_teacher(given: Given) -> bool:
    """Whether a teacher's log-ratio takes the place of rewards; other forms of a teacher that ours cannot say are refused."""
    if not given["distillation.enabled"]:
        return False
    refuse(
        str(given["teacher.loss_mode"]).endswith("_topk"),
        f"{OPTION} loss_mode {given['teacher.loss_mode']}",
        "it compares the likeliest ids of the teacher, not the sampled one. Use k1 with use_policy_gradient",
    )
    if not given["teacher.use_policy_gradient"]:
        refuse(
            not given["teacher.use_task_rewards"],
            f"{OPTION} without use_task_rewards and use_policy_gradient",
            "a KL to the teacher is all that is descended. Set use_policy_gradient with loss_mode k1",
        )
        return False
    refuse(
        given["teacher.use_task_rewards"],
        f"{OPTION} use_policy_gradient with use_task_rewards",
        "two policy losses are added, each clipped by itself. Set use_task_rewards to false",
    )
    refuse(
        given["teacher.loss_mode"] not in ("k1", "kl"),
        f"{OPTION} use_policy_gradient with loss_mode {given['teacher.loss_mode']}",
        "what is gained is not the log-ratio, and its gradient not that of the KL. Use k1",
    )
    return True


def teacher_loss(given: Given) -> Clip:
    """PPO's clip with bounds of its own; the dual one is always 3."""
    sides = (given["teacher.clip_ratio_low"], given["teacher.clip_ratio_high"])
    low, high = (given["teacher.clip_ratio"] if side is None else side for side in sides)
    return Clip(low=low, high=high, dual=3.0, log_limit=20.0)


def teacher_advantage(given: Given) -> Distillation:
    """−clamp(log current − log teacher), worked out in every forward pass."""
    return Distillation(student="current", limit=given["teacher.loss_max_clamp"], **ALL)
