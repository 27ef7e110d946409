"""Where the mismatch comes from: fresh tokens judged by themselves, age, and samples cut by top-k and top-p."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.report import made
from tests.report.test_findings import run, titled
from trimtab.config.training import Rollout
from trimtab.report import Run, RunFinding, findings_of


def found_at(by_age: dict[int, float], *, rows: int = 40, mixed: bool = False, **rollout: Any) -> list[RunFinding]:
    """Findings of a run whose tokens have this mean k3 at each age; each response of one age, or (mixed) of all."""
    ages = sorted(by_age)
    # k3 = e^ℓ − 1 − ℓ; for ℓ > 0 found by bisection
    gap = {age: _log_ratio(value) for age, value in by_age.items()}
    table = made.rollouts(np.random.default_rng(0), rows, per_step=1, length=8)
    columns = {"proximal": [], "versions": [], "version": []}
    for row, behavior in enumerate(table.column("behavior").to_pylist()):
        of = [ages[(place if mixed else row) % len(ages)] for place in range(len(behavior))]
        columns["proximal"].append([value + gap[age] for value, age in zip(behavior, of, strict=True)])
        columns["versions"].append([100 - age for age in of])
        columns["version"].append(100)
    for name, values in columns.items():
        place = table.schema.get_field_index(name)
        table = table.set_column(place, name, made.pa.array(values, made.COLUMNS[name]))
    return findings_of(Run(settings=made.settings(rollout=Rollout(**rollout)), metrics=(), rollouts=table))


def _log_ratio(k3: float) -> float:
    low, high = 0.0, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if np.expm1(middle) - middle < k3 else (low, middle)
    return low


def titles(found: list[RunFinding]) -> set[str]:
    return {one.title for one in found}


def test_quantisation_is_not_called_agreement_and_its_precision_is_named() -> None:
    found = found_at({0: 0.0424, 8: 0.147}, precision="int4")
    (off,) = (one for one in found if one.title == "Fresh tokens are off already")
    assert off.level == "warning"
    assert "0.0424 at age 0 and 0.147 at age 8" in off.sentence
    assert "rollout.precision is int4" in off.sentence
    assert "Age adds to it" in off.sentence
    assert not any("agree on fresh tokens" in one.sentence for one in found)
    assert off.advice is not None
    assert off.advice.setting == "rollout.precision=int8"


def test_policies_that_agree_on_fresh_tokens_are_said_to() -> None:
    found = found_at({0: 1e-6, 8: 0.05})
    (grows,) = (one for one in found if one.title == "Mismatch grows with age")
    assert grows.level == "note"
    assert "agree on fresh tokens" in grows.sentence
    assert "Fresh tokens are off already" not in titles(found)


def test_between_agreement_and_fault_neither_is_claimed() -> None:
    found = found_at({0: 4e-4, 8: 0.05}, precision="fp8")
    (grows,) = (one for one in found if one.title == "Mismatch grows with age")
    assert "agree" not in grows.sentence
    assert "more than bf16 gives" in grows.sentence
    assert "Fresh tokens are off already" not in titles(found)


def test_a_mismatch_of_one_age_only_is_judged_as_well() -> None:
    (off,) = (one for one in found_at({0: 0.04}, precision="int4") if one.title == "Fresh tokens are off already")
    assert "Mean k3 is 0.04 at age 0:" in off.sentence


def test_without_fresh_tokens_nothing_is_said_of_them() -> None:
    assert not {"Fresh tokens are off already", "Mismatch grows with age"} & titles(found_at({1: 0.01, 8: 0.1}))


def test_a_mismatch_too_small_to_matter_is_not_mentioned() -> None:
    assert not {"Fresh tokens are off already", "Mismatch grows with age"} & titles(found_at({0: 1e-7, 8: 5e-4}))


@pytest.mark.parametrize(
    ("mixed", "rollout", "cause", "setting"),
    [
        (True, {"in_flight": "keep_cache"}, "Likely the cache", "rollout.in_flight=recompute"),
        (False, {"in_flight": "keep_cache"}, "does not explain it", "rollout.max_staleness=0"),
        (False, {"top_p": 0.9, "head": "none"}, "does not explain it", "rollout.head=mask"),
        (
            False,
            {"precision": "bf16"},
            "rollout.precision is bf16, which does not explain it",
            "rollout.precision=fp32",
        ),
    ],
)
def test_another_cause_is_named_where_precision_is_none(
    mixed: bool, rollout: dict[str, Any], cause: str, setting: str
) -> None:
    (off,) = (
        one for one in found_at({0: 0.02, 4: 0.02}, mixed=mixed, **rollout) if one.title.startswith("Fresh tokens")
    )
    assert cause in off.sentence
    assert off.advice is not None
    assert off.advice.setting == setting


def test_what_replay_changed_is_said_with_its_number() -> None:
    settings = made.settings(rollout=Rollout(top_p=0.8))
    curves = {"head__kept_mass": 0.87, "head__outside_fraction": 0.0}
    found = titled(findings_of(run(50, settings=settings, **curves)), "Cut samples, replayed")
    assert found is not None
    assert found.level == "note"
    assert "left 0.87 of the probability" in found.sentence
    assert "they would stand at about 0.87." in found.sentence
    assert "outside" not in found.sentence
    fell = titled(findings_of(run(50, settings=settings, **curves | {"head__outside_fraction": 0.02})), "Cut samples")
    assert fell is not None
    assert "2 % of the tokens lay outside" in fell.sentence


def test_a_run_without_replay_is_warned_and_told_the_setting() -> None:
    settings = made.settings(rollout=Rollout(top_p=0.8, head="none"))
    found = titled(findings_of(run(50, settings=settings, ratio__mean=0.87)), "Ratios of a cut")
    assert found is not None
    assert found.level == "warning"
    assert "Mean ratio: 0.87" in found.sentence
    assert found.advice is not None
    assert found.advice.setting == "rollout.head=mask"


def test_a_whole_distribution_needs_no_word() -> None:
    for rollout in (Rollout(), Rollout(head="none"), Rollout(top_p=1.0, head="none")):
        found = findings_of(run(50, settings=made.settings(rollout=rollout)))
        assert titled(found, "Ratios of a cut") is None
        assert titled(found, "Cut samples") is None
