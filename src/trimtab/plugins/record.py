"""The `record` key of a plan: batches with all log-probs in trimtab's own records, for frameworks whose dumps lack them."""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from trimtab.config.plan import Plan
from trimtab.errors import ConfigError

HOME = "trimtab.records.recorder"


def recorder_of(plan: Plan, place: str) -> Any:
    """The recorder of the plan's folder, one per process; None where nothing is to be recorded."""
    return None if plan.record is None else _recorder(plan.record, place)


@lru_cache
def _recorder(folder: str, place: str) -> Any:
    if find_spec(HOME) is None:
        raise ConfigError(f"{place} needs trimtab.Recorder for record, got a trimtab without it. Drop record.")
    return import_module(HOME).Recorder(folder)
