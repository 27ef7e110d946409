"""What each gate would keep on the first batches, as a function of its threshold: of right answers, of wrong ones, and the balance.

The batches are those of a few steps of the scenario, sampled from the warm start. Without staleness nothing is learned in
between; with it, the run learns (uncorrected) until its samples are as old as they get.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trimtab.config.correction import Correction, Gate
from trimtab.config.kept_shares import IDLE, STARVING
from trimtab.dialects.candidate import Candidate, parse_candidate
from trimtab.errors import RunError
from trimtab.explain.thresholds import PRINTED_SHARES, SHARES, gate_distance, gate_sentence, gates_of, threshold_form
from trimtab.lab.cell import cells
from trimtab.lab.scenario import Scenario, merge_settings
from trimtab.lab.work import LabJob, run_jobs
from trimtab.records.run import RunDirectory
from trimtab.records.schema import RolloutRow, rows_from

if TYPE_CHECKING:
    from torch import Tensor

BATCHES = 4
"""Learner steps whose samples are looked at."""
BIASED = 0.02
"""Net advantage of what is kept under minus this: the gate pushes down."""
_NO_LEARNING = 1e-12
"""A learning rate at which nothing is learned."""

Values = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class KeptShares:
    """What a threshold keeps, in shares of tokens."""

    threshold: float | None
    """None: the bounds as they are set."""
    kept: float
    right: float
    """Of answers that are right; NaN where there are none."""
    wrong: float
    net_advantage: float
    """Mean advantage of what is kept; NaN where nothing is."""


@dataclass(frozen=True)
class Scan:
    """A gate on the first batches of a scenario."""

    correction: str
    gate: str
    """Its metric, level and bounds in words."""
    form: str
    """What a threshold t means, such as `1/t ≤ ratio ≤ t`."""
    seeds: tuple[KeptShares, ...]
    """As it is set, seed by seed."""
    curve: tuple[KeptShares, ...]
    """Over its threshold, all seeds together."""
    keeping: Mapping[str, float]
    """The thresholds that keep 99, 90 and 50 %."""

    @property
    def remark(self) -> str:
        """What is wrong with the threshold, if anything."""
        kept = [each.kept for each in self.seeds]
        net = [each.net_advantage for each in self.seeds if not np.isnan(each.net_advantage)]
        said: list[str] = []
        if min(kept) > IDLE:
            said.append("never fires" if min(kept) == 1.0 else "hardly ever fires")
        if max(kept) < STARVING:
            said.append("keeps little")
        if all(each.wrong > each.right for each in self.seeds) and net and max(net) < -BIASED:
            said.append("keeps wrong answers more often than right ones")
        return ", ".join(said)


@dataclass(frozen=True, eq=False)
class Units:
    """What a gate judges on a batch: one number per token, turn or sequence."""

    statistic: Values
    """Distance from on-policy in the units of the threshold: kept while at most that."""
    stays: Flags
    """Whether the bounds as set keep it."""
    tokens: Values
    right: Flags
    advantage: Values

    def shares(self, stays: Flags, threshold: float | None) -> KeptShares:
        """What stays, counted in tokens."""
        weight = self.tokens * stays
        return KeptShares(
            threshold,
            _share(weight, self.tokens),
            _share(weight[self.right], self.tokens[self.right]),
            _share(weight[~self.right], self.tokens[~self.right]),
            _share(weight * self.advantage, weight),
        )

    def threshold(self, share: float) -> float:
        """The least value of the statistic that keeps this share of the tokens.

        Statistics 1, 2, 3 of 5, 3 and 2 tokens: 5, 8 and 10 of 10 are kept, so 50 % takes 1 and 60 % takes 2.
        """
        order = np.argsort(self.statistic, kind="stable")
        reached = np.cumsum(self.tokens[order]) >= share * self.tokens.sum() - 1e-9
        return float(self.statistic[order][np.argmax(reached)])


def scans(
    chosen: Scenario, given: Sequence[Candidate], seeds: Sequence[int], base: Mapping[str, Any], jobs: int
) -> list[Scan]:
    """Every gate of these corrections on the first batches of a scenario."""
    batches = first_batches(chosen, seeds, base, jobs)
    scans_by_gate: dict[str, Scan] = {}
    for each in given:
        for gate in gates_of(each.correction):
            scans_by_gate.setdefault(gate_sentence(gate), scan_gate(each.label, gate, batches))
    return list(scans_by_gate.values())


def first_batches(chosen: Scenario, seeds: Sequence[int], base: Mapping[str, Any], jobs: int) -> list[list[RolloutRow]]:
    """The responses of the first batches, by seed."""
    settings = merge_settings(base, chosen.train)
    age = int(settings.get("rollout", {}).get("max_staleness", 0))
    change: dict[str, Any] = {"record": {"rollouts": 1.0}, "learner": {} if age else {"lr": _NO_LEARNING}}
    sampled = Scenario(name=chosen.name, train=merge_settings(chosen.train, change))
    planned = cells([sampled], [parse_candidate("off")], seeds, base, age + BATCHES)
    room = Path(tempfile.mkdtemp(prefix="trimtab-lab-"))
    try:
        todo = [
            LabJob(each.name, "cell", each.config.model_dump(mode="json"), room / each.name, room / f"{each.name}.log")
            for each in planned
        ]
        with closing(run_jobs(todo, jobs)) as ends:
            for end in ends:
                if end.error is not None:
                    raise RunError(f"{end.job.name} could not be sampled: {end.error}")
        last = range(age, age + BATCHES)
        return [rows_from(RunDirectory.read(room / each.name).rollout_table(steps=last)) for each in planned]
    finally:
        shutil.rmtree(room, ignore_errors=True)


def scan_gate(label: str, gate: Gate, batches: Sequence[Sequence[RolloutRow]]) -> Scan:
    """A gate on batches, one per seed."""
    by_seed = [units(gate, rows) for rows in batches]
    pooled = Units(*(np.concatenate([getattr(each, name) for each in by_seed]) for name in Units.__annotations__))
    curve: list[KeptShares] = []
    for share in SHARES:
        threshold = pooled.threshold(share)
        curve.append(pooled.shares(pooled.statistic <= threshold, threshold))
    return Scan(
        correction=label,
        gate=gate_sentence(gate),
        form=threshold_form(gate),
        seeds=tuple(each.shares(each.stays, None) for each in by_seed),
        curve=tuple(curve),
        keeping={f"{share:.0%}": pooled.threshold(share) for share in PRINTED_SHARES},
    )


def units(gate: Gate, rows: Sequence[RolloutRow]) -> Units:
    """What the core's own gate finds on these rows."""
    import torch

    from trimtab.core.batch import batch
    from trimtab.core.correct import decide
    from trimtab.core.layout import Padded

    rule = Correction(gates=(gate,))
    mask = _pad(rows, "mask", 0.0).bool()
    proximal, behavior = _pad(rows, "proximal", 0.0), _pad(rows, "behavior", 0.0)
    tokens = batch(
        {"proximal": proximal, "behavior": behavior, "current": proximal},
        rule.pairs,
        mask,
        Padded(),
        advantages=None,
    )
    result = decide(rule, tokens).results[0]
    right = torch.tensor([row.correct for row in rows])
    advantage = _pad(rows, "advantage", 0.0)
    if result.units is None:  # each token is a unit
        right = right.unsqueeze(1).expand_as(mask)
    else:
        advantage = (advantage * mask).sum(1) / mask.sum(1).clamp(min=1)
    real = (result.counted > 0).flatten()

    def flat(values: Tensor) -> Any:
        return values.flatten()[real].double().numpy()

    low, high = flat(result.low), flat(result.high)
    return Units(
        gate_distance(gate, low, high),
        flat(result.inside) > 0,
        flat(result.counted),
        flat(right) > 0,
        flat(advantage),
    )


