"""Sums, least and greatest of the parts of a step are those of the step, whatever the split; a mean is, where parts are alike."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

import trimtab
from tests.laws.batches import Sample, samples
from trimtab.core.metrics import combination

RULES = ["geo-rs+token-mis", "token-tis", "icepop", "off"]


def combined(name: str, parts: list[torch.Tensor]) -> torch.Tensor:
    """The metric of that name over all parts, of which there is at least one."""
    ways = {"mean": torch.mean, "max": torch.amax, "min": torch.amin, "sum": torch.sum}
    return ways[combination(name)](torch.stack(parts))


def _metrics(sample: Sample, rule: str, rows: slice, denominator: trimtab.Denominator) -> dict[str, torch.Tensor]:
    data = {name: each[rows] for name, each in sample.tensors().items()}
    found = trimtab.policy_loss("clip", correction=trimtab.preset(rule), denominator=denominator, **data).metrics
    return dict(found)


@given(samples(), st.sampled_from(RULES), st.data())
def test_what_is_not_a_mean_is_exact_for_any_split(sample: Sample, rule: str, data: st.DataObject) -> None:
    rows = len(sample.lengths)
    cut = data.draw(st.integers(0, rows))
    denominator = trimtab.Denominator.of(sample.tensors()["mask"])
    whole = _metrics(sample, rule, slice(None), denominator)
    parts = [_metrics(sample, rule, each, denominator) for each in (slice(0, cut), slice(cut, None))]
    parts = [part for part in parts if part["tokens"] > 0 and part["kept_fraction"] > 0]  # of nothing, an end is 0
    for name, value in whole.items():
        if parts and combination(name) != "mean":
            torch.testing.assert_close(combined(name, [part[name] for part in parts]), value, rtol=1e-4, atol=1e-4)


def test_each_way_is_taken_by_some_metric_and_the_names_say_which():
    ways = {
        "tokens": "sum",
        "policy/loss": "sum",
        "nonvoting_rows": "sum",
        "weight/max": "max",
        "drift/abs_log_r_max": "max",
        "gate/0-ratio-sequence/max": "max",
        "policy/ratio_min": "min",
        "perplexity/log_diff_min": "min",
        "all_rejected": "min",
        "kept_fraction": "mean",
        "weight/ess": "mean",
        "gate/1-ratio-token/p99": "mean",
    }
    assert {name: combination(name) for name in ways} == ways


def test_a_mean_of_equal_parts_is_the_mean_of_the_whole():
    make = torch.Generator().manual_seed(1)
    behavior = -torch.rand(4, 5, generator=make)
    proximal = behavior + 0.3 * torch.randn(4, 5, generator=make)
    mask = torch.ones(4, 5, dtype=torch.bool)

    def kept(rows: slice) -> torch.Tensor:
        given = {"behavior": behavior[rows], "proximal": proximal[rows], "mask": mask[rows]}
        return trimtab.correct("geo-rs", **given).metrics["drift/k3"]

    torch.testing.assert_close(combined("drift/k3", [kept(slice(0, 2)), kept(slice(2, 4))]), kept(slice(None)))
