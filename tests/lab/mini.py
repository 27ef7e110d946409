"""A lab of seconds: every part real, the policy and the task tiny."""

from __future__ import annotations

from trimtab.lab.candidate import parse_candidates
from trimtab.lab.lab import LabPlan
from trimtab.lab.results import CellResult
from trimtab.lab.scenario import base_settings, scenario

OVERRIDES = (
    *("model.tiny.layers=1", "model.tiny.width=16", "model.tiny.heads=2", "model.tiny.mlp=24"),
    *("model.warm_start.target=0.15", "model.warm_start.lr=1e-2", "model.warm_start.batch=64", "task.options.size=2"),
    *("rollout.groups=4", "rollout.samples=4", "rollout.slots=16", "learner.lr=1e-3", "learner.minibatches=2"),
    *("evaluate.every=2", "evaluate.problems=16"),
)


def plan(*names: str, seeds: int = 2, steps: int = 4, scenarios: tuple[str, ...] = ("quantized",)) -> LabPlan:
    chosen = parse_candidates(list(names or ("off", "geo-rs")))
    return LabPlan([scenario(each) for each in scenarios], chosen, range(seeds), steps, base_settings(OVERRIDES))


class SilentDisplay:
    """Shows nothing; tests say what they are told of."""

    def begin(self, done: int, changed: int, cells: int) -> None: ...

    def step(self, name: str, step: int, accuracy: float | None) -> None: ...

    def end(self, name: str, entry: CellResult | None) -> None: ...

    def look(self, task: str, seeds: int, claims: int) -> None: ...
