"""Hand-worked values: each metric, level, aggregation, action and bound, with the arithmetic beside it."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from torch import Tensor

from trimtab.config.correction import Correction, Gate, Limit, Weight
from trimtab.config.presets import preset
from trimtab.core.batch import batch
from trimtab.core.correct import Corrected, correct, decide
from trimtab.core.decisions import Decisions
from trimtab.core.layout import Padded
from trimtab.core.metrics import Metrics
from trimtab.errors import InputError


@pytest.fixture(autouse=True, params=["1", "0"], ids=["pass", "plain"])
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each value is that of both forms; those that the pass does not take are the plain one's twice."""
    monkeypatch.setenv("TRIMTAB_FAST", request.param)


KEEP_ALL = Correction(gates=(Gate(metric="k1", direction="reverse", bounds={"keep": 1.0}),))
LOG2, LOG3, LOG4 = math.log(2), math.log(3), math.log(4)


def on(rule: Correction, rows: list[list[float]], *, mask: list[list[int]] | None = None, **more: Tensor) -> Corrected:
    """The rule on rows of log-ratios; behavior is −1 everywhere."""
    log_r = torch.tensor(rows)
    behavior = torch.full_like(log_r, -1.0)
    chosen = torch.ones_like(log_r) if mask is None else torch.tensor(mask)
    target = {"proximal": behavior + log_r} if rule.policies == "decoupled" else {"current": behavior + log_r}
    return correct(rule, behavior=behavior, mask=chosen, **(target | more))


def gate(**settings: object) -> Correction:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Correction(gates=(Gate(**settings),))


def near(found: Tensor, wanted: object) -> None:
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=found.dtype), rtol=1e-5, atol=1e-6)


P, Q = 0.5, 0.25  # target and behavior probability of one token; ℓ = log 2, r = 2

TOKEN_VALUES = {
    ("ratio", None): 2.0,
    ("k1", "forward"): -LOG2,
    ("k1", "reverse"): LOG2,
    ("k2", None): LOG2**2 / 2,  # 0.2402
    ("k3", "forward"): 2 - 1 - LOG2,  # 0.3069
    ("k3", "reverse"): 0.5 - 1 + LOG2,  # 0.1931
    ("k3", "max"): 2 - 1 - LOG2,
    ("binary_kl", "reverse"): 0.5 * LOG2 + 0.5 * math.log(0.5 / 0.75),  # KL(p ‖ q) = 0.1438
    ("binary_kl", "forward"): -0.25 * LOG2 + 0.75 * math.log(0.75 / 0.5),  # KL(q ‖ p) = 0.1308
    ("binary_kl", "max"): 0.5 * LOG2 + 0.5 * math.log(0.5 / 0.75),
    ("tv", None): 0.25,
    ("prob_diff", None): 0.25,
    ("abs_log_ratio", None): LOG2,
    ("ratio_deviation", None): 1.0,
    ("mult_prob_error", None): 2.0,
    ("second_moment", None): LOG2**2,
}


@pytest.mark.parametrize(("kind", "value"), TOKEN_VALUES.items(), ids=lambda each: str(each))
def test_each_metric_has_its_value_on_one_token(kind: tuple[str, str | None], value: float) -> None:
    metric, direction = kind
    rule = gate(metric=metric, direction=direction, action="observe")
    tensors = {"proximal": torch.tensor([[math.log(P)]]), "behavior": torch.tensor([[math.log(Q)]])}
    out = correct(rule, mask=torch.ones(1, 1), **tensors)
    near(out.metrics[f"gate/0-{metric}-token/mean"], value)
    # and the gate cuts just there
    for upper, stays in ((value + 1e-3, True), (value - 1e-3, False)):
        if metric != "ratio" and upper < 0:
            continue
        cut = gate(metric=metric, direction=direction, upper=upper)
        assert bool(correct(cut, mask=torch.ones(1, 1), **tensors).kept) is stays


AGGREGATES = {  # of ℓ = log 2, log 4, log 1/2: as ratios
    "mean": 2 ** (2 / 3),  # (2 · 4 · ½)^(1/3)
    "sum": 4.0,  # 2 · 4 · ½
    "max": 4.0,
    "min": 0.5,
    "every": 4.0,  # the token farthest out
}


