"""Score centering: what is left of a constant advantage, worked out over every id that could have been sampled."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import trimtab
from trimtab.config.losses import Objective
from trimtab.core.head import TAIL_FLOOR, Head, HeadLogProbs
from trimtab.errors import ConfigError, InputError
from trimtab.log_probs.public import log_probs_of

SIZE, TOKENS = 7, 4
LOSSES = {
    "reinforce": trimtab.Reinforce(),
    "clip": trimtab.Clip(low=0.1, high=0.15, dual=2.0),
    "cispo": trimtab.Cispo(lower=0.8, upper=1.2),
    "cispo zero": trimtab.Cispo(lower=0.8, upper=1.2, outside="zero"),
    "sapo": trimtab.Sapo(),
    "importance-pg": trimtab.ImportancePg(),
    "dppo-tv": trimtab.DppoTv(low=0.02, high=0.02),
    "dppo-kl": trimtab.DppoKl(low=0.01, high=0.01),
    "topr": trimtab.Topr(level="token"),
}
RULES: dict[str, dict[str, Any]] = {
    "f = 1": {"weight": {"level": "one"}},
    "TIS": {"weight": {"level": "token", "upper": 1.1}},
    "IcePop": {"weight": {"level": "token", "lower": 0.8, "upper": 1.3, "outside": "zero"}},
    "gate": {"gates": [{"metric": "ratio", "lower": 0.8, "upper": 1.2}]},
    "zero gate": {"gates": [{"metric": "tv", "upper": 0.02, "action": "zero"}], "weight": {"level": "token"}},
    "IPO": {"gates": [{"metric": "tv", "upper": 0.03}], "weight": {"level": "one"}},
    "moving away": {"gates": [{"metric": "binary_kl", "upper": 0.001, "when": "moving_away"}]},
    "clamp": {
        "gates": [{"metric": "ratio", "lower": 0.9, "upper": 1.1, "action": "clamp"}],
        "weight": {"level": "token"},
    },
}


def logits_of(seed: int, spread: float = 1.0, drift: float = 0.3) -> dict[str, Tensor]:
    """Logits of three policies that are close to each other, in float64."""
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(TOKENS, SIZE, generator=generator, dtype=torch.float64) * spread
    near = {name: torch.randn(base.shape, generator=generator, dtype=torch.float64) * drift for name in ("p", "c")}
    return {"behavior": base, "proximal": base + near["p"], "current": base + near["c"]}


def expected_gradient(
    loss: Objective,
    rule: trimtab.Correction,
    logits: dict[str, Tensor],
    *,
    advantage: float = 1.0,
    size: int = SIZE,
    complete: bool = True,
    allowed: Tensor | None = None,
) -> Tensor:
    """The mean over the sampler's draws of the gradient in the current logits, every id of every token enumerated."""
    rows = torch.arange(SIZE).unsqueeze(1).expand(SIZE, TOKENS)  # row a: a is what was sampled, everywhere
    q = logits["behavior"].log_softmax(-1)
    support = None
    if allowed is not None:
        q = q.masked_fill(~allowed, -torch.inf).log_softmax(-1)
        kept = torch.where(allowed, torch.arange(SIZE), -1)
        support = Head(kept.expand(SIZE, -1, -1).contiguous())
    top = q.topk(size, -1)
    ids = torch.where(top.values > -torch.inf, top.indices, -1).expand(SIZE, -1, -1).contiguous()
    head = Head(ids, top.values.expand(SIZE, -1, -1).contiguous())
    leaf = logits["current"].expand(SIZE, -1, -1).clone().requires_grad_()
    drawn = rows if allowed is None else torch.where(allowed.t().gather(0, rows), rows, -1)
    given = {
        "current": log_probs_of(leaf, drawn, head=head, support=support),
        "proximal": log_probs_of(logits["proximal"].expand(SIZE, -1, -1), drawn, head=head, support=support),
    }
    chance = q.t().gather(0, rows)
    found = trimtab.policy_loss(
        loss,
        current=given["current"].log_probs,
        proximal=given["proximal"].log_probs,
        behavior=torch.where(drawn >= 0, chance, 0.0),
        advantages=torch.full((SIZE, TOKENS), advantage, dtype=torch.float64),
        mask=drawn >= 0,
        correction=rule,
        reduction="token-sum",
        head=HeadLogProbs(
            head, drawn, current=given["current"].head, proximal=given["proximal"].head, complete=complete
        ),
    )
    (gradient,) = torch.autograd.grad(found.loss, leaf)
    return (chance.exp().unsqueeze(-1) * gradient).sum(0)


