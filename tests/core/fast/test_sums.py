"""The sums of the pass over rows longer than a block, where log-ratios are small, where they are not, and where both meet."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.losses import Clip
from trimtab.config.presets import preset
from trimtab.core.correct import correct
from trimtab.losses.policy import policy_loss

pytest.importorskip("numba", reason="the extra [fast] is not installed")

from trimtab.core.fast import ratio

SEQUENCE = Gate(metric="ratio", level="sequence", lower=0.98, upper=1.02)
TOKEN = Gate(metric="ratio", upper=1.08)
RULES = {
    "a token weight": preset("token-tis"),
    "rows kept or not": Correction(gates=(SEQUENCE,), weight=Weight(level="token", upper=2.0)),
    "rows kept in part": Correction(gates=(SEQUENCE, TOKEN), weight=Weight(level="token", upper=1.05)),
    "k3 of rows": Correction(
        gates=(Gate(metric="k3", level="sequence", upper=0.01),), weight=Weight(level="geometric")
    ),
}
OF_TOKENS = {
    "tokens alone": Correction(gates=(TOKEN,)),
    "tokens that all pass": Correction(gates=(TOKEN.but(upper=50.0),)),
    "tokens on either side": Correction(
        gates=(Gate(metric="abs_log_ratio", upper=0.2), Gate(metric="k1", direction="forward", upper=0.3, scope="kept"))
    ),
}
"""Without a weight, and without a gate on sequences: what gates measured in rows that they leave whole is added up by itself."""
SPREADS = {"near": (0.05,) * 6, "far": (0.6,) * 6, "both": (0.05, 0.6, 0.05, 0.05, 0.02, 0.6)}


def sample(spreads: tuple[float, ...], width: int = 2600) -> dict[str, Any]:
    """Rows of three blocks, the last one short, each with a spread of its own; in the fourth only the last token is far out."""
    draw = torch.Generator().manual_seed(2)
    behavior = (-4096 * 3 * torch.rand(len(spreads), width, generator=draw)).round() / 4096
    apart = torch.tensor(spreads)[:, None] * torch.randn(len(spreads), width, generator=draw)
    apart[3, -1] = 3.0
    proximal = behavior + (apart * 4096).round() / 4096
    return {"behavior": behavior, "proximal": proximal, "mask": torch.rand(len(spreads), width, generator=draw) < 0.9}


def wide(tensors: dict[str, Any]) -> dict[str, Any]:
    return {name: each.double() if each.is_floating_point() else each for name, each in tensors.items()}


@pytest.mark.parametrize("spread", SPREADS)
@pytest.mark.parametrize("name", [*RULES, *OF_TOKENS])
def test_metrics_of_long_rows_are_those_of_the_plain_form_in_float64(
    name: str, spread: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensors = sample(SPREADS[spread])
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    rule = (RULES | OF_TOKENS)[name]
    fast = correct(rule, **tensors)
    monkeypatch.setenv("TRIMTAB_FAST", "0")
    exact = correct(rule, **wide(tensors))
    assert torch.equal(fast.kept, exact.kept)
    for metric, value in exact.metrics.items():
        near = 1e-5 * max(1.0, abs(float(value)))
        assert abs(float(fast.metrics[metric]) - float(value)) <= near, metric


@pytest.mark.parametrize("name", RULES)
def test_a_loss_reads_the_same_sums_later(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There they are worked out when a metric is first read, row by row."""
    tensors = sample(SPREADS["both"])
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    direct = correct(RULES[name], **tensors)
    given: dict[str, Any] = {"current": tensors["proximal"] + 0.01, "advantages": torch.ones(len(tensors["mask"]))}
    found = policy_loss(Clip(), correction=RULES[name], **tensors, **given)
    for metric in ("ratio/std", "drift/k3_reverse", "weight/raw_std", "weight/raw_mean", "drift/prob_diff"):
        assert float(found.metrics[metric]) == pytest.approx(float(direct.metrics[metric]), rel=1e-6), metric


def test_a_weight_before_its_bounds_counts_the_kept_tokens_of_a_row() -> None:
    """One row of three, one of which a gate takes out: (e^0.5 + 1) / 2 = 1.3244 is left, though the weight is held at 1.2."""
    behavior, mask = torch.full((1, 66), -5.0), torch.zeros(1, 66).bool()
    mask[0, :3] = True
    proximal = behavior.clone()
    proximal[0, :3] += torch.tensor([0.5, 1.0, 0.0])
    rule = Correction(gates=(Gate(metric="ratio", upper=2.0),), weight=Weight(level="token", upper=1.2))
    out = correct(rule, behavior=behavior, proximal=proximal, mask=mask)
    assert out.kept[0, :3].tolist() == [True, False, True]
    assert float(out.metrics["weight/raw_mean"]) == pytest.approx(1.3243606, rel=1e-6)
    assert float(out.metrics["weight/raw_max"]) == pytest.approx(1.6487213, rel=1e-6)