@pytest.mark.parametrize("agg", AGGREGATES)
@pytest.mark.parametrize("level", ["segment", "sequence"])
def test_ratios_are_gathered_in_log_space(agg: str, level: str) -> None:
    rule = gate(metric="ratio", level=level, agg=agg, action="observe")
    out = on(rule, [[LOG2, LOG4, -LOG2, 99.0]], mask=[[1, 1, 1, 0]])
    near(out.metrics[f"gate/0-ratio-{level}/mean"], AGGREGATES[agg])


def test_divergences_are_gathered_arithmetically() -> None:
    # k2 of ℓ = 1, 2: ½ and 2; mean 1.25, sum 2.5, max 2, min ½
    for agg, value in {"mean": 1.25, "sum": 2.5, "max": 2.0, "min": 0.5, "every": 2.0}.items():
        out = on(gate(metric="k2", level="sequence", agg=agg, action="observe"), [[1.0, 2.0]])
        near(out.metrics["gate/0-k2-sequence/mean"], value)


def test_a_segment_is_a_contiguous_run_of_the_mask() -> None:
    # runs of row 0: (log 4, 0) → geometric mean 2, and (log 2) → 2; of row 1: (0) → 1 and (log 4) → 4
    rule = gate(metric="ratio", level="segment", upper=2.0)
    out = on(rule, [[LOG4, 0.0, 9.0, LOG2], [0.0, 9.0, LOG4, 9.0]], mask=[[1, 1, 0, 1], [1, 0, 1, 0]])
    assert out.kept.tolist() == [[True, True, False, True], [True, False, False, False]]
    weight = on(Correction(weight=Weight(level="segment")), [[LOG4, 0.0, 9.0, LOG2]], mask=[[1, 1, 0, 1]]).weight
    near(weight, [[2.0, 2.0, 0.0, 2.0]])


def test_bounds_are_closed_and_a_bound_met_exactly_is_inside() -> None:
    rows = [[LOG2, -LOG2, math.log(2.001), math.log(0.4999)]]
    assert on(gate(metric="ratio", lower=0.5, upper=2.0), rows).kept.tolist() == [[True, True, False, False]]
    half = [[1.0, 1.1]]
    assert on(gate(metric="k2", upper=0.5), half).kept.tolist() == [[True, False]]


def test_an_open_side_never_rejects() -> None:
    assert on(gate(metric="ratio", upper=2.0), [[-50.0, 50.0]]).kept.tolist() == [[True, False]]
    assert on(gate(metric="ratio", lower=0.5), [[-50.0, 50.0]]).kept.tolist() == [[False, True]]


def test_weights_at_each_level() -> None:
    rows = [[LOG2, LOG4]]
    values = {
        "one": [1, 1],
        "token": [2, 4],
        "geometric": [8**0.5, 8**0.5],  # (2 · 4)^½
        "sequence": [8, 8],  # 2 · 4
        "segment": [8**0.5, 8**0.5],
    }
    for level, value in values.items():
        near(on(Correction(weight=Weight(level=level)), rows).weight, [value])


def test_beyond_its_bounds_a_weight_is_truncated_or_zeroed_and_the_mask_stays() -> None:
    rows = [[LOG4, -LOG4, 0.0]]  # ratios 4, ¼, 1
    clamped = on(Correction(weight=Weight(level="token", lower=0.5, upper=2.0)), rows)
    near(clamped.weight, [[2.0, 0.5, 1.0]])
    zeroed = on(Correction(weight=Weight(level="token", lower=0.5, upper=2.0, outside="zero")), rows)
    near(zeroed.weight, [[0.0, 0.0, 1.0]])
    assert clamped.kept.all()
    assert zeroed.kept.all()


def test_a_bound_that_was_found_beyond_what_is_reported_is_reported_as_the_most() -> None:
    # ℓ = 200 is kept with all others: the bound is e^200, a number of float64 and beyond the 1e38 of metrics
    weight = Weight(level="token", bounds={"keep": 1.0})
    behavior = torch.full((1, 2), -300.0, dtype=torch.float64)
    proximal = behavior + torch.tensor([[200.0, 1.0]])
    for rule, name in ((Correction(weight=weight), "weight/upper"), (KEEP_ALL, "gate/0-k1-token/upper")):
        out = correct(rule, behavior=behavior, proximal=proximal, mask=torch.ones(1, 2))
        assert float(out.metrics[name]) == pytest.approx(1e38 if name == "weight/upper" else 200.0)