@pytest.mark.filterwarnings("ignore::trimtab.errors.ConfigWarning")
@pytest.mark.parametrize("policies", ["bypass", "decoupled"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_constant_advantage_has_no_gradient_on_average(loss: str, rule: str, policies: str) -> None:
    plain = trimtab.Correction(policies=policies, **RULES[rule])  # pyright: ignore[reportArgumentType]
    for seed, advantage in ((0, 1.0), (1, -1.0)):
        logits = logits_of(seed)
        centered = expected_gradient(LOSSES[loss], plain.but(centering="score"), logits, advantage=advantage)
        torch.testing.assert_close(centered, torch.zeros_like(centered), rtol=0, atol=1e-12)


def test_without_centering_a_constant_advantage_pulls() -> None:
    for loss, rule in (("reinforce", "f = 1"), ("clip", "TIS"), ("importance-pg", "IPO")):
        plain = trimtab.Correction(policies="bypass" if rule == "IPO" else "decoupled", **RULES[rule])
        assert float(expected_gradient(LOSSES[loss], plain, logits_of(0)).abs().max()) > 1e-3


@given(st.integers(0, 2**31))
@settings(deadline=None, max_examples=30)
def test_over_a_replayed_mask_it_is_exact(seed: int) -> None:
    logits = logits_of(seed)
    allowed = torch.rand(TOKENS, SIZE, generator=torch.Generator().manual_seed(seed)) < 0.5
    allowed[:, 0] = True
    for name in ("TIS", "IcePop"):
        rule = trimtab.Correction(policies="bypass", centering="score", **RULES[name])
        found = expected_gradient(trimtab.Reinforce(), rule, logits, allowed=allowed)
        torch.testing.assert_close(found, torch.zeros_like(found), rtol=0, atol=1e-12)


def test_head_and_tail_come_to_the_exact_form_as_the_head_grows() -> None:
    """What is left of the mean gradient, over 20 draws of policies: it falls with k and is 0 with the whole vocabulary."""
    rule = trimtab.Correction(policies="bypass", centering="score", weight={"level": "token", "upper": 1.1})
    left = []
    for size in range(1, SIZE + 1):
        found = [
            expected_gradient(trimtab.Reinforce(), rule, logits_of(seed, 2.0), size=size, complete=False).norm()
            for seed in range(20)
        ]
        left.append(float(torch.stack(found).mean()))
    plain = torch.stack(
        [
            expected_gradient(trimtab.Reinforce(), rule.but(centering=None), logits_of(seed, 2.0)).norm()
            for seed in range(20)
        ]
    ).mean()
    assert all(after < before for before, after in itertools.pairwise(left))
    assert left[-1] < 1e-9
    assert left[0] < float(plain)
    assert left[3] < 0.2 * float(plain)


def _written_out(logits: Tensor, q: Tensor, sampled: int, advantage: float, upper: float, at: Tensor) -> float:
    """−A·(w(y) log p(y) − Σ q(v) w(v) log p(v)), the weights taken at the logits `at`."""
    held = (at.log_softmax(-1) - q).exp().clamp(max=upper)
    log_p = logits.log_softmax(-1)
    return float(-advantage * (held[sampled] * log_p[sampled] - (q.exp() * held * log_p).sum()))


def test_its_gradient_is_that_of_the_objective_written_out() -> None:
    """Central differences of the paper's formula, its detached weights held fixed."""
    logits = {name: each[:1] for name, each in logits_of(3).items()}
    q, sampled, step = logits["behavior"].log_softmax(-1), 2, 1e-6
    leaf = logits["current"].clone().requires_grad_()
    head = Head(torch.arange(SIZE).view(1, SIZE), q)
    target = torch.tensor([sampled])
    found = log_probs_of(leaf, target, head=head)
    loss = trimtab.policy_loss(
        "reinforce",
        current=found.log_probs,
        behavior=q[:, sampled],
        advantages=torch.tensor([-0.7], dtype=torch.float64),
        mask=torch.ones(1, dtype=torch.bool),
        cu_seqlens=torch.tensor([0, 1]),
        correction=trimtab.Correction(policies="bypass", centering="score", weight={"level": "token", "upper": 1.05}),
        head=HeadLogProbs(head, target, current=found.head, complete=True),
    ).loss
    at = leaf.detach()[0]
    assert loss.item() == pytest.approx(_written_out(at, q[0], sampled, -0.7, 1.05, at), rel=1e-9)
    (gradient,) = torch.autograd.grad(loss, leaf)
    for place in range(SIZE):
        there = torch.zeros(SIZE, dtype=torch.float64).index_fill(0, torch.tensor(place), step)
        ends = [_written_out(at + sign * there, q[0], sampled, -0.7, 1.05, at) for sign in (1, -1)]
        assert float(gradient[0, place]) == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-8)


def test_a_tail_is_centered_by_the_formula_of_the_paper() -> None:
    """μ = Σ_H [q f(p/q) − α f(1/α) p] ∇log p, α the ratio of the tails; f = min(r, 1.1)."""
    logits = {name: each[:1] for name, each in logits_of(5, 1.5).items()}
    q, leaf = logits["behavior"].log_softmax(-1), logits["current"].clone().requires_grad_()
    top = q.topk(3, -1)
    head, target = Head(top.indices, top.values), torch.tensor([1])
    found = log_probs_of(leaf, target, head=head)
    assert found.head is not None
    shared = {
        "current": found.log_probs,
        "behavior": q[:, 1],
        "advantages": torch.ones(1, dtype=torch.float64),
        "mask": torch.ones(1, dtype=torch.bool),
        "cu_seqlens": torch.tensor([0, 1]),
    }
    rule = trimtab.Correction(policies="bypass", weight={"level": "token", "upper": 1.1})
    plain = trimtab.policy_loss("reinforce", correction=rule, **shared).loss
    centered = trimtab.policy_loss(
        "reinforce",
        correction=rule.but(centering="score"),
        head=HeadLogProbs(head, target, current=found.head),
        **shared,
    ).loss
    (difference,) = torch.autograd.grad(centered - plain, leaf, retain_graph=True)
    log_p, log_q = found.head[0].detach(), top.values[0]
    alpha = max(1 - float(log_q.exp().sum()), TAIL_FLOOR) / max(1 - float(log_p.exp().sum()), TAIL_FLOOR)
    held = (log_p - log_q).exp().clamp(max=1.1)
    factor = log_q.exp() * held - alpha * min(1 / alpha, 1.1) * log_p.exp()
    (mean,) = torch.autograd.grad((factor * found.head[0]).sum(), leaf)
    torch.testing.assert_close(difference, mean)  # A = 1, and the loss is minus the gain


def test_a_rejected_sequence_is_not_centered() -> None:
    logits = logits_of(0)
    q = logits["behavior"].log_softmax(-1)
    head = Head(torch.arange(SIZE).expand(1, TOKENS, SIZE).contiguous(), q.unsqueeze(0))
    targets = torch.tensor([[0, 1, 2, 3]])
    for upper, moved in ((0.0, False), (10.0, True)):
        leaf = logits["current"].unsqueeze(0).clone().requires_grad_()
        found = log_probs_of(leaf, targets, head=head)
        gate = {"metric": "k2", "level": "sequence", "upper": upper}
        result = trimtab.policy_loss(
            "reinforce",
            current=found.log_probs,
            behavior=q.gather(1, targets.t()).t(),
            advantages=torch.ones(1, dtype=torch.float64),
            mask=torch.ones(1, TOKENS, dtype=torch.bool),
            correction=trimtab.Correction(policies="bypass", gates=[gate], centering="score"),
            head=HeadLogProbs(head, targets, current=found.head, complete=True),
        )
        (gradient,) = torch.autograd.grad(result.loss, leaf)
        assert bool((gradient != 0).any()) is moved


def test_a_token_that_weighs_nothing_still_pays_for_the_others() -> None:
    """Two ids, q = (½, ½), p = (0.8, 0.2), IcePop up to 1.5: the first has ratio 1.6 and weighs 0, the second 0.4.

    Sampled the first, nothing is gained, and ½·0.4·∇log p(2) is taken off: A = 1 leaves −(0 − 0.2·∇log p(2)).
    """
    leaf = torch.tensor([[0.8, 0.2]], dtype=torch.float64).log().requires_grad_()
    q = torch.full((1, 2), math.log(0.5), dtype=torch.float64)
    head, target = Head(torch.tensor([[0, 1]]), q), torch.tensor([0])
    found = log_probs_of(leaf, target, head=head)
    rule = trimtab.Correction(
        policies="bypass", centering="score", weight={"level": "token", "upper": 1.5, "outside": "zero"}
    )
    loss = trimtab.policy_loss(
        "reinforce",
        current=found.log_probs,
        behavior=q[:, 0],
        advantages=torch.ones(1),
        mask=torch.ones(1, dtype=torch.bool),
        cu_seqlens=torch.tensor([0, 1]),
        correction=rule,
        head=HeadLogProbs(head, target, current=found.head, complete=True),
    )
    (gradient,) = torch.autograd.grad(loss.loss, leaf)
    # ∇log p(2) = (−0.8, 0.8)
    assert gradient.tolist()[0] == pytest.approx([0.2 * -0.8, 0.2 * 0.8])


def test_decisions_made_beforehand_center_as_those_made_in_the_call() -> None:
    logits = logits_of(0)
    q = logits["behavior"].log_softmax(-1).unsqueeze(0)
    head = Head(torch.arange(SIZE).expand(1, TOKENS, SIZE).contiguous(), q)
    targets = torch.tensor([[0, 1, 2, 3]])
    leaf = logits["current"].unsqueeze(0).clone().requires_grad_()
    found = log_probs_of(leaf, targets, head=head)
    behavior = q[0].gather(1, targets.t()).t()
    rule = trimtab.Correction(
        policies="bypass", centering="score", weight={"level": "token", "upper": 1.05, "outside": "zero"}
    )
    mask = torch.ones(1, TOKENS, dtype=torch.bool)
    made = trimtab.correct(rule, current=found.log_probs.detach(), behavior=behavior, mask=mask)
    assert made.centered is not None
    assert made.centered.all()
    assert not made.weight.all()
    given_ = {
        "current": found.log_probs,
        "behavior": behavior,
        "advantages": torch.tensor([1.0]),
        "mask": mask,
        "head": HeadLogProbs(head, targets, current=found.head, complete=True),
    }
    gradients = [
        torch.autograd.grad(trimtab.policy_loss("reinforce", correction=each, **given_).loss, leaf, retain_graph=True)[
            0
        ]
        for each in (rule, made, made.part(slice(0, 1)))
    ]
    torch.testing.assert_close(gradients[0], gradients[1])
    torch.testing.assert_close(gradients[0], gradients[2])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"weight": {"level": "sequence"}}, "needs a weight at level one or token, got 'sequence'"),
        ({"weight": {"level": "geometric"}}, "needs a weight at level one or token, got 'geometric'"),
        ({"weight": {"level": "token"}, "normalize": "batch"}, "needs normalize none, got batch"),
        (
            {
                "gates": [{"metric": "ratio", "level": "sequence", "upper": 2, "action": "clamp"}],
                "weight": {"level": "token"},
            },
            "needs clamp gates at token level",
        ),
    ],
)
def test_what_no_token_decides_by_itself_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        trimtab.Correction(centering="score", **changes)