@pytest.mark.parametrize("policy", ["behavior", "proximal"])
def test_a_log_prob_above_0_is_counted_under_either_policy(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = sample((0.05,) * 6)
    tensors = {name: each - 4.0 if each.is_floating_point() else each for name, each in tensors.items()}
    row, place = tensors["mask"].nonzero()[0].tolist()
    tensors[policy][row, place] = 0.5
    found: list[float] = []
    for fast in ("1", "0"):
        monkeypatch.setenv("TRIMTAB_FAST", fast)
        found.append(float(correct("token-tis", **tensors).metrics["positive_fraction"]))
    assert found[0] == found[1] == pytest.approx(1 / int(tensors["mask"].sum()), rel=1e-6)


def test_where_nothing_is_to_be_reduced_both_loops_write_the_same_to_a_rounding() -> None:
    """Which of the two a token gets depends on how far out its neighbours are."""
    x = torch.linspace(-0.34, 0.34, 20_001).numpy()
    near, far = ([torch.empty(len(x)).numpy() for _ in range(3)] for _ in range(2))
    ratio.near_block(x, *near)
    ratio.far_block(x, *far)
    torch.testing.assert_close(torch.from_numpy(near[1]), torch.from_numpy(far[1]), rtol=1.2e-7, atol=0)
    torch.testing.assert_close(torch.from_numpy(near[0]), torch.from_numpy(far[0]), rtol=3e-7, atol=0)
    torch.testing.assert_close(torch.from_numpy(near[2]), torch.from_numpy(far[2]), rtol=1e-6, atol=1e-14)


@pytest.mark.parametrize("spoilt", ["nothing", "a NaN", "an infinity", "a hole in the mask", "a number far out"])
@pytest.mark.parametrize("dual", [None, 3.0])
def test_a_block_of_tokens_that_all_count_gives_what_one_with_gaps_gives(
    spoilt: str, dual: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole blocks have loops of their own, which leave a block that turns out not to be whole to the others."""
    tensors = sample(SPREADS["near"]) | {"mask": torch.ones(6, 2600, dtype=torch.bool)}
    draw = torch.Generator().manual_seed(3)
    current = tensors["proximal"] + 0.1 * torch.randn(6, 2600, generator=draw)
    advantages = torch.randn(6, 2600, generator=draw)
    if spoilt == "a NaN":
        tensors["behavior"][1, 1500], current[2, 7], advantages[4, 2000] = (float("nan"),) * 3
    elif spoilt == "an infinity":
        tensors["proximal"][1, 1500], advantages[4, 2000] = float("inf"), float("-inf")
    elif spoilt == "a hole in the mask":
        tensors["mask"][1, 1500] = tensors["mask"][3, 10:40] = False
    elif spoilt == "a number far out":
        current[2, 7] += 21.0
    seen = {}
    for form, given in (("1", tensors), ("0", wide(tensors))):
        monkeypatch.setenv("TRIMTAB_FAST", form)
        leaf = current.to(given["behavior"].dtype, copy=True).requires_grad_()
        rule = RULES["rows kept in part"]
        out = policy_loss(Clip(dual=dual), correction=rule, current=leaf, advantages=advantages.to(leaf), **given)
        out.loss.backward()
        assert leaf.grad is not None
        seen[form] = out.loss.detach(), leaf.grad, {name: float(value) for name, value in out.metrics.items()}
    (loss, gradient, metrics), (exact, slope, named) = seen["1"], seen["0"]
    torch.testing.assert_close(loss.double(), exact, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(gradient.double(), slope, rtol=1e-4, atol=1e-9)
    for name, value in named.items():
        assert abs(metrics[name] - value) <= 1e-5 * max(1.0, abs(value)), name


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("width", [1, 70, 2600])
@pytest.mark.parametrize("name", RULES)
def test_ratios_that_are_all_equal_deviate_by_nothing(
    name: str, width: int, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """r = e^0.0625 for every token: the mean of (r − 1)² less the square of its mean is 0, and float32 sums would leave 1e-5 of it."""
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    behavior = torch.full((rows, width), -3.0)
    mask = torch.ones(rows, width, dtype=torch.bool)
    metrics = correct(RULES[name], proximal=behavior + 0.0625, behavior=behavior, mask=mask).metrics
    deviations = {each: float(value) for each, value in metrics.items() if each.endswith("std")}
    assert {"ratio/std", "weight/std", "weight/raw_std"} <= deviations.keys()
    assert max(deviations.values()) <= 1e-7, deviations


@pytest.mark.parametrize("level", ["token", "sequence", "geometric"])
@pytest.mark.parametrize("width", [1, 70, 1500])
def test_weights_that_are_all_small_share_the_batch_evenly(
    level: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every weight is e^−15 (of a sequence, less): (Σw)² / (n · Σw²) is 1, and Σw² is no difference of numbers near 1."""
    monkeypatch.setenv("TRIMTAB_FAST", "1")
    each = torch.full((2, width), -15.0 / width if level == "sequence" else -15.0)
    mask = torch.ones(2, width, dtype=torch.bool)
    rule = Correction(weight=Weight.from_settings({"level": level, "upper": 2.0}))
    metrics = correct(rule, proximal=each - 1.0, behavior=torch.full((2, width), -1.0), mask=mask).metrics
    assert abs(float(metrics["weight/ess"]) - 1.0) <= 1e-5
    assert abs(float(metrics["weight/raw_ess"]) - 1.0) <= 1e-5
    assert abs(float(metrics["weight/mean"]) / 3.059e-07 - 1.0) <= 1e-3


def test_a_number_beyond_float32_is_its_largest_one() -> None:
    from trimtab.core.fast.metrics import as_tensors

    most = torch.finfo(torch.float32).max
    found = as_tensors({"far": 1e300, "below": -1e300, "near": 0.5})
    assert [float(each) for each in found.values()] == [most, -most, 0.5]