def test_a_ratio_that_overflows_takes_the_cap() -> None:
    near(on(preset("token-tis", upper=2.0), [[89.0, 500.0]]).weight, [[2.0, 2.0]])
    free = on(Correction(weight=Weight(level="token")), [[500.0]]).weight
    assert free.item() == torch.finfo(torch.float32).max


def test_reject_leaves_the_mask_and_zero_stays_in_it() -> None:
    rows = [[LOG4, 0.0]]
    rejected, zeroed = (on(gate(metric="ratio", upper=2.0, action=action), rows) for action in ("reject", "zero"))
    assert rejected.kept.tolist() == [[False, True]]
    assert zeroed.kept.tolist() == [[True, True]]
    assert rejected.weight.tolist() == zeroed.weight.tolist() == [[0.0, 1.0]]


def test_observe_changes_nothing_and_reports() -> None:
    out = on(gate(metric="ratio", upper=2.0, action="observe"), [[LOG4, 0.0]])
    assert out.kept.all()
    near(out.metrics["gate/0-ratio-token/rejected_tokens"], 0.5)


def test_a_clamp_gate_holds_the_weight_only_where_its_own_statistic_is_outside() -> None:
    # row 0: max 4 > 3 → geometric mean √8 ≈ 2.83 lies inside [.., 3] and stays; row 1: max 16 → √32 ≈ 5.66 is held at 3
    clamp = Gate(metric="ratio", level="sequence", agg="max", upper=3.0, action="clamp")
    rule = Correction(gates=(clamp,), weight=Weight(level="geometric"))
    near(on(rule, [[LOG2, LOG4], [LOG2, math.log(16)]]).weight, [[8**0.5] * 2, [3.0, 3.0]])
    # row 2: max 2 is inside, so a weight above the bound of another gate's making stays as it is
    wide = Correction(gates=(clamp.but(agg="min", upper=1.5),), weight=Weight(level="geometric"))
    near(on(wide, [[0.0, LOG4]]).weight, [[2.0, 2.0]])  # min 1 inside: the geometric mean 2 is not held


def test_when_limits_a_gate_to_some_tokens() -> None:
    rows, upper = [[LOG4, LOG4, LOG4]], 2.0
    advantages = torch.tensor([[1.0, -1.0, 0.0]])
    wanted = {
        "always": [0, 0, 0],
        "negative_advantage": [1, 0, 1],
        "nonpositive_advantage": [1, 0, 0],
        "positive_advantage": [0, 1, 1],
        "moving_away": [0, 1, 1],  # A · ℓ > 0: pushing a ratio that is too high higher still
    }
    for when, kept in wanted.items():
        for size in (1.0, 0.01):  # the sign of an advantage decides, however small it is
            out = on(gate(metric="ratio", upper=upper, when=when), rows, advantages=size * advantages)
            assert out.kept.int().tolist() == [kept], when


def test_a_sequence_is_judged_by_its_mean_advantage_unless_tokens_are_asked() -> None:
    rows, advantages = [[LOG4, LOG4]], torch.tensor([[1.0, -3.0]])  # mean −1
    common = {"metric": "ratio", "level": "sequence", "upper": 1.2, "when": "negative_advantage"}
    assert on(gate(**common), rows, advantages=advantages).kept.tolist() == [[False, False]]
    assert on(gate(**common, advantage_of="token"), rows, advantages=advantages).kept.tolist() == [[True, False]]


def test_scope_decides_what_a_later_gate_sees() -> None:
    # nine tokens on-policy and one at r = e^5: the token gate drops it; over all ten the geometric mean is e^½, over the nine it is 1
    rows = [[5.0, *[0.0] * 9]]
    token = Gate(metric="ratio", upper=2.0)
    geo = {"metric": "ratio", "level": "sequence", "lower": 0.9, "upper": 1.1}
    assert on(Correction(gates=(token, Gate(**geo))), rows).kept.sum() == 0
    assert on(Correction(gates=(token, Gate(**geo, scope="kept"))), rows).kept.sum() == 9


