"""What a cell shares with the same seed of another arm: the weights it began with, and the prompts in their order.

Both are read from what the run recorded, not from its settings: a seed that never reached the sampler, or a loader that gave out
one batch again and again, has the right settings too.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from itertools import groupby, pairwise

from pydantic import Field

from trimtab.config.base import Config
from trimtab.records.run import RunDirectory

Trained = tuple[int, int, str]
"""Step, number of the group, and its problem."""


class CellPairing(Config):
    """Digests of what a cell has in common with its seed in other arms."""

    start: str = Field(description="Digest of the weights the run began with.")
    prompts: str = Field(description="Digest of the recorded prompts, step by step.")
    recorded: int = Field(description="Groups whose prompts were recorded.")
    stuck: int = Field(description="Most steps in a row that trained on the same prompts; 1 where none did.")


def cell_pairing(run: RunDirectory) -> CellPairing | None:
    """Of a run that recorded some of its groups; None of one that did not, or that is too old to say what it began with."""
    world = run.facts.get("world")
    start = world.get("weights") if isinstance(world, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    table = run.rollout_table(columns=["step", "group", "problem"])
    if not isinstance(start, str) or not table.num_rows:
        return None
    rows: list[Trained] = [(row["step"], row["group"], row["problem"]) for row in table.to_pylist()]
    return pairing_of(start, rows)


def pairing_of(start: str, rows: Iterable[Trained]) -> CellPairing:
    """From the weights' digest and what was trained on; a group counts once, however many responses it has."""
    groups = sorted(set(rows))
    told = json.dumps(groups, ensure_ascii=True).encode()
    return CellPairing(
        start=start,
        prompts=hashlib.blake2b(told, digest_size=16).hexdigest(),
        recorded=len(groups),
        stuck=_longest_repeat(groups),
    )


def _longest_repeat(groups: list[Trained]) -> int:
    """Most steps in a row with the same problems."""
    by_step = [(step, tuple(each[2] for each in found)) for step, found in groupby(groups, key=lambda each: each[0])]
    longest = count = 1
    for (before, one), (step, other) in pairwise(by_step):
        count = count + 1 if one == other and step == before + 1 else 1
        longest = max(longest, count)
    return longest