@pytest.mark.parametrize(
    "loss",
    [
        trimtab.Gspo(),
        trimtab.Luspo(),
        trimtab.Gmpo(),
        trimtab.Vespo(),
        trimtab.ClipCov(),
        trimtab.KlCov(),
        trimtab.Dro(),
        trimtab.Topr(),
        trimtab.Cispo(level="sequence"),
        trimtab.Sapo(advantage="sequence"),
    ],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_that_no_token_has_to_itself_are_refused_by_name(loss: Objective) -> None:
    ones = torch.zeros(1, 2)
    head = HeadLogProbs(Head(torch.zeros(1, 2, 1, dtype=torch.long), torch.zeros(1, 2, 1)), torch.zeros(1, 2).long())
    with pytest.raises(ConfigError, match=f"got {type(loss).__name__}"):
        trimtab.policy_loss(
            loss,
            current=ones,
            proximal=ones,
            behavior=ones,
            advantages=torch.ones(1),
            mask=torch.ones(1, 2, dtype=torch.bool),
            correction=trimtab.Correction(centering="score"),
            head=head,
        )


def test_without_a_head_it_says_how_to_get_one() -> None:
    ones = torch.zeros(1, 2)
    with pytest.raises(InputError, match=r"selected_log_probs\(…, head=head\)"):
        trimtab.policy_loss(
            "reinforce",
            current=ones,
            proximal=ones,
            behavior=ones,
            advantages=torch.ones(1),
            mask=torch.ones(1, 2, dtype=torch.bool),
            correction=trimtab.Correction(centering="score"),
        )