def test_a_limit_bites_on_tokens_or_on_what_is_gathered() -> None:
    rows = [[3.0, 3.0]]
    for at, value in (("token", 4.0), ("gathered", 2.0)):  # 2 + 2 or min(6, 2)
        limit = Limit(bound=2.0, at=at)
        rule = gate(metric="k1", direction="reverse", level="sequence", agg="sum", action="observe", limit=limit)
        out = on(rule, rows)
        near(out.metrics["gate/0-k1-sequence/mean"], value)
        weight = on(Correction(weight=Weight(level="sequence", limit=limit)), rows).weight
        near(weight, [[math.exp(value)] * 2])


@pytest.mark.parametrize("agg", ["mean", "sum", "max", "min", "every"])
@pytest.mark.parametrize("level", ["sequence", "segment"])
def test_a_limit_on_what_is_gathered_bites_however_it_is_gathered(level: str, agg: str) -> None:
    # ℓ = 4 and −4 stand as 1 and −1: e and 1/e lie inside [1/20, 20], e⁴ = 55 and 1/55 would not
    limit = Limit(bound=1.0, at="gathered")
    for rows, value in (([[4.0]], math.e), ([[-4.0]], 1 / math.e)):
        common = {"metric": "ratio", "level": level, "agg": agg, "lower": 0.05, "upper": 20.0}
        held = on(gate(**common, limit=limit), rows)
        assert held.kept.all()
        near(held.metrics[f"gate/0-ratio-{level}/max"], value)
        assert not on(gate(**common), rows).kept.any()


def test_a_weight_that_is_zeroed_outside_and_a_gate_keep_the_same_tokens_at_every_bound() -> None:
    # a token at float32's log of the bound meets it exactly, and bounds are closed; e to that is often a hair above
    for step in range(1, 400):
        upper = 1 + step / 100
        rows = [[math.log(upper), -math.log(upper)]]
        behavior, proximal = torch.zeros(1, 2), torch.tensor(rows)
        gated = correct(
            gate(metric="ratio", lower=1 / upper, upper=upper), behavior=behavior, proximal=proximal, mask=behavior == 0
        )
        weight = Weight(level="token", lower=1 / upper, upper=upper, outside="zero")
        zeroed = correct(Correction(weight=weight), behavior=behavior, proximal=proximal, mask=behavior == 0)
        assert gated.kept.all(), upper
        assert (zeroed.weight > 0).all(), upper
        assert zeroed.metrics["weight/touched_high"] == zeroed.metrics["weight/touched_low"] == 0, upper


def test_normalised_weights_have_mean_one_over_tokens_or_sequences() -> None:
    mask = [[1, 1, 1], [1, 0, 0]]
    rows = [[LOG2, 0.0, 0.0], [LOG4, 0.0, 0.0]]
    tokens = on(Correction(weight=Weight(level="token"), normalize="batch"), rows, mask=mask)
    near(tokens.weight, [[1.0, 0.5, 0.5], [2.0, 0.0, 0.0]])  # (2 + 1 + 1 + 4) / 4 = 2
    sequences = on(Correction(weight=Weight(level="sequence"), normalize="batch"), rows, mask=mask)
    near(sequences.weight, [[2 / 3] * 3, [4 / 3, 0.0, 0.0]])  # products 2 and 4, mean 3


def test_a_budget_drops_the_worst_tokens_until_the_mean_fits() -> None:
    # second moments 0, 1, 4, 9: means of the smallest 1, 2, 3, 4 are 0, ½, 5/3, 3.5
    rows = [[0.0, 1.0, 2.0, 3.0]]
    for tau, kept in ((0.4, 1), (0.5, 2), (1.6, 2), (1.7, 3), (3.5, 4)):
        assert on(preset("m2po", tau=tau), rows).kept.sum() == kept, tau
    assert on(preset("m2po", tau=1.0), [[1.0, 2.0, 2.0]]).kept.tolist() == [
        [True, False, False]
    ]  # equal values fall together


