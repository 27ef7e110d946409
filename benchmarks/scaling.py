"""How the time of a correction grows: with tokens, rows and gates; on a tiny batch; in other types and with two threads.

Every row gives the pass and the plain form on the same tensors, in turns, best / median in ms of processor time (with two threads, of
the clock), with every metric but quantiles.

    python benchmarks/scaling.py
"""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.core.correct import correct

QUANTILES = ("p01", "p50", "p99")
GATE = Gate(metric="ratio", level="sequence", lower=0.9, upper=1.1)
GATES = (
    GATE,
    Gate(metric="k3", level="sequence", upper=0.01),
    GATE.but(agg="every", lower=1e-4, upper=100.0),
    Gate(metric="ratio", upper=5.0, lower=0.1),
    Gate(metric="abs_log_ratio", level="sequence", upper=0.5),
    Gate(metric="k2", level="sequence", agg="max", upper=10.0),
)


def batch(rows: int, width: int, kind: torch.dtype = torch.float32) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(0)
    behavior = -2 * torch.rand(rows, width, generator=draw)
    proximal = behavior + 0.05 * torch.randn(rows, width, generator=draw)
    return {
        "behavior": behavior.to(kind),
        "proximal": proximal.to(kind),
        "mask": torch.rand(rows, width, generator=draw) < 0.9,
    }


def rule(gates: int) -> Correction:
    return Correction(gates=GATES[:gates], weight=Weight(level="token", upper=2.0))


def measured(
    tensors: dict[str, Tensor],
    gates: int,
    turns: int,
    quantiles: bool = False,
    clock: Callable[[], float] = time.process_time,
) -> str:
    chosen = rule(gates)

    def run(fast: str) -> float:
        os.environ["TRIMTAB_FAST"] = fast
        start = clock()
        out = correct(chosen, **tensors)
        for name in out.metrics:
            if quantiles or not name.endswith(QUANTILES):
                out.metrics[name]
        return clock() - start

    pairs = [(run("1"), run("0")) for _ in range(turns + 1)][1:]
    fast, plain = (sorted(column) for column in zip(*pairs, strict=True))
    show: Callable[[list[float]], str] = lambda times: f"{times[0] * 1e3:9.2f} / {statistics.median(times) * 1e3:9.2f}"  # noqa: E731
    return f"{show(fast)}   {show(plain)}"


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print(f"{'':34} {'one pass':>21}   {'plain form':>21}")
    for tokens in (2**16, 2**20, 2**24):
        print(
            f"{tokens:>10,} tokens, 256 rows, 2 gates  {measured(batch(256, tokens // 256), 2, 7 if tokens < 2**24 else 2)}"
        )
    for rows in (10, 1000, 100_000):
        print(f"{rows:>10,} rows, 1 M tokens, 2 gates    {measured(batch(rows, 2**20 // rows), 2, 5)}")
    for gates in range(1, 7):
        print(f"{gates:>10} gates, 1 M tokens           {measured(batch(256, 4096), gates, 5)}")
    print(f"{'48 × 12, all metrics':34} {measured(batch(48, 12), 2, 50, quantiles=True)}")
    for kind in (torch.bfloat16, torch.float64):
        print(f"{str(kind) + ' (plain in both)':34} {measured(batch(256, 4096, kind), 2, 5)}")
    torch.set_num_threads(2)
    # By the clock on the wall: a second thread that waits for work spins, which counts as processor time.
    print(f"{'two threads (the pass has one)':34} {measured(batch(256, 4096), 2, 5, clock=time.perf_counter)}")


if __name__ == "__main__":
    main()
