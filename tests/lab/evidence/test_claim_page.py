"""Claims as rows and pages: what stands beside a verdict, and nothing obeyed that a file says."""

from __future__ import annotations

import re

import pytest

from tests.lab.evidence.made import arms, claim, lab, pairing
from tests.report.test_page import HOSTILE
from trimtab.lab.evidence.claim import Arm, shipped_claims
from trimtab.lab.evidence.decide import claim_finding
from trimtab.lab.evidence.pages import (
    beside,
    claim_sentence,
    claim_texts,
    claims_html,
    claims_markdown,
    ordered_findings,
    rates,
    signed,
    step_series,
)
from trimtab.lab.statistics.intervals import Lifetime, survival_curve
from trimtab.report.draw.figure import SPAN, interval_svg

FOUND = claim_finding(claim(), lab(*arms()))
NOISY = claim_finding(claim(id="noisy"), lab(arms()[0], [*arms(one=0.9, other=0.88)[1]]))
ABSENT = claim_finding(claim(id="absent"))


def test_a_row_has_verdict_interval_seeds_and_survival():
    # Late accuracies 0.9 + 0.005·(seed mod 5) against 0.2 + 0.007·(seed mod 7): means 0.90813 and 0.21838, difference 0.68975.
    name, verdict, difference, seeds, rate, survived, needed = claim_texts(FOUND, 0.0391)
    assert (name, verdict, seeds, needed) == ("made-up", "confirmed", "8", "")
    assert re.fullmatch(r"\+0\.69 \[\+0\.6\d, \+0\.7\d\]", difference)
    assert (rate, survived) == ("0.039", "8 of 8 / 0 of 8")
    assert claim_texts(ABSENT, 1.0) == ("absent", "not run", "–", "–", "", "–", "0 of at least 8 seeds")


def test_the_other_claims_of_a_table_count_in_its_rates():
    alone, among = rates([FOUND]), rates([FOUND, *[ABSENT] * 9])
    assert (alone[0], among[0]) == (pytest.approx(10 / 256), pytest.approx(100 / 256))


def test_survival_is_counted_over_the_seeds_of_the_row():
    # Nine seeds are looked at as eight. The second arm falls in every seed but the ninth.
    first, second = arms(9)
    found = claim_finding(claim(), lab(first, [*second[:8], first[8].but(correction="off", name="other")]))
    assert claim_texts(found, 1.0)[3:6] == ("8", "1", "8 of 8 / 0 of 8")


def test_signs_are_said_and_nothing_has_none():
    assert [signed(value) for value in (0.126, -0.5, 0.001, -0.004)] == ["+0.13", "−0.50", "0.00", "0.00"]


def test_a_fault_stands_beside_the_verdict_and_in_its_row():
    first, second = arms()
    stuck = [each.but(pairing=pairing(each.seed, stuck=40 if each.seed == 1 else 1)) for each in first]
    found = claim_finding(claim(), lab(stuck, second))
    assert "stuck" in claim_texts(found, 1.0)[-1]
    assert any("40 steps in a row" in line for line in beside(found))
    assert "8 pairs with the same warm start" in beside(found)[1]


def test_decided_claims_come_first_and_those_without_runs_last():
    assert [each.claim.id for each in ordered_findings([ABSENT, FOUND])] == ["made-up", "absent"]


def test_the_sentence_of_every_shipped_claim_names_both_arms():
    for each in shipped_claims().claims:
        said = claim_sentence(each)
        assert each.first.correction in said
        assert f"({each.second.scenario})" in said


def test_the_page_shows_intervals_and_survival_and_obeys_nothing():
    hostile = claim(text=HOSTILE, source=HOSTILE, first=Arm(correction=HOSTILE))
    made = lab([each.but(correction=HOSTILE) for each in arms()[0]], arms()[1])
    page = claims_html([claim_finding(hostile, made), ABSENT], HOSTILE, HOSTILE)
    assert HOSTILE not in page
    assert page.count('class="interval"') == 1
    assert page.count('class="band s') == 2
    assert "trimtab lab --decide --claim made-up" in page
    markdown = claims_markdown([claim_finding(hostile, made)], HOSTILE)
    assert HOSTILE not in markdown


def test_a_survival_curve_goes_down_in_steps():
    points = survival_curve([Lifetime(100, True), Lifetime(400, False)])
    series = step_series(points, [each.share for each in points])
    assert list(zip(series.steps.tolist(), series.values.tolist(), strict=True)) == [
        (0, 1.0),
        (99, 1.0),
        (100, 0.5),
        (399, 0.5),
        (400, 0.5),
    ]


@pytest.mark.parametrize("bounds", [(-0.2, 0.4), (-3.0, 3.0)])
def test_an_interval_is_drawn_inside_its_range(bounds: tuple[float, float]):
    svg = interval_svg(0.1, *bounds, ends=(-1.0, 1.0), margin=0.05)
    drawn = re.search(r'class="line s1" d="M([\d.]+) 13.0H([\d.]+)"', svg)
    assert drawn is not None
    left, right = float(drawn[1]), float(drawn[2])
    assert 0 <= left < SPAN / 2 < right <= SPAN
    # −0.2 of ±1 over 8 to 212: 8 + 0.4 · 204 = 89.6; 0.4 is at 150.8.
    assert (left, right) == ((89.6, 150.8) if bounds[0] == -0.2 else (8.0, 212.0))