def test_a_strict_budget_stays_below_and_never_drops_the_smallest() -> None:
    # second moments 0, 1, 4, 9: a mean of exactly ½ is too much; above the least value, nothing fits and it stays
    rows = [[0.0, 1.0, 2.0, 3.0]]
    for tau, kept in ((0.5, 1), (0.51, 2), (5 / 3, 2), (1.7, 3), (3.5, 3), (3.6, 4)):
        rule = Correction(gates=(Gate(metric="second_moment", level="batch", upper=tau, strict=True),))
        assert on(rule, rows).kept.sum() == kept, tau
    rule = Correction(gates=(Gate(metric="second_moment", level="batch", upper=0.1, strict=True),))
    assert on(rule, [[1.0, 2.0, 3.0]]).kept.tolist() == [[True, False, False]]
    assert on(rule, [[5.0, 2.0, 3.0]], mask=[[1, 0, 0]]).kept.tolist() == [[True, False, False]]
    assert on(rule, [[5.0, 2.0, 3.0]], mask=[[0, 0, 0]]).kept.sum() == 0


def test_areal_1088_aggregates_ratios_geometrically_and_weighs_a_sequence_uniformly() -> None:
    # geometric mean of 2 and ½ is 1, their arithmetic mean 1.25; both tokens then weigh 1; row 2's mean 4 > 2 goes
    rule = Correction(
        gates=(Gate(metric="ratio", level="sequence", agg="mean", lower=0.5, upper=1.2),),
        weight=Weight(level="geometric"),
    )
    out = on(rule, [[LOG2, -LOG2], [LOG4, LOG4]])
    near(out.weight, [[1.0, 1.0], [0.0, 0.0]])
    assert rule.denominator == "trained"  # the loss still divides by four tokens


def test_areal_1218_stage_one_dominates_and_survivors_weigh_their_own_ratio() -> None:
    # row 0: geometric mean 2 > 1.5 → gone, though its second token alone would pass; row 1: mean 1; its token at 4 goes in stage 2
    rule = preset("geo-rs+token-mis", lower=0.6, upper=1.4, token_upper=2.0)
    out = on(rule, [[LOG4, 0.0], [LOG4, -LOG4]])
    assert out.kept.tolist() == [[False, False], [False, True]]
    near(out.weight, [[0.0, 0.0], [0.0, 0.25]])
    held = on(
        preset("geo-rs+token-tis", lower=0.6, upper=1.4, token_lower=0.5, token_upper=2.0), [[LOG4, 0.0], [LOG4, -LOG4]]
    )
    near(held.weight, [[0.0, 0.0], [2.0, 0.5]])


def test_verl_6800_is_exactly_zero_against_itself_and_finite_at_probability_one() -> None:
    log_probs = torch.tensor([[0.0, -1e-9, -0.5, -20.0]])
    rule = gate(metric="binary_kl", direction="max", upper=1e-6)
    own = correct(rule, proximal=log_probs, behavior=log_probs, mask=torch.ones(1, 4))
    assert own.kept.all()
    assert own.metrics["gate/0-binary_kl-token/max"] == 0
    edge = correct(rule, proximal=torch.zeros(1, 1), behavior=torch.tensor([[-0.5]]), mask=torch.ones(1, 1))
    value = edge.metrics["gate/0-binary_kl-token/max"]
    # q = e^-½ = 0.6065, p = 1 − 1e-6: KL(q ‖ p) = q log(q/p) + (1 − q) log((1 − q)/1e-6) = −0.303 + 0.3935 · 12.883 = 4.766
    near(value, 0.60653 * math.log(0.60653 / (1 - 1e-6)) + 0.39347 * math.log(0.39347 / 1e-6))
    assert not edge.kept.any()


def test_k3_is_never_negative_near_zero() -> None:
    tiny = on(gate(metric="k3", level="sequence", agg="min", action="observe"), [[1e-6, -1e-6, 3e-7, -3e-7]])
    assert tiny.metrics["gate/0-k3-sequence/min"] >= 0


def test_a_veto_condemns_a_sequence_for_one_token_on_either_side() -> None:
    rule = preset("veto", lower=0.1, upper=10.0)
    out = on(rule, [[0.0, 3.0], [0.0, -3.0], [0.0, 1.0]])  # e³ = 20, e⁻³ = 0.05, e = 2.7
    assert out.kept.tolist() == [[False, False], [False, False], [True, True]]