def _pad(rows: Sequence[RolloutRow], name: str, fill: float) -> Tensor:
    import torch

    width = max(len(row.tokens) for row in rows)
    padded = torch.full((len(rows), max(width, 1)), fill)
    for place, row in enumerate(rows):
        padded[place, : len(row.tokens)] = torch.from_numpy(np.asarray(getattr(row, name), dtype=np.float32))
    return padded


def _share(part: Values, whole: Values) -> float:
    total = float(whole.sum())
    return float(part.sum()) / total if total else float("nan")


HEAD = ("gate", "first of", "kept", "of right", "of wrong", "net advantage", "t keeps 99 %", "90 %", "50 %", "remark")


def scan_texts(scan: Scan) -> tuple[str, ...]:
    """A scan as text under `HEAD`, every seed shown."""
    parts = [
        "  ".join(f"{getattr(each, name):{form}}" for each in scan.seeds)
        for name, form in (("kept", ".2f"), ("right", ".2f"), ("wrong", ".2f"), ("net_advantage", "+.2f"))
    ]
    return (scan.gate, scan.correction, *parts, *(f"{value:.4g}" for value in scan.keeping.values()), scan.remark)


def scans_json(scans: Iterable[Scan]) -> list[dict[str, Any]]:
    """For JSON; what is not a number is None."""
    return [_finite(asdict(each)) | {"remark": each.remark} for each in scans]


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _finite(each) for key, each in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, tuple | list):
        return [_finite(each) for each in value]  # pyright: ignore[reportUnknownVariableType]
    return None if isinstance(value, float) and not np.isfinite(value) else value
