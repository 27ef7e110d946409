"""The confusion matrix of `trimtab audit`: every cause planted for real, and which one the ladder found first.

    python benchmarks/audit_causes.py                         ten seeds that nothing was tuned on, about ten minutes
    python benchmarks/audit_causes.py --seeds 1 --only top-p   one of them
    python benchmarks/audit_causes.py --write docs/audit.md    also put the matrix on that page

Thresholds were chosen on seeds from 100 on; the matrix counts seeds from 0 on. Each seed has a language and a model of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from planted.causes import PLANTS, plant
from planted.model import World, make_world

from trimtab.audit.ladder import RUNGS, climb

MARKS = "<!-- matrix: written by benchmarks/audit_causes.py -->", "<!-- end of matrix -->"


def first_found(name: str, world: World) -> str | None:
    """The rung that found something first in a batch with this cause; None where none did."""
    made = plant(name, world)
    return next((step.rung.name for step in climb(made.batch, made.second) if step.verdict == "found"), None)


def one_seed(seed: int, names: list[str]) -> list[str | None]:
    """Every cause on one language and model."""
    torch.set_num_threads(1)
    started, world = time.time(), make_world(seed)
    found = [first_found(name, world) for name in names]
    print(f"seed {seed}: {time.time() - started:.0f} s", file=sys.stderr, flush=True)
    return found


def matrix(names: list[str], seeds: int, jobs: int) -> dict[str, Counter[str | None]]:
    """By planted cause, how often each rung was the first to find something."""
    found: dict[str, Counter[str | None]] = {name: Counter() for name in names}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for row in pool.map(one_seed, range(seeds), [names] * seeds):
            for name, first in zip(names, row, strict=True):
                found[name][first] += 1
    return found


def summary(found: dict[str, Counter[str | None]]) -> str:
    """The two numbers that are asked for."""
    planted = [(name, count) for name, count in found.items() if PLANTS[name].rung is not None]
    right = sum(count[PLANTS[name].rung] for name, count in planted)
    every = sum(sum(count.values()) for _, count in planted)
    clean = [count for name, count in found.items() if PLANTS[name].rung is None]
    quiet, all_clean = sum(count[None] for count in clean), sum(sum(count.values()) for count in clean)
    parts = (
        [f"The planted cause is the first found in {right} of {every} batches ({right / every:.1%})"] if every else []
    )
    parts += [f"in {quiet} of {all_clean} clean ones nothing is found ({quiet / all_clean:.0%})"] if all_clean else []
    return "; ".join(parts) + "."


def table(found: dict[str, Counter[str | None]]) -> str:
    """The matrix as Markdown: a row per planted cause, a column per rung."""
    names = [rung.name for rung in RUNGS]
    head = f"| planted | {' | '.join(names)} | nothing |"
    lines = [head, f"| --- |{' ---: |' * (len(names) + 1)}"]
    for name, count in found.items():
        wanted = PLANTS[name].rung
        cells = [
            f"**{count[each]}**" if each == wanted and count[each] else str(count[each] or "")
            for each in (*names, None)
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1, help="seeds at a time")
    parser.add_argument("--only", choices=list(PLANTS), action="append")
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    found = matrix(asked.only or list(PLANTS), asked.seeds, asked.jobs)
    text = f"{summary(found)}\n\n{table(found)}"
    print(text)
    if asked.write:
        page = asked.write.read_text()
        before, _, rest = page.partition(MARKS[0])
        asked.write.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


if __name__ == "__main__":
    main()
