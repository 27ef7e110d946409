"""The table of AReaL #1218 (Token-MIS, Geo-RS, both in turn) held against a lab's own numbers.

Each cell of that table is a claim; each claim is tested on every seed. Its thresholds were not published with it, so Geo-RS is
tested with the bounds its text recommends (`upper: 2.0`) and with ±1 %.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab.lab.candidate import GEO_WIDE, GEO_WIDE_TOKEN_MIS, TOKEN_MIS
from trimtab.lab.results import CellResult, LabResults
from trimtab.lab.statistics.decision import ClaimOutcome as Outcome
from trimtab.lab.verdict import FULL, tally
from trimtab.report.html import short_number

EXPLODED = 15.0
"""Gradient norm from which it counts as exploded: the figure of that table."""
GREW = 10.0
"""How many times its median over the first third the KL must reach afterwards to count as exploded."""
SCENARIO = "stale"


@dataclass(frozen=True)
class ClaimResult:
    """A claim, and what the lab found."""

    what: str
    claim: str
    outcome: Outcome
    evidence: str


@dataclass(frozen=True)
class RowResult:
    """One row of the table under one correction."""

    row: str
    correction: str
    bounds: str
    findings: tuple[ClaimResult, ...]

    @property
    def outcome(self) -> Outcome:
        """Of the row: confirmed if every claim is, contradicted if one is."""
        found = [each.outcome for each in self.findings]
        if "contradicted" in found:
            return "contradicted"
        return "confirmed" if found and set(found) == {"confirmed"} else "not decided"


Test = Callable[[Sequence[CellResult]], tuple[Outcome, str]]


def _grad_norm(explodes: bool) -> Test:
    def test(cells: Sequence[CellResult]) -> tuple[Outcome, str]:
        most = [each.most["grad_norm"] for each in cells]
        median = [each.medians["grad_norm"] for each in cells]
        evidence = f"median {_list(median)}; greatest {_list(most)}"
        return _all_or_none([value >= EXPLODED for value in most], explodes), evidence

    return test


def _kl(explodes: bool) -> Test:
    def test(cells: Sequence[CellResult]) -> tuple[Outcome, str]:
        growth = [growth_factor(each, "mismatch") for each in cells]
        own = [growth_factor(each, "approx_kl") for each in cells]
        evidence = (
            f"mismatch KL grew {_list(growth)} times, to at most {_list([each.most['mismatch'] for each in cells])}; "
            f"step KL grew {_list(own)} times, to at most {_list([each.most.get('approx_kl', np.nan) for each in cells])}"
        )
        return _all_or_none([value >= GREW for value in growth], explodes), evidence

    return test


def _collapse(collapses: bool) -> Test:
    """A degraded run decides nothing: it did not collapse, and nobody would call it stable."""

    def test(cells: Sequence[CellResult]) -> tuple[Outcome, str]:
        fallen, stood = ([each.word == word for each in cells] for word in ("collapsed", "healthy"))
        where = [
            f"seed {each.seed} by step {each.verdict.fell[1]}" for each in cells if each.verdict and each.verdict.fell
        ]
        evidence = f"{tally([each.word for each in cells])}; last accuracy {_list([each.last for each in cells], 2)}"
        evidence += f"; fell: {', '.join(where)}" if where else ""
        if not any(fallen) and min(each.steps for each in cells) < FULL:
            return "not decided", f"{evidence}; {cells[0].steps} steps are too few to say that nothing falls"
        against = all(stood) if collapses else any(fallen)
        confirmed = all(fallen) if collapses else all(stood)
        return "contradicted" if against else "confirmed" if confirmed else "not decided", evidence

    return test


CLAIMS: tuple[tuple[str, tuple[tuple[str, str], ...], tuple[tuple[str, str, Test], ...]], ...] = (
    (
        "Token-MIS only",
        ((TOKEN_MIS, "token ratio ≤ 2"),),
        (
            ("grad_norm", "~0.5 (stable)", _grad_norm(False)),
            ("approx_kl", "explodes", _kl(True)),
            ("stability", "collapses, ~250 steps", _collapse(True)),
        ),
    ),
    (
        "Geo-RS only",
        ((GEO_WIDE, "upper: 2.0, as recommended"), ("geo-rs", "±1 %")),
        (
            ("grad_norm", "explodes (~15)", _grad_norm(True)),
            ("approx_kl", "explodes", _kl(True)),
            ("stability", "collapses quickly", _collapse(True)),
        ),
    ),
    (
        "Geo-RS + Token-MIS",
        ((GEO_WIDE_TOKEN_MIS, "upper: 2.0, as recommended"), ("geo-rs+token-mis", "±1 %, then token ratio ≤ 2")),
        (
            ("grad_norm", "~0.5", _grad_norm(False)),
            ("approx_kl", "~0 (stable)", _kl(False)),
            ("stability", "no collapse", _collapse(False)),
        ),
    ),
)
"""Row, the corrections that stand for it with their bounds, and its claims."""


def claim_rows(results: LabResults, scenario: str = SCENARIO) -> list[RowResult]:
    """Every row under every correction that stands for it."""
    found: list[RowResult] = []
    for row, corrections, claims in CLAIMS:
        for name, bounds in corrections:
            cells = list(_done(results, scenario, name).values())
            findings = [ClaimResult(what, claim, *test(cells)) for what, claim, test in claims] if cells else []
            found.append(RowResult(row, name, bounds, tuple(findings)))
    return found


def idle_stage(results: LabResults, scenario: str = SCENARIO) -> str | None:
    """Whether the first stage with `upper: 2.0` did anything: what it kept, and whether both stages differ from the second alone."""
    wide, both, alone = (_done(results, scenario, name) for name in (GEO_WIDE, GEO_WIDE_TOKEN_MIS, TOKEN_MIS))
    shared = sorted(both.keys() & alone.keys())
    if not wide or not shared:
        return None
    least = [min((v for v in each.curves["kept"].values if v is not None), default=1.0) for each in wide.values()]
    same = [seed for seed in shared if _is_same_run(both[seed], alone[seed])]
    return (
        f"Geo-RS with `upper: 2.0` alone kept at least {_list(least, 4)} of the tokens (lowest point of its curve, by seed). "
        f"With it as first stage, the curves of {len(same)} of {len(shared)} seeds are those of Token-MIS alone, point for point."
    )


def _done(results: LabResults, scenario: str, correction: str) -> dict[int, CellResult]:
    """The cells of a correction that ran to the end, by seed."""
    return {each.seed: each for each in results.cells(scenario, correction) if each.status == "done"}


def _is_same_run(one: CellResult, other: CellResult) -> bool:
    return one.accuracy == other.accuracy and one.curves == other.curves


def growth_factor(entry: CellResult, name: str) -> float:
    """How many times its median over the first third a curve reaches afterwards."""
    found = entry.curves.get(name)
    if found is None:
        return float("nan")
    series = found.series()
    third = entry.steps // 3
    early, later = series.within(0, third).finite.values, series.within(third + 1, entry.steps).finite.values
    if not len(early) or not len(later):
        return float("nan")
    return float(later.max() / max(float(np.median(early)), 1e-9))


def _all_or_none(found: Sequence[bool], wanted: bool) -> Outcome:
    """Confirmed where every seed shows what is wanted, contradicted where every seed shows the other."""
    if all(each == wanted for each in found):
        return "confirmed"
    return "contradicted" if all(each != wanted for each in found) else "not decided"


def _list(values: Sequence[float], digits: int = 3) -> str:
    return ", ".join(short_number(value, digits) for value in values)
