"""What a teacher adds to the worth of a sampled token: its log-ratio to the student, detached."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from trimtab.config.advantages import Distillation
from trimtab.core.divergence import k3
from trimtab.core.ratio import is_finite, working_type, zero_outside
from trimtab.core.sums import LIMIT


@torch.no_grad()
def teacher_signal(
    config: Distillation,
    teacher: Float[Tensor, "*tokens"],
    student: Float[Tensor, "*tokens"],
    counted: Float[Tensor, "*tokens"],
) -> Float[Tensor, "*tokens"]:
    """coefficient·(log teacher − log student) of the counted tokens, 0 elsewhere.

    −∇KL(student ‖ teacher) = E[(log teacher − log student)·∇log student] over the student's own samples: the policy gradient with
    this advantage. On samples of an older policy a ratio has to weigh it, which is the loss's and the correction's part.
    """
    gap = log_gap(teacher, student, counted)
    limited = gap if config.limit is None else gap.clamp(-config.limit, config.limit)
    return limited * config.coefficient


def log_gap(
    teacher: Float[Tensor, "*tokens"], student: Float[Tensor, "*tokens"], counted: Float[Tensor, "*tokens"]
) -> Float[Tensor, "*tokens"]:
    """log teacher − log student of the counted tokens, 0 elsewhere; subtracted in the working type."""
    kind = working_type(teacher, student, counted)
    return zero_outside(teacher.detach().to(kind) - student.detach().to(kind), counted)


def known_tokens(*log_probs: Tensor | None) -> Float[Tensor, "*tokens"] | None:
    """1 where each of these is a finite number; None where there are none."""
    known: Tensor | None = None
    for each in log_probs:
        if each is not None:
            finite = is_finite(each.detach().to(working_type(each)))
            known = finite if known is None else known * finite
    return known


def teacher_sums(gap: Float[Tensor, "*tokens"], counted: Float[Tensor, "*tokens"]) -> tuple[Tensor, Tensor]:
    """Two estimates of the KL from student to teacher, summed over tokens: log student − log teacher, and k3, which is never negative."""
    limited = gap.double().clamp(-LIMIT, LIMIT)
    return -(gap.double() * counted).sum(), (k3(limited) * counted).sum()
