"""The confusion matrix of `trimtab audit`: every cause planted for real, and which one the audit found first.

    python benchmarks/audit_causes.py                         ten seeds that nothing was tuned on, about five minutes of one core
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
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from planted.causes import PLANTS, plant
from planted.model import World, make_world

from trimtab.audit.causes.precision import SIZES, precision_fingerprint
from trimtab.audit.diagnose import CAUSES, diagnose
from trimtab.audit.gap import gap_of

MARKS = "<!-- matrix: written by benchmarks/audit_causes.py -->", "<!-- end of matrix -->"


@dataclass(frozen=True)
class Seen:
    """The first cause found in a batch, if any, and the precision it would name."""

    first: str | None
    named: str | None


def see(name: str, world: World) -> Seen:
    """What is seen of a batch with this cause."""
    made = plant(name, world)
    first = next((step.cause.name for step in diagnose(made.batch, made.second) if step.verdict == "found"), None)
    return Seen(first, precision_fingerprint(gap_of(made.batch)).nearest if PLANTS[name].cause == "precision" else None)


def one_seed(seed: int, names: list[str]) -> list[Seen]:
    """Every cause on one language and model."""
    torch.set_num_threads(1)
    started, world = time.time(), make_world(seed)
    found = [see(name, world) for name in names]
    print(f"seed {seed}: {time.time() - started:.0f} s", file=sys.stderr, flush=True)
    return found


Counts = dict[str, Counter[str | None]]


def matrix(names: list[str], seeds: int, jobs: int) -> tuple[Counts, Counts]:
    """By planted cause, how often each cause was the first found, and how often each precision was named."""
    found: Counts = {name: Counter() for name in names}
    named: Counts = {name: Counter() for name in names if PLANTS[name].cause == "precision"}
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        for row in pool.map(one_seed, range(seeds), [names] * seeds):
            for name, seen in zip(names, row, strict=True):
                found[name][seen.first] += 1
                if name in named:
                    named[name][seen.named] += 1
    return found, named


def summary(found: Counts) -> str:
    """The two numbers that are asked for."""
    planted = [(name, count) for name, count in found.items() if PLANTS[name].cause is not None]
    right = sum(count[PLANTS[name].cause] for name, count in planted)
    every = sum(sum(count.values()) for _, count in planted)
    clean = [count for name, count in found.items() if PLANTS[name].cause is None]
    quiet, all_clean = sum(count[None] for count in clean), sum(sum(count.values()) for count in clean)
    parts = (
        [f"The planted cause is the first found in {right} of {every} batches ({right / every:.1%})"] if every else []
    )
    parts += [f"in {quiet} of {all_clean} clean ones nothing is found ({quiet / all_clean:.0%})"] if all_clean else []
    return "; ".join(parts) + "."


def precisions(named: Counts) -> str:
    """Which precision was named, as Markdown: a row per planted one."""
    known = [name for sizes in SIZES.values() for name, _ in sizes]
    right = sum(count[name.partition(" ")[0]] for name, count in named.items())
    lines = [
        f"The precision is named rightly in {right} of {sum(sum(count.values()) for count in named.values())}.",
        "",
        f"| planted | {' | '.join(known)} |",
        f"| --- |{' ---: |' * len(known)}",
    ]
    for name, count in named.items():
        cells = [f"**{count[each]}**" if name.startswith(f"{each} ") else str(count[each] or "") for each in known]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def table(found: Counts) -> str:
    """The matrix as Markdown: a row per planted fault, a column per cause found."""
    names = [cause.name for cause in CAUSES]
    head = f"| planted | {' | '.join(names)} | nothing |"
    lines = [head, f"| --- |{' ---: |' * (len(names) + 1)}"]
    for name, count in found.items():
        wanted = PLANTS[name].cause
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
    found, named = matrix(asked.only or list(PLANTS), asked.seeds, asked.jobs)
    text = f"{summary(found)}\n\n{table(found)}" + (f"\n\n{precisions(named)}" if named else "")
    print(text)
    if asked.write:
        page = asked.write.read_text()
        before, _, rest = page.partition(MARKS[0])
        asked.write.write_text(f"{before}{MARKS[0]}\n{text}\n{MARKS[1]}{rest.partition(MARKS[1])[2]}")


if __name__ == "__main__":
    main()