def test_a_veto_reports_the_token_that_is_outside() -> None:
    # ratios 0.45 and 3.3 in [0.5, 100]: the first is outside, though the second is farther from 1
    rule = preset("veto", lower=0.5, upper=100.0)
    out = on(rule, [[math.log(0.45), math.log(3.3)]])
    near(out.metrics["gate/0-ratio-sequence/low_tokens"], 1.0)
    near(out.metrics["gate/0-ratio-sequence/max"], 0.45)
    # both outside: the farther from 1; both inside: the same
    near(
        on(preset("veto", lower=0.5, upper=3.0), [[math.log(0.45), math.log(3.3)]]).metrics[
            "gate/0-ratio-sequence/max"
        ],
        3.3,
    )
    near(on(rule, [[math.log(0.6), math.log(3.3)]]).metrics["gate/0-ratio-sequence/max"], 3.3)
    near(on(rule, [[math.log(0.6), math.log(1.1)]]).metrics["gate/0-ratio-sequence/max"], 0.6)


def test_a_veto_reports_nothing_of_sequences_without_tokens() -> None:
    rule = gate(metric="abs_log_ratio", level="sequence", agg="every", upper=0.5, action="observe")
    flat, bounds = torch.tensor([-1.0, -1.2]), torch.tensor([0, 0, 2, 2])
    out = correct(rule, behavior=flat, proximal=flat + 0.25, mask=torch.ones(2), cu_seqlens=bounds)
    near(out.metrics["gate/0-abs_log_ratio-sequence/mean"], 0.25)
    near(out.metrics["gate/0-abs_log_ratio-sequence/max"], 0.25)


def test_opsm_looks_at_current_against_behavior_and_only_where_the_advantage_is_negative() -> None:
    behavior = torch.zeros(2, 2) - 1.0
    out = correct(
        preset("opsm", delta=0.1),
        behavior=behavior,
        proximal=behavior,
        current=behavior - 0.2,  # mean of log behavior − log current is 0.2 > 0.1
        mask=torch.ones(2, 2),
        advantages=torch.tensor([1.0, -1.0]),
    )
    assert out.weight.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert out.kept.all()


def test_selection_metrics_tell_a_filter_that_keeps_wrong_answers_more_often() -> None:
    advantages = torch.tensor([1.0, 1.0, -1.0, -1.0])
    out = on(gate(metric="ratio", level="sequence", upper=1.1), [[1.0], [0.0], [0.0], [0.0]], advantages=advantages)
    near(out.metrics["selection/kept_given_positive"], 0.5)
    near(out.metrics["selection/kept_given_negative"], 1.0)
    near(out.metrics["selection/net_advantage"], -1 / 3)  # (1 − 1 − 1) / 3
    near(out.metrics["selection/mean_advantage"], 0.0)


def test_a_zeroed_token_is_lost_to_the_selection_like_a_rejected_one() -> None:
    advantages = torch.tensor([1.0, -1.0])
    out = on(gate(metric="ratio", level="sequence", upper=1.1, action="zero"), [[1.0], [0.0]], advantages=advantages)
    near(out.metrics["selection/kept_given_positive"], 0.0)
    near(out.metrics["selection/net_advantage"], -1.0)


def test_metrics_have_their_hand_worked_values() -> None:
    # row 0: r = 2, ½ over two tokens; row 1: one token r = 1, one masked
    out = on(preset("token-tis", upper=1.5), [[LOG2, -LOG2], [0.0, 7.0]], mask=[[1, 1], [1, 0]])
    wanted = {
        "tokens": 3,
        "sequences": 2,
        "kept_fraction": 1,
        "drift/kl": 0,  # −(log 2 − log 2 + 0) / 3
        "drift/kl_reverse": (2 * LOG2 - 0.5 * LOG2) / 3,  # mean of r log r
        "drift/k3": ((1 - LOG2) + (-0.5 + LOG2)) / 3,
        "drift/chi2_token": (4 + 0.25 + 1) / 3 - 1,
        "drift/chi2_sequence": 0,  # products 1 and 1
        "drift/abs_log_r": 2 * LOG2 / 3,
        "drift/abs_log_r_max": LOG2,
        "drift/abs_log_r_p50": LOG2,
        "ratio/mean": 3.5 / 3,
        "ratio/min": 0.5,
        "ratio/max": 2,
        "ratio/p50": 1,
        "weight/mean": (1.5 + 0.5 + 1) / 3,
        "weight/std": math.sqrt((0.25 + 0.25 + 0) / 3),
        "weight/ess": 9 / (3 * (2.25 + 0.25 + 1)),
        "weight/touched_high": 1 / 3,
        "weight/touched_low": 0,
        "perplexity/behavior": math.e,  # behavior log-prob −1 everywhere
        "perplexity/target": math.e,
        "perplexity/ratio": 1,
    }
    for name, value in wanted.items():
        near(out.metrics[name], value)


