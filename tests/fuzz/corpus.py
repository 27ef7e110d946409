"""What the fuzz begins from: the settings of all frameworks and of ours, a run and a lab."""

from __future__ import annotations

import json
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.dialects.examples import EXAMPLES
from tests.dialects.whole_files import WHOLE
from tests.lab import curves
from tests.report.test_directory import on_disk
from trimtab.config.files import explained_yaml, to_yaml
from trimtab.config.presets import PRESETS
from trimtab.config.training import Train

ROOT = Path(__file__).parents[2]


@cache
def frameworks() -> dict[str, list[Any]]:
    """Per framework: whole files as users keep them, and small ones of one option each."""
    small = {name: [*each.corrections.values(), *each.objectives.values()] for name, each in EXAMPLES.items()}
    return {name: [WHOLE[name], WHOLE[name], *small[name]] for name in WHOLE}


@cache
def own() -> list[Any]:
    """Corrections and training files of ours."""
    rules = [yaml.safe_load(to_yaml(each())) for each in PRESETS.values()]
    runs = [yaml.safe_load((ROOT / "examples" / name).read_text()) for name in ("correction.yaml", "gsm8k.yaml")]
    runs += [yaml.safe_load(explained_yaml(Train())), yaml.safe_load(to_yaml(Train(task={"name": "chain"})))]
    return [each for each in [*rules, *runs, *runs] if each]


@cache
def scenarios() -> list[Any]:
    """Scenarios of labs."""
    folder = ROOT / "src/trimtab/lab/scenarios"
    return [yaml.safe_load(each.read_text()) for each in sorted(folder.glob("*.yaml"))]


@cache
def run_files() -> dict[str, str]:
    """The text files of a small run."""
    folder = Path(tempfile.mkdtemp())
    try:
        path = on_disk(folder, steps=6)
        names = ("run.json", "config.yaml", "metrics.jsonl", "events.jsonl")
        return {name: (path / name).read_text() for name in names}
    finally:
        shutil.rmtree(folder)


@cache
def claims() -> Any:
    """A file of claims."""
    given = {"id": "mine", "text": "t", "source": "s", "expected": "same", "margin": 0.1, "shared": ["start"]}
    arms = {"first": {"correction": "icepop", "train": {"loss": {"kind": "clip"}}}, "second": {"correction": "off"}}
    return {
        "tasks": {"other": {"train": {"task": {"options": {"size": 3}}}}},
        "claims": [given | arms | {"task": "other"}],
    }


def lab(falls: bool = False) -> Any:
    """A small lab; with `falls`, one correction falls on every seed."""
    seeds = (0, 1)
    cells = [curves.entry("control", "off", seed, curves.CONTROL) for seed in seeds]
    cells += [curves.entry("stale", name, seed, curves.HEALTHY) for name in ("off", "icepop") for seed in seeds]
    cells += [curves.entry("stale", "geo-rs", seed, curves.LATE_FALL) for seed in seeds if falls]
    return json.loads(json.dumps(curves.book(*cells).model_dump(mode="json")))
