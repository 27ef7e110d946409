"""Time and memory of an audit: a million trained tokens in under 20 s and 2 GB on one core, and the cost linear in tokens.

Each size runs in a process of its own, so that its peak memory is its own. Reading is not counted; causes, what-if with every
preset, and the page are.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

SIZES = (125_000, 250_000, 500_000, 1_000_000)


def made(tokens: int):
    """A batch of sequences of 50 to 1,950 trained tokens behind prompts of 100, with ages, engines, groups and rewards."""
    from trimtab.records.saved import Origin, SavedBatch

    rng = np.random.default_rng(0)
    lengths: list[int] = []
    while sum(lengths) < tokens:
        lengths.append(int(rng.integers(50, 1950)))
    many, prompt = len(lengths), 100
    whole = np.array(lengths) + prompt
    offsets = np.concatenate([[0], np.cumsum(whole)]).astype(np.int64)
    total = int(offsets[-1])
    place = np.arange(total) - np.repeat(offsets[:-1], whole)
    trained = place >= prompt
    behavior = np.where(trained, np.log(rng.beta(0.6, 0.3, total).clip(1e-6, 1)), np.nan).astype(np.float32)
    noise = rng.normal(size=total) * 0.05 * (1 - np.exp(np.nan_to_num(behavior)))
    age = rng.integers(0, 5, many)
    return SavedBatch(
        origin=Origin(framework="columns", files=()),
        offsets=offsets,
        trained=trained,
        tokens=rng.integers(0, 50_000, total),
        behavior=behavior,
        proximal=(behavior + noise * np.repeat(1 + age, whole)).astype(np.float32),
        advantage=np.repeat(rng.normal(size=many), whole).astype(np.float32),
        versions=np.repeat(10 - age, whole),
        group=np.arange(many) // 8,
        reward=(rng.random(many) < 0.5).astype(float),
        step=np.full(many, 10),
        learner_version=np.full(many, 10),
        source=tuple(f"rank-{index % 8}" for index in range(many)),
    )


def one(tokens: int) -> None:
    import torch

    torch.set_num_threads(1)
    from trimtab.audit.audit import audit_batch
    from trimtab.audit.page import audit_html

    batch = made(tokens)
    started, clock = time.process_time(), time.perf_counter()
    judged = audit_batch(batch)
    page = audit_html(judged)
    spent, wall = time.process_time() - started, time.perf_counter() - clock
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    found = [step.cause.name for step in judged.with_verdict("found")]
    print(
        json.dumps(
            {"tokens": len(judged.gap), "cpu": spent, "wall": wall, "gb": peak, "page": len(page), "found": found}
        )
    )


def main() -> None:
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
        return
    rows: list[dict[str, Any]] = []
    for size in SIZES:
        ran = subprocess.run([sys.executable, __file__, str(size)], check=True, capture_output=True, text=True)
        rows.append(json.loads(ran.stdout.splitlines()[-1]))
    for row in rows:
        print(
            f"{row['tokens']:>10,} tokens  {row['cpu']:6.2f} s of CPU  {row['wall']:6.2f} s  {row['gb']:.2f} GB at most  "
            f"page {row['page'] / 1e3:.0f} kB  found {', '.join(row['found'])}"
        )
    first, last = rows[0], rows[-1]
    growth = (last["cpu"] / first["cpu"]) / (last["tokens"] / first["tokens"])
    print(
        f"{last['tokens'] / first['tokens']:.1f} times the tokens take {last['cpu'] / first['cpu']:.1f} times the time."
    )
    passed = last["cpu"] < 20 and last["gb"] < 2 and growth < 1.25
    print(
        "passed: 1,000,000 tokens in under 20 s and 2 GB, linear"
        if passed
        else "FAILED: the target is 20 s, 2 GB, linear"
    )
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
