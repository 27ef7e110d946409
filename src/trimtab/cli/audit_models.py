"""The models of `trimtab audit` and `trimtab parity`: each scores the batch in its turn, with a bar, and goes on where it was cut off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.cli import show
from trimtab.cli.live import LiveBar
from trimtab.errors import ConfigError

if TYPE_CHECKING:
    from trimtab.audit.scoring import ModelScorer
    from trimtab.audit.tempering import DrawnTemperature
    from trimtab.records.saved import SavedBatch


def scorers_of(folders: Sequence[Path]) -> list[ModelScorer]:
    """A scorer for each folder; none is loaded yet."""
    if len(folders) > 2:
        raise ConfigError(f"--model needs one folder or two, got {len(folders)}.")
    if not folders:
        return []
    from trimtab.audit.scoring import ModelScorer
    from trimtab.train.policy.warm_start import cache

    return [ModelScorer(folder, cache=cache() / "scores") for folder in folders]


def score(scorer: ModelScorer, batch: SavedBatch, temperatures: Sequence[float] = (1.0,)) -> Any:
    """Log-probs `[temperatures, tokens]` of the batch, with a bar; where it is interrupted, what was done is kept and said."""
    what = "" if len(temperatures) == 1 else f" at {len(temperatures)} temperatures"
    try:
        with LiveBar(f"Scoring with {scorer.folder.name}{what}", None) as bar:
            return scorer.log_probs_at(
                temperatures, batch, lambda done, total: bar.bar.update(bar.task, completed=done, total=total)
            )
    except KeyboardInterrupt:
        show.note("What was scored so far is kept: the same command goes on from there.")
        raise


def with_scores(batch: SavedBatch, scorers: Sequence[ModelScorer]) -> tuple[SavedBatch, Any, DrawnTemperature | None]:
    """The batch with the side it lacks, a second scoring where there is one, and what the first model says of the temperature.

    One model is the side that is missing, or a second scoring where none is. Two are two scorings of the trainer; of a batch
    without behavior the second is that.
    """
    if not scorers:
        return batch, None, None
    import numpy as np

    from trimtab.audit.tempering import ENOUGH, GRID, drawn_temperature
    from trimtab.records.saved import part_of

    some = np.arange(min(ENOUGH, len(batch)))
    scored = [score(scorers[0], batch)[0]]
    grid = score(scorers[0], part_of(batch, some), GRID)
    if len(scorers) == 2:
        scorers[0].release()  # one model in memory at a time
        scored.append(score(scorers[1], batch)[0])
        scorers[1].release()
    made, second = _place(batch, scored)
    return made, second, drawn_temperature(part_of(made, some), grid)


def _place(batch: SavedBatch, scored: Sequence[Any]) -> tuple[SavedBatch, Any]:
    if len(scored) == 2:
        if batch.behavior is None:
            return replace(batch, behavior=scored[1], proximal=scored[0]), None
        return replace(batch, proximal=scored[0]), scored[1]
    if batch.behavior is None:
        return replace(batch, behavior=scored[0]), None
    if batch.proximal is None and batch.current is None:
        return replace(batch, proximal=scored[0]), None
    return batch, scored[0]
