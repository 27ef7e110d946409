"""Bounds that are no constants: scaled by entropy, 1 − q or length, and found in the batch by a share or an effective sample size."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import trimtab
from tests.laws.batches import Sample, samples
from tests.laws.test_corrections import same
from trimtab import Correction, Gate, Weight
from trimtab.core.correct import Corrected, correct
from trimtab.core.fast.fits import misfit
from trimtab.errors import ConfigError, InputError
from trimtab.plugins.hook import Hook

LEVELS = ("token", "sequence", "geometric", "segment", "segment_product", "prefix")


def entropy_of(sample: Sample) -> torch.Tensor:
    """Any entropies that are not all alike."""
    return sample.behavior.abs() * 0.7 + 0.01


def decided(rule: Correction, sample: Sample, **further: Any) -> Corrected:
    return correct(rule, **sample.tensors(), **further)


def scaled_rules(scale: str, upper: float = 1.5) -> list[Correction]:
    """A gate and a weight on the scale, each alone."""
    mean = scale == "inv_sqrt_length"
    gate = Gate(metric="ratio", level="sequence" if mean else "token", lower=1 / upper, upper=upper, bound_scale=scale)
    weight = Weight(level="geometric" if mean else "token", lower=1 / upper, upper=upper, bound_scale=scale)
    zero = weight.but(outside="zero")
    return [Correction(gates=(gate,)), Correction(weight=weight), Correction(weight=zero)]


SCALES = ("entropy", "one_minus_p", "inv_sqrt_length")


@pytest.mark.parametrize("scale", SCALES)
@given(samples())
def test_scaled_bounds_are_one_for_packed_and_padded_tokens(scale: str, sample: Sample) -> None:
    entropy = entropy_of(sample)
    for rule in scaled_rules(scale):
        padded = decided(rule, sample, entropy=entropy)
        packed = correct(rule, **sample.packed(), entropy=entropy[sample.there()])
        same(padded, packed, sample.there())


@pytest.mark.parametrize("scale", SCALES)
@given(samples())
def test_on_policy_data_lies_inside_any_scaled_bound(scale: str, sample: Sample) -> None:
    on_policy = sample.with_tensors(proximal=sample.behavior, current=sample.behavior)
    for rule in scaled_rules(scale):
        for entropy in (
            entropy_of(sample),
            torch.zeros_like(sample.behavior),
            torch.full_like(sample.behavior, math.nan),
        ):
            out = decided(rule, on_policy, entropy=entropy)
            assert torch.equal(out.kept, sample.mask)
            assert torch.equal(out.weight, sample.mask.float())


@given(samples(), st.sampled_from([0.25, 0.5, 1.0, 2.0]))
def test_one_entropy_for_all_is_another_bound(sample: Sample, entropy: float) -> None:
    """Powers of 2, so that no rounding decides: a bound times ½ is the bound written as half of it."""
    everywhere = torch.full_like(sample.behavior, entropy)
    for metric in ("abs_log_ratio", "k2", "k3", "tv", "k1"):
        scaled = Correction(
            gates=(Gate(metric=metric, upper=0.375, bound_scale="entropy"),), weight=Weight(level="token")
        )
        plain = Correction(gates=(Gate(metric=metric, upper=0.375 * entropy),), weight=Weight(level="token"))
        one, other = decided(scaled, sample, entropy=everywhere), decided(plain, sample)
        assert torch.equal(one.kept, other.kept)
        torch.testing.assert_close(one.weight, other.weight, rtol=1e-5, atol=0)


@given(samples(), st.sampled_from([0.25, 0.5, 2.0]))
def test_ratios_are_scaled_in_log_space(sample: Sample, entropy: float) -> None:
    """2 at scale ½ is √2, and ½ is 1/√2, for gates and weights alike."""
    everywhere = torch.full_like(sample.behavior, entropy)
    scaled = Weight(level="token", lower=0.5, upper=2.0, bound_scale="entropy")
    plain = Weight(level="token", lower=0.5**entropy, upper=2.0**entropy)
    one = decided(Correction(weight=scaled), sample, entropy=everywhere)
    torch.testing.assert_close(one.weight, decided(Correction(weight=plain), sample).weight, rtol=2e-6, atol=0)
    for metric in ("ratio", "mult_prob_error"):
        gate = Gate(metric=metric, upper=2.0, action="observe", bound_scale="entropy")
        other = Gate(metric=metric, upper=2.0**entropy, action="observe")
        name = f"gate/0-{metric}-token/high_tokens"
        got, wanted = (decided(Correction(gates=(each,)), sample, entropy=everywhere) for each in (gate, other))
        near = ((got.log_r.abs() - entropy * math.log(2.0)).abs() < 1e-5).any()
        assert near or got.metrics[name] == wanted.metrics[name]


@given(samples())
def test_sequences_of_one_length_have_one_bound(sample: Sample) -> None:
    """Four tokens each: 1/√4 is ½."""
    shape = (len(sample.lengths), 4)
    four = {
        name: torch.resize_as_(each.clone(), torch.empty(shape))
        for name, each in sample.tensors().items()
        if name != "mask"
    }
    whole = {name: torch.nan_to_num(each).clamp(-9, 9) for name, each in four.items()} | {
        "mask": torch.ones(shape).bool()
    }
    for metric in ("k2", "abs_log_ratio", "k1"):
        gate = Gate(metric=metric, level="sequence", upper=0.5, bound_scale="inv_sqrt_length")
        one = correct(Correction(gates=(gate,)), **whole)
        other = correct(Correction(gates=(gate.but(upper=0.25, bound_scale="none"),)), **whole)
        assert torch.equal(one.kept, other.kept)


def test_a_mean_within_b_over_root_t_is_a_sum_within_b_times_root_t() -> None:
    # b = 0.3. 4 tokens of ℓ = 0.2: 0.2 > 0.3/√4 = 0.15, out; 4 of 0.1: in; 1 of 0.2: 0.2 ≤ 0.3, in. The sums: 0.8 > 0.6, 0.4, 0.2 ≤ 0.3.
    mask = torch.tensor([[True] * 4, [True] * 4, [True, False, False, False]])
    proximal = torch.full((3, 4), -1.0)
    behavior = proximal - torch.tensor([[0.2], [0.1], [0.2]])
    gate = Gate(metric="ratio", level="sequence", upper=math.exp(0.3), bound_scale="inv_sqrt_length")
    found = correct(Correction(gates=(gate,)), proximal=proximal, behavior=behavior, mask=mask)
    assert found.kept.tolist() == [[False] * 4, [True] * 4, [True, False, False, False]]
    plain = Correction(gates=(gate.but(bound_scale="none"),))
    assert correct(plain, proximal=proximal, behavior=behavior, mask=mask).kept.equal(mask)  # a control: all stay


def test_the_bounds_of_single_tokens_worked_by_hand() -> None:
    # q = 0.9, 0.5, 0.1 and ratios of 1.1 each: 1 − q = 0.1, 0.5, 0.9; bounds 2^0.1 = 1.07, 2^0.5 = 1.41, 2^0.9 = 1.87
    behavior = torch.tensor([[0.9, 0.5, 0.1]]).log()
    given = {"behavior": behavior, "proximal": behavior + math.log(1.1), "mask": torch.ones(1, 3, dtype=torch.bool)}
    gate = Correction(gates=(Gate(metric="ratio", upper=2.0, bound_scale="one_minus_p"),))
    assert correct(gate, **given).kept.tolist() == [[False, True, True]]
    weight = Correction(weight=Weight(level="token", upper=2.0, bound_scale="one_minus_p"))
    assert correct(weight, **given).weight[0].tolist() == pytest.approx([2**0.1, 1.1, 1.1])
    clamp = Correction(gates=(gate.gates[0].but(action="clamp"),), weight=Weight(level="token"))
    assert correct(clamp, **given).weight[0].tolist() == pytest.approx([2**0.1, 1.1, 1.1])
    by_entropy = Correction(weight=Weight(level="token", upper=2.0, bound_scale="entropy"))
    entropy = torch.tensor([[0.0, math.nan, 3.0]])  # certain; not known; far from it
    assert correct(by_entropy, **given, entropy=entropy).weight[0].tolist() == pytest.approx([1.0, 1.0, 1.1])


@given(samples(), st.sampled_from([math.nan, math.inf, -1.0, 1e30]))
def test_an_entropy_under_a_false_mask_changes_nothing(sample: Sample, harm: float) -> None:
    entropy = entropy_of(sample)
    for rule in scaled_rules("entropy"):
        clean = decided(rule, sample, entropy=entropy)
        other = decided(rule, sample, entropy=torch.where(sample.mask, entropy, harm))
        assert torch.equal(clean.weight, other.weight)
        assert torch.equal(clean.kept, other.kept)
        assert clean.weight.isfinite().all()


KEPT = (0.01, 0.25, 0.5, 0.9, 0.99, 1.0)


@given(samples(), st.sampled_from(KEPT), st.sampled_from(["ratio", "k1", "k3", "tv", "prob_diff", "mult_prob_error"]))
def test_at_least_the_share_stays_and_more_only_by_ties(sample: Sample, keep: float, metric: str) -> None:
    for kind in (torch.float32, torch.float64):
        given = {name: each.to(kind) if each.is_floating_point() else each for name, each in sample.tensors().items()}
        out = correct(Correction(gates=(Gate(metric=metric, bounds={"keep": keep}),)), **given)
        number = int(out.trained.sum())
        wanted = math.ceil(round(keep * number, 9))
        assert int(out.kept.sum()) >= wanted
        fixed = Gate(metric=metric, action="observe")
        trace = correct(Correction(gates=(fixed,)), **given).metrics.decisions.results[0]  # pyright: ignore[reportAttributeAccessIssue]
        far = trace.high if metric in ("k3", "tv", "mult_prob_error") else trace.high.abs()
        inside, outside = far[out.kept], far[out.trained & ~out.kept]
        if number:
            last = inside.max()
            assert not len(outside) or outside.min() > last  # the nearest stay
            assert int((inside < last).sum()) < wanted  # and without the ties of the last there would be too few


@given(samples(), st.sampled_from([0.3, 0.5, 0.9]), st.sampled_from(["mean", "sum", "max", "min", "every"]))
def test_a_share_of_sequences_is_one_of_those_with_tokens(sample: Sample, keep: float, agg: str) -> None:
    gate = Gate(metric="abs_log_ratio", level="sequence", agg=agg, bounds={"keep": keep})
    out = decided(Correction(gates=(gate,)), sample)
    rows, kept = int(out.trained.any(-1).sum()), int(out.kept.any(-1).sum())
    assert kept >= math.ceil(round(keep * rows, 9))
    apart = decided(Correction(gates=(gate.but(bounds=None, upper=1e9),)), sample)
    assert kept == math.ceil(round(keep * rows, 9)) or _ties(apart)


def _ties(out: Corrected) -> bool:
    found = out.metrics.decisions.results[0]  # pyright: ignore[reportAttributeAccessIssue]
    values = found.high[found.counted > 0]
    return len(values.unique()) < len(values)


@given(samples(), st.sampled_from([0.2, 0.5, 0.8, 0.95, 1.0]), st.sampled_from(LEVELS))
def test_the_bound_of_an_effective_share_is_the_greatest_that_has_it(sample: Sample, ess: float, level: str) -> None:
    wide = sample.with_tensors(**{name: each.double() for name, each in sample.tensors().items() if name != "mask"})
    bounded = decided(Correction(weight=Weight(level=level, bounds={"ess": ess})), wide)
    weighed = bounded.metrics.decisions.weighing  # pyright: ignore[reportAttributeAccessIssue]
    assert weighed is not None
    there = weighed.counted.flatten() > 0
    log_raw, bound = weighed.log_raw.flatten()[there], float(weighed.bounds.upper)
    assert bound >= 0
    if not len(log_raw):
        return

    def share(log_u: float) -> float:
        held = (log_raw - log_u).clamp(max=0.0).exp()
        return float(held.sum() ** 2 / (len(held) * held.square().sum()))

    assert share(bound) >= ess - 1e-9 or bound == 0
    assert bound >= float(log_raw.max().clamp(min=0)) - 1e-12 or share(bound + 1e-6) < ess + 1e-9
    torch.testing.assert_close(weighed.value.flatten()[there], log_raw.clamp(max=bound).exp().clamp(max=1.7e308))


def test_the_effective_share_worked_by_hand() -> None:
    # r = 1, 1, 4: (1 + 1 + u)² / (3·(2 + u²)) ≥ 0.9 ⇔ 1.7u² − 4u + 1.4 ≤ 0 ⇔ u ≤ (4 + √6.48) / 3.4 = 1.92517
    behavior = torch.full((1, 3), -2.0, dtype=torch.float64)
    proximal = behavior + torch.tensor([[1.0, 1.0, 4.0]], dtype=torch.float64).log()
    given = {"behavior": behavior, "proximal": proximal, "mask": torch.ones(1, 3, dtype=torch.bool)}
    out = correct(Correction(weight=Weight(level="token", bounds={"ess": 0.9})), **given)
    assert out.weight[0].tolist() == pytest.approx([1.0, 1.0, (4 + math.sqrt(6.48)) / 3.4])
    assert float(out.metrics["weight/ess"]) == pytest.approx(0.9)
    assert float(out.metrics["weight/upper"]) == pytest.approx(1.92517, abs=1e-5)
    # r = 1, 0.01: no bound of 1 or more has 0.9, so it is 1; (1.01)² / (2·1.0001) = 0.51
    low = {**given, "proximal": behavior + torch.tensor([[1.0, 0.01, 1.0]], dtype=torch.float64).log()}
    low["mask"] = torch.tensor([[True, True, False]])
    out = correct(Correction(weight=Weight(level="token", bounds={"ess": 0.9})), **low)
    assert out.weight[0].tolist() == pytest.approx([1.0, 0.01, 0.0])
    assert float(out.metrics["weight/upper"]) == 1.0


def test_a_share_of_the_weights_stays_as_it_is() -> None:
    # |ℓ| = 0.1, 0.2, 0.3, 2: three of four lie within 0.3, so the last is held at e^0.3
    behavior = torch.full((1, 4), -3.0)
    log_r = torch.tensor([[0.1, -0.2, 0.3, 2.0]])
    given = {"behavior": behavior, "proximal": behavior + log_r, "mask": torch.ones(1, 4, dtype=torch.bool)}
    out = correct(Correction(weight=Weight(level="token", bounds={"keep": 0.75})), **given)
    assert out.weight[0].tolist() == pytest.approx([math.exp(each) for each in (0.1, -0.2, 0.3, 0.3)], rel=1e-5)
    out = correct(Correction(weight=Weight(level="token", bounds={"keep": 0.75}, outside="zero")), **given)
    assert out.weight[0].tolist() == pytest.approx([math.exp(0.1), math.exp(-0.2), math.exp(0.3), 0.0], rel=1e-5)
    gate = correct(Correction(gates=(Gate(metric="ratio", bounds={"keep": 0.75}),)), **given)
    assert gate.kept.tolist() == [[True, True, True, False]]
    assert float(gate.metrics["gate/0-ratio-token/upper"]) == pytest.approx(math.exp(0.3), rel=1e-5)
    assert float(gate.metrics["gate/0-ratio-token/high_tokens"]) == 0.25


def test_seven_of_a_hundred_are_seven() -> None:
    """0.07 · 100 is 7.000000000000001 in floating point, and 0.29 · 100 is 28.999999999999996."""
    behavior = torch.full((1, 100), -3.0)
    proximal = behavior - torch.arange(100)[None] / 100
    for kind in (torch.float32, torch.float64):
        for keep, number in ((0.07, 7), (0.29, 29), (0.145, 15), (1.0, 100)):
            rule = Correction(gates=(Gate(metric="ratio", bounds={"keep": keep}),))
            out = correct(rule, behavior=behavior.to(kind), proximal=proximal.to(kind), mask=torch.ones(1, 100).bool())
            assert int(out.kept.sum()) == number


@pytest.mark.parametrize(
    "rule",
    [
        *(rule for scale in SCALES for rule in scaled_rules(scale)),
        Correction(
            gates=(Gate(metric="ratio", bounds={"keep": 0.9}),), weight=Weight(level="token", bounds={"ess": 0.9})
        ),
        Correction(weight=Weight(level="sequence", bounds={"keep": 0.9}), normalize="group"),
    ],
)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_nothing_is_read_on_the_host(rule: Correction, kind: torch.dtype) -> None:
    behavior = -torch.rand(4, 6, dtype=kind, device="meta")
    given = {"behavior": behavior, "proximal": behavior + 0.1, "entropy": behavior.abs()}
    mask, group = torch.ones(4, 6, dtype=torch.bool, device="meta"), torch.zeros(4, dtype=torch.int64, device="meta")
    out = correct(rule, **given, mask=mask, group=group)  # on this device nothing can be read
    assert out.weight.shape == (4, 6)


def test_a_rule_is_known_by_what_it_needs_and_left_to_the_plain_form() -> None:
    for rule in scaled_rules("entropy"):
        assert rule.needs_entropy
        assert not rule.needs_whole_step
        assert misfit(rule) == "bound_scale"
    kept = Correction(gates=(Gate(metric="ratio", bounds={"keep": 0.9}),))
    assert kept.needs_whole_step
    assert misfit(kept) == "bounds"
    assert misfit(Correction(gates=(Gate(metric="ratio", upper=2.0),))) is None  # a control


def test_what_cannot_be_scaled_or_found_is_named() -> None:
    refused: list[tuple[str, dict[str, Any]]] = [
        ("needs level token, got sequence", {"level": "sequence", "upper": 2.0, "bound_scale": "entropy"}),
        ("needs level token, got segment", {"level": "segment", "upper": 2.0, "bound_scale": "one_minus_p"}),
        ("needs a mean over a segment or sequence, got token", {"upper": 2.0, "bound_scale": "inv_sqrt_length"}),
        ("take the mean", {"level": "sequence", "agg": "sum", "upper": 2.0, "bound_scale": "inv_sqrt_length"}),
        ("needs a bound to scale", {"action": "observe", "bound_scale": "entropy"}),
        ("needs no upper, got both", {"upper": 2.0, "bounds": {"keep": 0.9}}),
        ("needs keep, got ess", {"bounds": {"ess": 0.9}}),
        ("needs keep or ess, got both", {"bounds": {"ess": 0.9, "keep": 0.9}}),
        ("needs keep or ess, got neither", {"bounds": {}}),
        ("needs bound_scale none", {"bounds": {"keep": 0.9}, "bound_scale": "entropy"}),
    ]
    for message, settings in refused:
        with pytest.raises(ConfigError, match=message):
            Gate(metric="ratio", **settings)
    with pytest.raises(ConfigError, match="agg budget needs an upper bound only"):
        Gate(metric="k2", level="batch", bounds={"keep": 0.9})
    with pytest.raises(ConfigError, match="bounds > 0"):
        Gate(metric="mult_prob_error", upper=-1.0, bound_scale="entropy")
    for message, settings in [
        ("needs level token, got prefix", {"level": "prefix", "upper": 2.0, "bound_scale": "entropy"}),
        ("take the mean", {"level": "sequence", "upper": 2.0, "bound_scale": "inv_sqrt_length"}),
        ("needs outside clamp", {"level": "token", "outside": "zero", "bounds": {"ess": 0.9}}),
        ("needs no lower, got both", {"level": "token", "lower": 0.5, "bounds": {"keep": 0.9}}),
        ("level one needs no bounds", {"level": "one", "bounds": {"ess": 0.9}}),
    ]:
        with pytest.raises(ConfigError, match=message):
            Weight(**settings)
    assert Weight(level="token", lower=0.5, bounds={"ess": 0.9}).lower == 0.5  # a lower bound may stand beside it


def test_what_is_missing_is_named_with_its_remedy() -> None:
    same_log_probs = torch.full((2, 3), -1.0)
    given = {"proximal": same_log_probs, "behavior": same_log_probs, "mask": torch.ones(2, 3, dtype=torch.bool)}
    by_entropy = scaled_rules("entropy")[0]
    with pytest.raises(InputError, match=r"needs entropy, got None.*selected_log_probs\(..., entropy=True\)"):
        correct(by_entropy, **given)
    with pytest.raises(InputError, match="entropy needs the shape of mask"):
        correct(by_entropy, **given, entropy=same_log_probs[:1])
    with pytest.raises(InputError, match="needs entropy, got None"):
        trimtab.policy_loss("clip", current=same_log_probs, advantages=torch.ones(2), correction=by_entropy, **given)
    with pytest.raises(ConfigError, match="without bounds by entropy"):
        Hook("here", frozenset({"correction"})).check_parts(by_entropy)
    kept = Correction(weight=Weight(level="token", bounds={"keep": 0.9}))
    scaled = "bounds that are scaled .bound_scale entropy.. --nearest writes .*the same with constant bounds"
    for rule, words in ((scaled_rules("entropy")[1], scaled), (kept, "bounds that are found in the batch .keep.")):
        with pytest.raises(ConfigError, match=f"OpenRLHF does not support {words}"):
            trimtab.dialects.write("openrlhf", rule)
    with pytest.raises(ConfigError, match="bounds of the token alone"):
        Correction(weight=Weight(level="token", bounds={"ess": 0.9}), centering="score")


def test_a_loss_takes_the_entropy_it_has() -> None:
    """The same decisions as `correct` makes, and no gradient through a bound."""
    make = torch.Generator().manual_seed(5)
    behavior = -torch.rand(3, 5, generator=make) - 0.1
    current = (behavior + 0.3 * torch.randn(3, 5, generator=make)).requires_grad_()
    entropy = torch.rand(3, 5, generator=make).requires_grad_()
    mask = torch.ones(3, 5, dtype=torch.bool)
    rule = Correction(
        policies="bypass",
        gates=(Gate(metric="abs_log_ratio", upper=0.4, bound_scale="entropy"),),
        weight=Weight(level="token"),
    )
    found = trimtab.policy_loss(
        "reinforce",
        current=current,
        behavior=behavior,
        advantages=torch.ones(3),
        mask=mask,
        correction=rule,
        entropy=entropy,
    )
    found.loss.backward()
    kept = correct(rule, current=current, behavior=behavior, mask=mask, entropy=entropy).kept
    assert current.grad is not None
    assert torch.equal(current.grad != 0, kept)
    assert kept.any()
    assert not kept.all()
    assert entropy.grad is None
