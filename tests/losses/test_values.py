"""Losses worked out by hand. One row of tokens, Σ over tokens, so that every number below can be checked on paper."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from trimtab import Correction, Gate, Weight, preset
from trimtab.config import losses as config
from trimtab.config.losses import EntropyBonus, KlPenalty, Objective, Reduction
from trimtab.core.correct import Corrected
from trimtab.core.reduce import Denominator
from trimtab.errors import ConfigWarning
from trimtab.losses.kl import kl_penalty
from trimtab.losses.policy import policy_loss
from trimtab.losses.terms import ratio

LN2, E = math.log(2.0), math.e


def worked(
    loss: Objective, ratios: list[float], advantages: list[float], weights: list[float] | None = None
) -> tuple[list[float], list[float]]:
    """Loss and gradient of one row of tokens with these ratios, log current = −1 each, under token-sum."""
    current = torch.full((1, len(ratios)), -1.0, dtype=torch.float64, requires_grad=True)
    mask = torch.ones(1, len(ratios), dtype=torch.bool)
    weight = torch.ones_like(current).detach() if weights is None else torch.tensor([weights], dtype=torch.float64)
    found = policy_loss(
        loss,
        current=current,
        proximal=-1.0 - torch.tensor([ratios], dtype=torch.float64).log(),
        advantages=torch.tensor([advantages], dtype=torch.float64),
        mask=mask,
        correction=Corrected(weight, mask, mask, torch.zeros_like(weight), {}),
        reduction="token-sum",
    )
    found.loss.backward()
    assert current.grad is not None
    return [found.loss.item()], current.grad[0].tolist()


# Each: loss, ratios, advantages, weights, the loss, its gradient.
BY_HAND: dict[str, tuple[Objective, list[float], list[float], list[float] | None, float, list[float]]] = {
    # A > 0, ρ = 1.5 > 1.2: −1.2·1, no slope.  A < 0, ρ = 1.5: max(1.5, 1.2) = 1.5, slope 1.5.
    # A < 0, ρ = 0.5 < 0.8: max(0.5, 0.8) = 0.8, no slope.  A > 0, ρ = 0.5: −0.5, slope −0.5.    Σ = 0.6
    "clip": (config.Clip(), [1.5, 1.5, 0.5, 0.5], [1, -1, -1, 1], None, 0.6, [0, 1.5, 0, -0.5]),
    # The same under weights 2, 3, 4, 5: −2.4 + 4.5 + 3.2 − 2.5 = 2.8
    "clip, weighted": (config.Clip(), [1.5, 1.5, 0.5, 0.5], [1, -1, -1, 1], [2, 3, 4, 5], 2.8, [0, 4.5, 0, -2.5]),
    # A = −2: ρ = 4 costs min(8, 3·2) = 6 and has no slope; ρ = 2.5 costs 5, slope 2·2.5
    "clip, dual": (config.Clip(dual=3.0), [4.0, 2.5], [-2, -2], None, 11.0, [0, 5.0]),
    # A < 0: ρ = 4 is held at 2 in the free branch: max(2, 1.2) = 2, no slope.  A > 0: −min(2, 1.2) = −1.2
    "clip, ratio cap": (config.Clip(ratio_cap=2.0), [4.0, 4.0], [-1, 1], None, 0.8, [0, 0]),
    # log 2 = 0.693 is held at 0.5: A < 0 costs e^0.5, beyond the limit there is no slope
    "clip, log limit": (config.Clip(log_limit=0.5), [2.0], [-1], None, math.exp(0.5), [0]),
    # s = √(4·1) = 2 for both tokens; A < 0: 2 + 2 = 4, slope of each token ∂(2s·1)/∂ℓ = 2·s·½ = 2
    "gspo": (config.Gspo(low=0.2, high=0.2), [4.0, 1.0], [-1, -1], None, 4.0, [2.0, 2.0]),
    # A = −1, −3: 2 + 6 = 8; through the mean each token gets (1 + 3)·2·½ = 4
    "gspo, uneven": (config.Gspo(low=0.2, high=0.2), [4.0, 1.0], [-1, -3], None, 8.0, [4.0, 4.0]),
    # the same value, but each token its own slope: 1·2 and 3·2
    "gspo-token": (
        config.Gspo(low=0.2, high=0.2, level="sequence-token"),
        [4.0, 1.0],
        [-1, -3],
        None,
        8.0,
        [2.0, 6.0],
    ),
    # A < 0, a cap of 1.1 inside the clip: max(1.1, 1.15) = 1.15, the branch that the cap does not touch, with its slope
    "gspo, ratio cap inside": (config.Gspo(low=0.2, high=0.2, ratio_cap=1.1), [1.15], [-1], None, 1.15, [1.15]),
    # GSPO's 8 times the length 2
    "luspo": (config.Luspo(low=0.2, high=0.2), [4.0, 1.0], [-1, -3], None, 16.0, [8.0, 8.0]),
    # factors min(2, 1.2) = 1.2 and 0.5; −A·f·log current with log current −1: A·f = 1.2 − 0.5
    "cispo": (config.Cispo(), [2.0, 0.5], [1, -1], None, 0.7, [-1.2, 0.5]),
    # bounds [0.8, 1.2]: 2 is out and counts 0; 1.1 stays
    "cispo, zero": (config.Cispo(lower=0.8, outside="zero"), [2.0, 1.1], [1, 1], None, 1.1, [0, -1.1]),
    # ρ = 1: −A·(4/τ)·σ(0) = −A·2/τ, slope −A·4·σ(0)(1 − σ(0))·ρ = −A.  τ = 1 for A > 0, 2 for A < 0: −2 + 1
    "sapo": (config.Sapo(tau_negative=2.0), [1.0, 1.0], [1, -1], None, -1.0, [-1.0, 1.0]),
    # A > 0: log 4 is held at 0.5, log ¼ is not held from below: mean (0.5 − 2 ln 2)/2; −1·e^mean on both tokens
    "gmpo": (
        config.Gmpo(low=0.5, high=0.5),
        [4.0, 0.25],
        [1, 1],
        None,
        -2 * math.exp(0.25 - LN2),
        [0, -math.exp(0.25 - LN2)],
    ),
    # A·log current = −A: 1·−1·−1…: −A·log p = 1 and −2
    "reinforce": (config.Reinforce(), [3.0, 3.0], [1, -2], None, -1.0, [-1, 2]),
    "importance": (config.ImportancePg(), [3.0, 0.5], [1, -2], None, -2.0, [-3.0, 1.0]),
    # p = e^−1 = .368. ρ = 2: p rose by .184 > .1, A > 0: out. ρ = ½: p fell by .368 > .1, A < 0: out.
    # ρ = 2, A < 0: stays: −(−1)·2·(−1) = −2, slope 2.
    "dppo-tv": (config.DppoTv(low=0.1, high=0.1), [2.0, 0.5, 2.0], [1, -1, -1], None, -2.0, [0, 0, 2.0]),
    # with the ratio differentiated: −A·ρ = 2, slope 2
    "dppo-tv, ratio": (
        config.DppoTv(low=0.1, high=0.1, gradient="ratio"),
        [2.0, 0.5, 2.0],
        [1, -1, -1],
        None,
        2.0,
        [0, 0, 2.0],
    ),
    # KL(q ‖ p), q = .184, p = .368: .184·ln ½ + .816·ln(.816/.632) = .0808. Bound .05: out; .1: stays, capped at 1.5
    "dppo-kl, out": (config.DppoKl(high=0.05), [2.0], [1], None, 0.0, [0]),
    "dppo-kl, in": (config.DppoKl(high=0.1, ratio_cap=1.5), [2.0], [1], None, 1.5, [-1.5]),
    # A > 0 weighs 1 whatever ρ; A < 0 weighs min(product of ρ, 1): 3·½·½ = ¾ on both, and 3·2·½ = 3, held at 1
    "topr": (config.Topr(), [3.0, 0.5, 0.5], [1, -1, -1], None, 1.0 - 0.75 - 0.75, [-1, 0.75, 0.75]),
    "topr, held": (config.Topr(), [3.0, 2.0, 0.5], [1, -1, -1], None, 1.0 - 1.0 - 1.0, [-1, 1, 1]),
    # by token, each its own: min(3, 1) and ½
    "topr, token": (config.Topr(level="token"), [3.0, 3.0, 0.5], [1, -1, -1], None, 1.0 - 1.0 - 0.5, [-1, 1, 0.5]),
    # a weight for either sign: 3 where A > 0, ½·1 and ½·½ where A < 0
    "topr, weighed": (
        config.Topr(level="token", positive=3.0, negative=0.5),
        [3.0, 3.0, 0.5],
        [1, -1, -1],
        None,
        3.0 - 0.5 - 0.25,
        [-3, 0.5, 0.25],
    ),
    # w = 2·1 = 2. A >= 0: φ = e³·2²·e^−6 = 4e^−3.  A < 0: φ = e²·2³·e^−4 = 8e^−2
    "vespo": (
        config.Vespo(),
        [2.0, 1.0],
        [1, -1],
        None,
        4 * E**-3 - 8 * E**-2,
        [-4 * E**-3, 8 * E**-2],
    ),
    # −A·log p = 1; (0.5/2)·(ln 2)²; slope −1 + 0.5·ln 2
    "dro": (config.Dro(beta=0.5), [2.0], [1], None, 1 + 0.25 * LN2**2, [-1 + 0.5 * LN2]),
}


@pytest.mark.parametrize("name", BY_HAND)
@pytest.mark.filterwarnings("ignore:Luspo with reduction")
def test_a_loss_is_what_it_is_by_hand(name: str) -> None:
    loss, ratios, advantages, weights, value, gradient = BY_HAND[name]
    got, slope = worked(loss, ratios, advantages, weights)
    assert got == pytest.approx([value], rel=1e-9, abs=1e-12)
    assert slope == pytest.approx(gradient, rel=1e-9, abs=1e-12)


def test_gspo_by_segment_takes_each_turn_alone() -> None:
    # turns {4, 1} and {9}: s = 2, 2, 9; A = −1: 2 + 2 + 9
    current = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([[True, True, False, True]])
    found = policy_loss(
        config.Gspo(level="segment"),
        current=current,
        proximal=-torch.tensor([[4.0, 1.0, 77.0, 9.0]], dtype=torch.float64).log(),
        advantages=torch.full((1,), -1.0),
        mask=mask,
        reduction="token-sum",
    )
    found.loss.backward()
    assert found.loss.item() == pytest.approx(13.0)
    assert current.grad is not None
    assert current.grad.tolist() == [pytest.approx([2.0, 2.0, 0.0, 9.0])]


def test_statistics_of_a_sequence_run_over_what_is_kept_unless_asked_otherwise() -> None:
    # ratios 4 and 100, the second rejected. Kept: s = 4. Trained: s = √400 = 20. A = −1 on the one token that stays.
    proximal = -torch.tensor([[4.0, 100.0]]).log()
    mask = torch.ones(1, 2, dtype=torch.bool)
    correction = Corrected(torch.tensor([[1.0, 0.0]]), torch.tensor([[True, False]]), mask, torch.zeros(1, 2), {})
    for scope, value, gradient in (("kept", 4.0, [4.0, 0.0]), ("trained", 20.0, [10.0, 10.0])):
        current = torch.zeros(1, 2, requires_grad=True)
        found = policy_loss(
            config.Gspo(scope=scope),
            current=current,
            proximal=proximal,
            advantages=torch.full((1,), -1.0),
            mask=mask,
            correction=correction,
            reduction="token-sum",
        )
        found.loss.backward()
        assert found.loss.item() == pytest.approx(value, rel=1e-5)
        assert current.grad is not None
        assert current.grad[0].tolist() == pytest.approx(gradient, rel=1e-5)


def test_weights_may_enter_vespo_and_gmpo_in_their_own_way() -> None:
    # VESPO inside: w = 2·½ = 1, φ = 1: −A·log p = 1 and the weight multiplies nothing else
    assert worked(config.Vespo(weights="inside"), [2.0], [1], [0.5]) == ([pytest.approx(1.0)], [pytest.approx(-1.0)])
    # GMPO geometric: ratios 1, weights 4 and 1: their geometric mean 2 on both tokens: −2·2
    value, _ = worked(config.Gmpo(weights="geometric"), [1.0, 1.0], [1, 1], [4.0, 1.0])
    assert value == [pytest.approx(-4.0)]
    value, _ = worked(config.Gmpo(), [1.0, 1.0], [1, 1], [4.0, 1.0])  # token: 4 and 1
    assert value == [pytest.approx(-5.0)]


LOSSES = torch.tensor([[1.0, 2.0, 3.0], [10.0, 0.0, 0.0], [100.0, 200.0, 0.0]])
TOKENS = torch.tensor([[True, True, True], [True, False, False], [True, True, False]])


@pytest.mark.parametrize(
    ("reduction", "value"),
    [
        # Σ = 6 + 10 + 300 = 316 over 6 tokens, 3 sequences
        (Reduction(mode="token-mean"), 316 / 6),
        (Reduction(mode="token-sum"), 316.0),
        (Reduction(mode="token-sum", constant=4.0), 79.0),
        (Reduction(mode="seq-mean-token-mean"), (2 + 10 + 150) / 3),
        (Reduction(mode="seq-mean-token-sum"), 316 / 3),
        (Reduction(mode="seq-mean-token-sum-norm", constant=8.0), 316 / 24),
        # prompt 5 owns rows 0 and 2: 306 / 5 tokens; prompt 9 row 1: 10
        (Reduction(mode="prompt-mean"), (306 / 5 + 10) / 2),
    ],
    ids=str,
)
def test_a_reduction_is_what_it_is_by_hand(reduction: Reduction, value: float) -> None:
    found = policy_loss(
        config.ImportancePg(),
        current=torch.zeros(3, 3),
        proximal=torch.zeros(3, 3),
        advantages=-LOSSES,  # at ρ = 1 the loss of a token is −A
        mask=TOKENS,
        reduction=reduction,
        group=torch.tensor([5, 9, 5]),
    )
    assert found.loss.item() == pytest.approx(value, rel=1e-6)


def test_a_rejected_token_leaves_the_denominator_only_where_that_is_said() -> None:
    # losses 1 and 3, the second token far off and rejected: 1/2 where trained tokens count, 1/1 where kept ones do
    tensors = {
        "current": torch.zeros(1, 2),
        "proximal": torch.zeros(1, 2),
        "behavior": torch.tensor([[0.0, -5.0]]),
        "mask": torch.ones(1, 2, dtype=torch.bool),
        "advantages": torch.tensor([[-1.0, -3.0]]),
    }
    gates = (Gate(metric="ratio", upper=2.0),)
    for counted, value in (("trained", 0.5), ("kept", 1.0)):
        rule = Correction(gates=gates, denominator=counted)
        assert policy_loss(config.Clip(), correction=rule, **tensors).loss.item() == pytest.approx(value)


def kl(penalty: KlPenalty, d: float, **more: Tensor) -> tuple[float, float]:
    """The KL term of one token with log current − log reference = d, and its slope."""
    current = torch.tensor([[-1.0]], dtype=torch.float64, requires_grad=True)
    tensors = {"proximal": current.detach()} | more
    found = policy_loss(
        config.Reinforce(),
        current=current,
        reference=torch.tensor([[-1.0 - d]], dtype=torch.float64),
        advantages=torch.zeros(1),
        mask=torch.ones(1, 1, dtype=torch.bool),
        kl=penalty,
        **tensors,
    )
    found.loss.backward()
    assert current.grad is not None
    return found.loss.item(), current.grad.item()


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [
        ("k1", 0.5, 1.0),
        ("abs", 0.5, 1.0),
        ("k2", 0.125, 0.5),
        ("k3", math.exp(-0.5) - 1 + 0.5, 1 - math.exp(-0.5)),  # d/dd (e^−d − 1 + d) = 1 − e^−d
    ],
)
def test_a_kl_estimator_is_what_it_is_by_hand(estimator: str, value: float, slope: float) -> None:
    assert kl(KlPenalty(coefficient=2.0, estimator=estimator), 0.5) == pytest.approx((2 * value, 2 * slope))
    # unbiased: the same value, the slope of k2, which is d
    unbiased = KlPenalty(coefficient=2.0, estimator=estimator, gradient="unbiased")
    assert kl(unbiased, 0.5) == pytest.approx((2 * value, 2 * 0.5))


def test_the_kl_term_can_be_importance_weighted() -> None:
    anchor = {"proximal": torch.tensor([[-1.0 - LN2]], dtype=torch.float64)}  # ρ = 2
    k2 = {"coefficient": 1.0, "estimator": "k2"}
    # full: 2·0.125, slope 2·0.5 + 2·0.125 (ρ' = ρ)
    assert kl(KlPenalty(importance="full", **k2), 0.5, **anchor) == pytest.approx((0.25, 1.25))
    # gradient: the value unweighted, the slope times ρ, held at 1.5
    assert kl(KlPenalty(importance="gradient", **k2), 0.5, **anchor) == pytest.approx((0.125, 1.0))
    capped = KlPenalty(importance="gradient", importance_cap=1.5, **k2)
    assert kl(capped, 0.5, **anchor) == pytest.approx((0.125, 0.75))


def test_limits_of_a_kl_term_bite_where_they_are_set() -> None:
    assert kl(KlPenalty(coefficient=1.0, estimator="k2", input_limit=0.1), 0.5) == pytest.approx((0.005, 0.0))
    assert kl(KlPenalty(coefficient=1.0, estimator="k1", output_limit=0.1), 0.5) == pytest.approx((0.1, 0.0))


def test_k3_is_never_negative_near_zero() -> None:
    d = torch.logspace(-9, -1, 400)
    for sign in (1.0, -1.0):
        found = kl_penalty(
            KlPenalty(coefficient=1.0), policy=sign * d, reference=torch.zeros_like(d), mask=torch.ones_like(d)
        )
        assert (found >= 0).all()


def test_the_penalty_for_the_reward_is_zero_where_nothing_is_trained_or_known() -> None:
    policy = torch.tensor([-1.0, -2.0, float("nan"), -1.0, float("inf")])
    reference = torch.tensor([-1.5, float("nan"), -1.0, -1.0, 0.0])
    mask = torch.tensor([True, True, True, True, False])
    found = kl_penalty(KlPenalty(coefficient=0.1, estimator="k1"), policy=policy, reference=reference, mask=mask)
    assert found.tolist() == pytest.approx([0.05, 0.0, 0.0, 0.0, 0.0])
    assert not found.requires_grad


def test_kl_and_entropy_are_paid_on_the_tokens_their_settings_name() -> None:
    # two tokens, the second rejected; KL of each is d = 1, entropy 1, token-sum; A = 0, so only these terms speak
    tensors = {
        "current": torch.zeros(1, 2),
        "proximal": torch.zeros(1, 2),
        "behavior": torch.tensor([[0.0, -5.0]]),
        "reference": torch.full((1, 2), -1.0),
        "entropy": torch.ones(1, 2),
        "mask": torch.ones(1, 2, dtype=torch.bool),
        "advantages": torch.zeros(1),
        "correction": Correction(gates=(Gate(metric="ratio", upper=2.0),), weight=Weight(level="token")),
        "reduction": "token-sum",
    }
    for mask, number in (("trained", 2), ("kept", 1)):
        penalty, bonus = (
            KlPenalty(coefficient=10.0, estimator="k1", mask=mask),
            EntropyBonus(coefficient=1.0, mask=mask),
        )
        assert policy_loss(config.Clip(), kl=penalty, **tensors).loss.item() == pytest.approx(10.0 * number)
        assert policy_loss(config.Clip(), entropy_bonus=bonus, **tensors).loss.item() == pytest.approx(-1.0 * number)


def test_the_weight_reaches_the_kl_term_only_where_that_is_said() -> None:
    # proximal / behavior = 3, d = 1: KL 1, or 3 under policy+kl
    tensors = {
        "current": torch.zeros(1, 1),
        "proximal": torch.zeros(1, 1),
        "behavior": torch.full((1, 1), -math.log(3.0)),
        "reference": torch.full((1, 1), -1.0),
        "mask": torch.ones(1, 1, dtype=torch.bool),
        "advantages": torch.zeros(1),
        "kl": KlPenalty(coefficient=1.0, estimator="k1"),
    }
    for where, value in (("policy", 1.0), ("policy+kl", 3.0)):
        rule = Correction(weight=Weight(level="token"), applies_to=where)
        assert policy_loss(config.Clip(), correction=rule, **tensors).loss.item() == pytest.approx(value)


def test_a_term_may_have_a_reduction_of_its_own() -> None:
    # 3 tokens in 2 rows, KL 1 each: Σ = 3 over the policy's seq-mean-token-sum would be 1.5, its own token-mean is 1
    mask = torch.tensor([[True, True], [True, False]])
    own = KlPenalty(coefficient=1.0, estimator="k1", reduction="token-mean")
    zeros = torch.zeros(2, 2)
    tensors = {"current": zeros, "proximal": zeros, "reference": zeros - 1, "advantages": torch.zeros(2), "mask": mask}
    for penalty, value in ((own, 1.0), (own.but(reduction=None), 1.5)):
        found = policy_loss(config.Clip(), kl=penalty, reduction="seq-mean-token-sum", **tensors)
        assert found.loss.item() == pytest.approx(value)


def test_a_ratio_never_leaves_the_number_type() -> None:
    for kind in (torch.float32, torch.float64):
        log_ratio = torch.tensor([-1e6, 0.0, 1e6], dtype=kind, requires_grad=True)
        found = ratio(log_ratio)
        found.sum().backward()
        assert found.isfinite().all()
        assert found[2] > 0.99 * torch.finfo(kind).max
        assert torch.equal(log_ratio.grad, found.detach())  # pyright: ignore[reportArgumentType]


def test_entropy_bonus_pulls_on_the_entropy() -> None:
    entropy = torch.ones(1, 2, requires_grad=True)
    zeros = torch.zeros(1, 2)
    policy_loss(
        config.Clip(),
        current=zeros,
        proximal=zeros,
        advantages=torch.zeros(1),
        mask=torch.tensor([[True, False]]),
        entropy=entropy,
        entropy_bonus=EntropyBonus(coefficient=0.5),
    ).loss.backward()
    assert entropy.grad is not None
    assert entropy.grad.tolist() == [[-0.5, 0.0]]


def test_entropy_without_a_bonus_is_reported_and_pulls_on_nothing() -> None:
    entropy = torch.full((1, 2), 0.5, requires_grad=True)
    current = torch.zeros(1, 2, requires_grad=True)
    found = policy_loss(
        config.Clip(),
        current=current,
        proximal=current.detach(),
        advantages=torch.ones(1),
        mask=torch.tensor([[True, False]]),
        entropy=entropy,
    )
    found.loss.backward()
    assert entropy.grad is None
    assert float(found.metrics["policy/entropy"]) == 0.5


def test_the_anchor_is_the_one_the_correction_names() -> None:
    # ρ = current/proximal = 2 (decoupled), current/behavior = 4 (bypass); A < 0: the loss is ρ
    tensors = {
        "current": torch.zeros(1, 1),
        "proximal": torch.full((1, 1), -LN2),
        "behavior": torch.full((1, 1), -2 * LN2),
        "mask": torch.ones(1, 1, dtype=torch.bool),
        "advantages": torch.full((1,), -1.0),
    }
    for rule, value in ((preset("off"), 2.0), (preset("bypass-off"), 4.0)):
        assert policy_loss(config.Clip(), correction=rule, **tensors).loss.item() == pytest.approx(value)
    behavior = tensors.pop("behavior")
    assert policy_loss(config.Clip(), **tensors).loss.item() == pytest.approx(2.0)
    with pytest.warns(ConfigWarning, match="behavior log-probs and no correction, so they change nothing"):
        policy_loss(config.Clip(), **tensors, behavior=behavior)


def test_metrics_are_those_of_the_kept_tokens() -> None:
    # ρ = 2 (A > 0), ½ (A < 0), 4 (A < 0, dual 3), 1, and one rejected token that must not count
    ratios = torch.tensor([[2.0, 0.5, 4.0, 1.0, 1e6]])
    found = policy_loss(
        config.Clip(dual=3.0),
        current=torch.zeros(1, 5),
        proximal=-ratios.log(),
        behavior=torch.tensor([[-LN2, LN2, -2 * LN2, 0.0, -50.0]]),
        advantages=torch.tensor([[1.0, -1.0, -1.0, -1.0, 1.0]]),
        mask=torch.ones(1, 5, dtype=torch.bool),
        entropy=torch.full((1, 5), 0.25),
        correction=Correction(gates=(Gate(metric="ratio", upper=2.0),)),
    )
    want = {
        "policy/clip_high": 1 / 4,
        "policy/clip_low": 1 / 4,
        "policy/clip_dual": 1 / 4,
        "policy/ratio_mean": (2 + 0.5 + 4 + 1) / 4,
        "policy/ratio_min": 0.5,
        "policy/ratio_max": 4.0,
        "policy/k1": -(LN2 - LN2 + 2 * LN2) / 4,
        "policy/k3": (7.5 - 4 - 2 * LN2) / 4,
        "policy/entropy": 0.25,
        "policy/loss": found.loss.item(),
        "kept_fraction": 4 / 5,
    }
    for name, value in want.items():
        assert float(found.metrics[name]) == pytest.approx(value, rel=1e-5), name
    assert len(found.metrics) == len(list(found.metrics))
    assert all(each.shape == () and not each.requires_grad for each in found.metrics.values())


def test_extremes_are_those_of_tokens_that_are_there() -> None:
    # ratios 2 and 3; a masked token, whose ratio reads 1, is neither the least nor, with ½ and ⅓, the greatest
    for ratios, least, most in (([2.0, 3.0], 2.0, 3.0), ([1 / 2, 1 / 3], 1 / 3, 1 / 2)):
        found = policy_loss(
            config.Clip(),
            current=torch.zeros(1, 3),
            proximal=-torch.tensor([[*ratios, 1.0]]).log(),
            advantages=torch.ones(1),
            mask=torch.tensor([[True, True, False]]),
        ).metrics
        assert float(found["policy/ratio_min"]) == pytest.approx(least)
        assert float(found["policy/ratio_max"]) == pytest.approx(most)


def test_counts_given_by_hand_stand_in_for_the_masks() -> None:
    zeros = torch.zeros(2, 2)
    tensors = {"current": zeros, "proximal": zeros, "advantages": torch.full((2,), -1.0), "mask": torch.ones(2, 2)}
    step = Denominator(tokens=40, sequences=10, averaged_over=2)
    # 4 tokens of loss 1 each: 4/40, 4/10 — times 2, which averaging over two ranks takes away again
    for mode, value in (("token-mean", 0.2), ("seq-mean-token-sum", 0.8), ("seq-mean-token-mean", 0.4)):
        found = policy_loss(config.Clip(), denominator=step, reduction=mode, **tensors)
        assert found.loss.item() == pytest.approx(value)
