"""Arms made up: accuracy curves of any late level, with what a real run records of its start and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.lab.curves import book, entry
from trimtab.lab.cell import CellPairing
from trimtab.lab.evidence.claim import Arm, Claim
from trimtab.lab.results import CellResult, LabResults

FIRES = {"gates": ({"metric": "k3", "action": "reject"},)}


def pairing(seed: int, **changes: Any) -> CellPairing:
    given = {"start": f"weights {seed}", "prompts": f"prompts {seed}", "recorded": 400, "stuck": 1}
    return CellPairing(**(given | changes))


def run(scenario: str, correction: str, seed: int, late: float, **changes: Any) -> CellResult:
    """Learns to 0.9 by step 200 and stands at `late` from 280 on; curves that no other run has."""
    pairs = [(0, 0.3), (100, 0.7), (200, 0.9), (240, (0.9 + late) / 2), (280, late), (340, late), (400, late)]
    level = {
        "kept": 0.9,
        "grad_norm": 0.5 + 0.01 * seed + 0.1 * late,
        "entropy": 0.05,
        "clip_high": 0.01,
        "clip_low": 0.01,
    }
    level |= changes.pop("level", {})
    return entry(scenario, correction, seed, pairs, level=level, **({"pairing": pairing(seed)} | changes))


def claim(**changes: Any) -> Claim:
    given: dict[str, Any] = {
        "id": "made-up",
        "text": "The first is higher.",
        "source": "nobody",
        "first": Arm(correction="k3-rs"),
        "second": Arm(correction="off"),
        "expected": "higher",
    }
    return Claim(**(given | changes))


def lab(first: Sequence[CellResult], second: Sequence[CellResult]) -> LabResults:
    made = book(*first, *second)
    rules: dict[str, Any] = {each.correction: FIRES for each in first} | {each.correction: {} for each in second}
    return made.but(corrections=rules)


def arms(seeds: int = 8, one: float = 0.9, other: float = 0.2) -> tuple[list[CellResult], list[CellResult]]:
    """Two arms far apart, each seed a little different."""
    first = [run("stale", "k3-rs", seed, one + 0.005 * (seed % 5)) for seed in range(seeds)]
    return first, [run("stale", "off", seed, other + 0.007 * (seed % 7)) for seed in range(seeds)]
