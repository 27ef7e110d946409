"""The signals that predict, in the form the run report reads."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from trimtab.lab.results import CURVES
from trimtab.lab.warning.early import EarlyWarning
from trimtab.report.findings.signs import Predictor
from trimtab.report.metrics import METRICS
from trimtab.report.write import write_page

LEAST_AREA = 0.6
"""A signal goes into the report where the lower bound of its held-out area is above this: 0.5 is a coin."""
REPORTED = ("mismatch", "approx_kl", "ess", "kept")
"""Of entropy and gradient norm a level means nothing in another model: they are not here."""


def predictors_of(warnings: Sequence[EarlyWarning]) -> list[Predictor]:
    """Levels that predict; a growth or a difference of two curves has no bound to draw in one chart."""
    return [
        Predictor(
            metric=CURVES[each.signal.curve][0],
            name=each.signal.label[0].upper() + each.signal.label[1:],
            panel=METRICS[CURVES[each.signal.curve][0]].panel,
            gathered=CURVES[each.signal.curve][1],
            rises=each.rises,
            threshold=_short(each.threshold),
            area=(_short(each.area.estimate), _short(each.area.lower), _short(each.area.upper)),
            caught=_short(each.caught),
            falls=each.falls,
            lead=each.lead,
            false_share=_short(each.false_share),
            stood=each.stood,
        )
        for each in warnings
        if not each.signal.growth and each.signal.curve in REPORTED and each.area.lower > LEAST_AREA and each.caught > 0
    ]


def write_predictors(file: Path, warnings: Sequence[EarlyWarning]) -> None:
    """predictors.json."""
    found = [each.model_dump(mode="json") for each in predictors_of(warnings)]
    write_page(file, json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False) + "\n")


def _short(value: float) -> float:
    return float(f"{value:.3g}")
