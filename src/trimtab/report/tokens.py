"""The tokens of a run's rollouts as flat arrays: where the mismatch sits, by age, probability and place."""

# pyarrow carries no types.
# pyright: reportUnknownParameterType=false, reportAttributeAccessIssue=false

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from trimtab.report.run import FIRST_STEP, MOST_ROWS, MOST_TOKENS, Run


@dataclass(frozen=True, eq=False)
class Tokens:
    """Trained tokens with both log-probs, of rows spread evenly over the run."""

    step: NDArray[np.int64]
    log_r: NDArray[np.float32]
    """log target − log behavior, of the pair the correction compares."""
    behavior: NDArray[np.float32]
    place: NDArray[np.int64]
    """Position in the response, from 0."""
    age: NDArray[np.int64]
    """Learner version less the token's own; −1 where it is not known."""
    row: NDArray[np.int64]
    """Row of the rollout table."""
    right: NDArray[np.bool_]
    """Whether the response counts as right."""

    def __len__(self) -> int:
        return len(self.log_r)

    @property
    def k3(self) -> NDArray[np.float64]:
        """r − 1 − ℓ of each token, the log-ratio held within ±20."""
        held = np.clip(self.log_r.astype(np.float64), -20, 20)
        return np.expm1(held) - held

    def where(self, chosen: NDArray[np.bool_]) -> Tokens:
        """The tokens for which `chosen` holds."""
        return Tokens(
            *(getattr(self, name)[chosen] for name in ("step", "log_r", "behavior", "place", "age", "row", "right")),
        )


def target(run: Run) -> str:
    """The column that the correction compares with behavior: proximal, or current in bypass."""
    return "current" if run.setting("correction.policies") == "bypass" else "proximal"


def tokens(run: Run) -> Tokens | None:
    """The flat arrays, or None where the run has no rollouts with both log-probs."""
    table = run.rollouts
    if table is None or table.num_rows == 0:
        return None
    wanted = ("behavior", target(run))
    if not all(name in table.column_names for name in ("step", *wanted)):
        return None
    rows = _spread_rows(table, wanted[0])
    part = table.take(pa.array(rows))
    lengths = {name: _lengths(part, name) for name in wanted}
    whole = lengths[wanted[0]] == lengths[wanted[1]]
    rows, part = rows[whole], part.filter(pa.array(whole))
    count = lengths[wanted[0]][whole]
    behavior, compared = (_flat(part, name, np.float32) for name in wanted)
    log_r = compared - behavior
    owner = np.repeat(np.arange(len(rows)), count)
    place = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    trained = np.isfinite(log_r)
    if "mask" in part.column_names and np.array_equal(_lengths(part, "mask"), count):
        trained &= _flat(part, "mask", np.bool_)
    step = part.column("step").to_numpy().astype(np.int64) + FIRST_STEP
    every = Tokens(
        step[owner], log_r, behavior, place, _ages(part, count), rows[owner], bool_column(part, "correct")[owner]
    )
    return every.where(trained)


def _spread_rows(table: pa.Table, column: str) -> NDArray[np.int64]:
    """Row numbers, evenly spread, few enough for a report."""
    total = int(pc.sum(pc.list_value_length(table.column(column))).as_py() or 0)
    stride = max(1, -(-table.num_rows // MOST_ROWS), -(-total // MOST_TOKENS))
    return np.arange(0, table.num_rows, stride, dtype=np.int64)


def _lengths(table: pa.Table, column: str) -> NDArray[np.int64]:
    return pc.fill_null(pc.list_value_length(table.column(column)), 0).to_numpy().astype(np.int64)


def _flat(table: pa.Table, column: str, kind: Any) -> NDArray[Any]:
    """All values of a list column in one array; a null number is NaN, a null truth False."""
    values = pc.list_flatten(table.column(column))
    if kind is np.bool_:
        return pc.fill_null(values.cast(pa.bool_()), False).to_numpy().astype(kind)
    return values.to_numpy().astype(kind)


def bool_column(table: pa.Table, column: str) -> NDArray[np.bool_]:
    """A column of truths; all False where the table has none."""
    if column not in table.column_names:
        return np.zeros(table.num_rows, np.bool_)
    return pc.fill_null(table.column(column), False).to_numpy().astype(np.bool_)


def _ages(table: pa.Table, count: NDArray[np.int64]) -> NDArray[np.int64]:
    unknown = np.full(int(count.sum()), -1, dtype=np.int64)
    if not {"version", "versions"} <= set(table.column_names) or not np.array_equal(_lengths(table, "versions"), count):
        return unknown
    sampled = pc.fill_null(pc.list_flatten(table.column("versions")), -1).to_numpy().astype(np.int64)
    learner = np.repeat(pc.fill_null(table.column("version"), -1).to_numpy().astype(np.int64), count)
    return np.where((sampled >= 0) & (learner >= sampled), learner - sampled, unknown)


@dataclass(frozen=True)
class Band:
    """A class of tokens and how far its policies stand apart."""

    label: str
    tokens: int
    k3: float
    """Mean of r − 1 − ℓ."""


def by_age(trained: Tokens, most: int = 12) -> list[Band]:
    """Mismatch of each age; the last band takes all older ones."""
    ages = np.minimum(trained.age, most)
    k3 = trained.k3
    bands: list[Band] = []
    for age in np.unique(ages[ages >= 0]):
        here = ages == age
        bands.append(Band(f"{age}{'+' if age == most else ''}", int(here.sum()), float(k3[here].mean())))
    return bands


def by_probability(trained: Tokens) -> list[Band]:
    """Mismatch by the probability under which the token was sampled."""
    edges = (0.0, 0.01, 0.1, 0.5, 0.9, 0.99, 1.0 + 1e-6)
    names = ("< .01", ".01–.1", ".1–.5", ".5–.9", ".9–.99", "> .99")
    return _bands(trained, np.exp(trained.behavior.astype(np.float64)), edges, names)


def by_place(trained: Tokens, bands: int = 8) -> list[Band]:
    """Mismatch by position in the response, in bands of equal width."""
    if not len(trained):
        return []
    longest = int(trained.place.max()) + 1
    edges = np.unique(np.linspace(0, longest, min(bands, longest) + 1).round())
    names = [
        f"{int(low)}–{int(high) - 1}" if high - low > 1 else f"{int(low)}" for low, high in itertools.pairwise(edges)
    ]
    return _bands(trained, trained.place.astype(np.float64), tuple(edges), tuple(names))


def _bands(trained: Tokens, value: NDArray[np.float64], edges: tuple[float, ...], names: tuple[str, ...]) -> list[Band]:
    k3 = trained.k3
    bands: list[Band] = []
    for name, low, high in zip(names, edges, edges[1:], strict=False):
        here = (value >= low) & (value < high)
        if here.any():
            bands.append(Band(name, int(here.sum()), float(k3[here].mean())))
    return bands