def test_rows_without_tokens_never_count() -> None:
    rows, mask = [[LOG2, LOG2], [5.0, 5.0]], [[1, 1], [0, 0]]
    rule = Correction(gates=(Gate(metric="ratio", level="sequence", upper=1.4),), weight=Weight(level="sequence"))
    out = on(rule, rows, mask=mask)
    near(out.metrics["sequences"], 1)
    near(out.metrics["gate/0-ratio-sequence/mean"], 2.0)
    near(out.metrics["gate/0-ratio-sequence/rejected_sequences"], 1.0)
    near(out.metrics["perplexity/ratio"], 0.5)
    near(out.metrics["drift/chi2_sequence"], 15.0)  # (2 · 2)² − 1


def test_quantiles_are_order_statistics_of_the_counted_values() -> None:
    rows = torch.linspace(-1, 1, 101)[torch.randperm(101)].reshape(1, -1)
    out = on(preset("off"), [[*rows[0].tolist(), 50.0]], mask=[[1] * 101 + [0]])
    near(out.metrics["ratio/p50"].log(), 0.0)
    near(out.metrics["ratio/p01"].log(), -0.98)  # the second smallest of 101
    near(out.metrics["ratio/p99"].log(), 0.98)  # the hundredth


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_metrics_speak_of_the_mask_that_was_given_whatever_becomes_of_it(kind: torch.dtype) -> None:
    # `Metrics` by hand: the run-time checker of the tests looks into those of `correct` as soon as they are there
    mask, behavior = torch.ones(1, 4).to(kind), torch.full((1, 4), -1.0)
    policies = {"behavior": behavior, "proximal": behavior + torch.tensor([[0.0, LOG4, 0.0, 0.0]])}
    rule = preset("token-mis", upper=2.0)

    def seen() -> Decisions:
        return decide(rule, batch(policies, rule.pairs, mask, Padded(), advantages=None))

    wanted, later = dict(Metrics(rule, seen, valued=False)), seen()
    mask[0, :2] = 0
    assert dict(Metrics(rule, lambda: later, valued=False)) == wanted
    assert wanted["missing_fraction"] == 0


def test_metrics_of_log_probs_that_were_changed_since_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMTAB_FAST", "0")  # the pass has their sums already
    behavior = torch.full((1, 4), -1.0)
    out = correct(preset("off"), behavior=behavior, proximal=behavior + 0.5, mask=torch.ones(1, 4))
    behavior -= 1.0
    near(out.metrics["drift/kl"], -0.5)  # of the log-ratio, which is the correction's own
    with pytest.raises(InputError, match="Metrics need the behavior log-probs they are worked out from"):
        out.metrics["perplexity/behavior"]
    with torch.inference_mode():  # where torch does not count changes
        free = torch.full((1, 4), -1.0)
        near(correct(preset("off"), behavior=free, proximal=free, mask=free).metrics["perplexity/behavior"], math.e)


def test_bypass_compares_current_with_behavior() -> None:
    near(on(preset("bypass-token-tis", upper=2.0), [[LOG4, 0.0]]).weight, [[2.0, 1.0]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_metrics_by_age_are_finite_where_a_weight_is_as_large_as_its_type_holds(dtype: torch.dtype) -> None:
    # r = e^500 on one token of age 1, in float64 1e217, whose square no type holds; beside it r = 1. One of two weights counts: 1/2.
    behavior = torch.tensor([[-500.0, -1.0, -1.0]], dtype=dtype)
    found = correct(
        Correction(weight=Weight(level="token")),
        behavior=behavior,
        proximal=torch.tensor([[0.0, -1.0, -1.0]], dtype=dtype),
        mask=torch.ones(1, 3, dtype=torch.bool),
        age=torch.tensor([[1, 1, 0]]),
    )
    assert float(found.metrics["weight/ess_age/1"]) == pytest.approx(0.5)
    assert float(found.metrics["weight/ess_age/0"]) == pytest.approx(1.0)
