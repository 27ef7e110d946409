"""What a correction costs in bias and variance, computed on a ratio whose distribution is known.

Token by token, log r = σ·z − σ²/2 with z standard normal: the ratio is log-normal with mean 1, as every ratio of two policies has over
what the first one sampled. Rules that look at probabilities see q drawn evenly from 0.01 to 0.99 times the most that leaves p ≤ 1; rules
that look at advantages see half of the sequences at +1 and half at −1. The engine itself says the weights.

A rule with weights w trains on q·w/E[w] where it should train on q·ρ. ρ is the ratio of the token, of its prefix or of its sequence,
depending on what is asked. The distance of the two is their total variation, 1 − E[min(w/E[w], ρ)]: the most by which the mean of
anything between 0 and 1 comes out wrong. It is a mean of bounded numbers, so a few thousand sequences settle it even where ρ has no
variance to speak of.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from fates import unbounded  # docs/ is on the path
from numpy.typing import NDArray
from torch import Tensor

from trimtab.config.correction import Correction
from trimtab.config.presets import PRESETS
from trimtab.core.correct import correct
from trimtab.core.head import Head, HeadLogProbs
from trimtab.losses.policy import policy_loss

ROWS, LENGTH = 4000, 100
SPREADS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)
"""σ, from engines that nearly agree to policies that hardly do."""
TOLD = (0.02, 0.1, 0.3)
"""Those of the table: over 100 tokens the log of the product then spreads by 0.2, 1 and 3."""
IDS = 16
Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Cost:
    """A rule at one spread."""

    touched: float
    """Share of the tokens that a gate or a bound acted on."""
    mean: float
    """Mean weight, over the count the loss is divided by: the size of the step."""
    ess: float
    """Effective sample size as a share: (E w)² / E w²."""
    token: float
    """Distance from the distribution in which each token has its own ratio; NaN where nothing has a weight."""
    prefix: float
    """The same with the ratio of everything up to the token: exact for what depends on that alone."""
    sequence: float
    """The same with the ratio of the whole sequence: exact for the reward of an answer."""


@dataclass(frozen=True, eq=False)
class Sampled:
    """Sequences [rows, length] sampled by one policy, seen by another."""

    behavior: Tensor
    """Log-probs of the policy that sampled."""
    target: Tensor
    """Those of the other."""
    advantage: Tensor
    """One per row."""
    ratios: tuple[Numbers, Numbers, Numbers]
    """Of each token, of its prefix, of its sequence."""


@cache
def sampled(spread: float) -> Sampled:
    """The same draws for every rule and, scaled, for every spread."""
    drawn = np.random.default_rng(0)
    z = drawn.standard_normal((ROWS // 2, LENGTH))
    z = np.concatenate([z, -z])  # what is odd in z cancels
    share = drawn.uniform(0.01, 0.99, (ROWS, LENGTH))
    log_r = spread * z - spread**2 / 2
    up_to = np.exp(np.cumsum(log_r, axis=1))
    behavior = torch.tensor(np.log(share) - np.maximum(log_r, 0.0), dtype=torch.float32)
    sign = torch.tensor(np.where(np.arange(ROWS) % 2 == 0, 1.0, -1.0), dtype=torch.float32)
    target = behavior + torch.tensor(log_r, dtype=torch.float32)
    return Sampled(behavior, target, sign, (np.exp(log_r), up_to, np.broadcast_to(up_to[:, -1:], up_to.shape)))


@dataclass(frozen=True, eq=False)
class Weighed:
    """What a rule makes of the draws."""

    weight: Numbers
    kept: int
    """Tokens that no gate rejected."""


def weighed(rule: Correction, data: Sampled) -> Weighed:
    """The engine's own answer."""
    found = correct(
        rule.but(centering=None),
        behavior=data.behavior,
        proximal=data.target,
        current=data.target,
        mask=torch.ones_like(data.behavior, dtype=torch.bool),
        advantages=data.advantage if rule.needs_advantages else None,
    )
    return Weighed(found.weight.double().numpy(), int(found.kept.sum()))


@cache
def _free(rule: Correction, spread: float) -> Weighed:
    return weighed(rule, sampled(spread))


def has_cost(rule: Correction) -> bool:
    """Whether the draws say all that the rule looks at: they have no other ids than the sampled ones, and no age."""
    return not (rule.needs_head or rule.needs_age)


@cache
def cost(name: str, spread: float) -> Cost:
    """The cost of a preset."""
    return cost_of(PRESETS[name](), spread)


def cost_of(rule: Correction, spread: float) -> Cost:
    """The cost of a rule."""
    data = sampled(spread)
    found, free = weighed(rule, data), _free(unbounded(rule), spread)
    touched = float(
        (~np.isclose(found.weight, free.weight, rtol=1e-5, atol=0)).mean()
    )  # two forms may differ by a last digit
    counted = found.weight.size if rule.denominator == "trained" else max(found.kept, 1)
    weight = found.weight * (found.weight.size / counted)
    mean, square = float(weight.mean()), float((weight**2).mean())
    distances = [math.nan if mean == 0 else _distance(weight / mean, each) for each in data.ratios]
    return Cost(touched, mean, mean**2 / square if square else 0.0, *distances)


def _distance(weight: Numbers, ratio: Numbers) -> float:
    return max(0.0, 1.0 - float(np.minimum(weight, ratio).mean()))


@dataclass(frozen=True)
class Push:
    """The gradient in the logits of one position that an advantage of 1 gives, over every id the sampler could have drawn."""

    mean: float
    """Length of its mean: 0 on-policy, and what pulls towards or away from the sampler off it."""
    second_moment: float
    """Its mean square: the variance for advantages of ±1."""


def push(rule: Correction, spread: float) -> Push:
    """What the engine's own loss gives, with the rule in its two-policy form, over `IDS` ids drawn once and moved by σ·z."""
    drawn = np.random.default_rng(0)
    sampler = drawn.standard_normal(IDS)
    q = torch.tensor(sampler).log_softmax(0)
    moved = torch.tensor(sampler + spread * drawn.standard_normal(IDS))
    logits = moved.expand(IDS, IDS).clone().requires_grad_()  # row y: the position had y been drawn
    log_p, targets = logits.log_softmax(-1), torch.arange(IDS).unsqueeze(-1)
    every = torch.arange(IDS).expand(IDS, 1, IDS)
    head = HeadLogProbs(Head(every, q.expand(IDS, 1, IDS)), targets, current=log_p.unsqueeze(1))
    policy_loss(
        "reinforce",
        current=log_p.gather(-1, targets),
        behavior=q.unsqueeze(-1),
        mask=torch.ones(IDS, 1, dtype=torch.bool),
        advantages=torch.ones(IDS),
        correction=rule.but(policies="bypass"),
        head=head if rule.centering else None,
    ).loss.backward()
    assert logits.grad is not None
    gradients = -IDS * logits.grad  # the loss is a mean over rows, and falls where the gradient rises
    return Push(float((q.exp() @ gradients).norm()), float(q.exp() @ gradients.square().sum(-1)))
