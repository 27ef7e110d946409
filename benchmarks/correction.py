"""The correction against verl's, AReaL's and SkyRL's own functions, on the same tensors, in one run, in both heaps.

    make bench                                     sets up the peers and runs this
    python benchmarks/correction.py --rows 256 --width 4096

Each case gives both sides the same options. `ours` has every metric but quantiles (43 to 65 names), more than any peer works out;
`+ quantiles` all of them, `bare` none, `plain` is the plain form with the same metrics as `ours`. Times are best / median in ms,
interleaved, in processor time, which a busy machine leaves alone; `faster` is peer / ours of the medians (and, in brackets, of the best
runs).
`ops` are dispatched operators, `syncs` reads of a tensor on the host, `bytes` all storage newly allocated,
per token; ours with the arrays of the pass, at their peak.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from trimtab.config.correction import Correction, Gate, Weight
from trimtab.config.presets import preset
from trimtab.core.correct import correct

try:
    import peers
    from heaps import heap, in_both_heaps
except ImportError as error:  # the peers need their own environment
    sys.exit(f"The peers are not installed ({error}). Run `make bench`, which sets up .venv-parity.")

DRIFT = ("drift/kl", "drift/k3", "drift/chi2_token", "drift/chi2_sequence", "perplexity/ratio")
WEIGHT = ("weight/mean", "weight/ess", "weight/touched_high")


@dataclass(frozen=True)
class Case:
    """One peer function with its settings, our rule, and the metrics both sides give."""

    name: str
    target: float
    peer: Callable[..., Any]
    settings: dict[str, Any]
    rule: Correction
    metrics: tuple[str, ...]
    packed: bool = False


def gate_metrics(rule: Correction) -> tuple[str, ...]:
    """What the peers report of each gate: its statistic and the fraction rejected."""
    names = [f"gate/{index}-{gate.metric}-{gate.level}" for index, gate in enumerate(rule.gates)]
    return tuple(f"{name}/{what}" for name in names for what in ("mean", "rejected_tokens"))


def cases() -> list[Case]:
    geo = Gate(metric="ratio", level="sequence", lower=0.99, upper=1.01)
    k3 = Gate(metric="k3", level="sequence", upper=0.01)
    full = Correction(gates=(geo, k3), weight=Weight(level="sequence", upper=2.0))
    veto = Gate(metric="ratio", level="sequence", agg="every", lower=1e-4, upper=100.0)
    sky = Correction(gates=(veto, geo.but(scope="kept")), weight=Weight(level="token", upper=2.0))
    areal = Correction(gates=(geo.but(lower=None, upper=1.2),), weight=Weight(level="geometric"))
    token = {"rollout_is": "token", "rollout_is_threshold": 2.0}
    chain = {
        "rollout_is": "sequence",
        "rollout_rs": "seq_mean_k1,seq_mean_k3",
        "rollout_rs_threshold": "0.99_1.01,0.01",
    }
    outlier = {"outlier_token_is_threshold_low": 1e-4, "outlier_token_is_threshold_high": 100.0}
    sequence = {"level": "sequence", "action": "mask", "metric": "ratio", "agg": "mean", "upper": 1.2}
    verl, skyrl, rejected = peers.verl_correction, peers.skyrl_correction, ("kept_fraction",)
    stages = outlier | {"tis_ratio_type": "token", "sequence_mask_metric": "geometric"}
    sky_metrics = ("ratio/mean", "weight/touched_high", *gate_metrics(sky)[1::2])
    return [
        Case("verl token-tis", 12, verl, token, preset("token-tis"), DRIFT + WEIGHT),
        Case("verl seq-tis + geo-rs + k3-rs", 20, verl, chain, full, DRIFT + WEIGHT + gate_metrics(full)),
        Case("SkyRL veto + geo-rs + token-tis", 7, skyrl, stages, sky, sky_metrics),
        Case("AReaL sequence mask, padded", 4, peers.areal_correction, sequence, areal, rejected),
        Case("AReaL sequence mask, packed", 8, peers.areal_correction, sequence, areal, rejected, packed=True),
    ]


class Census(TorchDispatchMode):
    """Counts dispatched operators, host reads and newly allocated bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.ops = self.syncs = self.bytes = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = {each.untyped_storage().data_ptr() for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)}
        out = func(*args, **(kwargs or {}))
        self.ops += 1
        self.syncs += func is torch.ops.aten._local_scalar_dense.default
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor) and tensor.untyped_storage().data_ptr() not in given:
                self.bytes += tensor.untyped_storage().nbytes()
        return out


def timed(run: Callable[[], Any]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


QUANTILES = ("p01", "p50", "p99")


def compared(case: Case, data: dict[str, Tensor], repeats: int) -> list[str]:
    """One row of the table: ours and the peer's in turn."""
    tensors = dict(data)
    if not case.packed:
        tensors.pop("cu_seqlens")

    every = tuple(correct(case.rule, **tensors).metrics)
    moments = tuple(name for name in every if not name.endswith(QUANTILES))

    def ours(wanted: tuple[str, ...] = moments, fast: str = "1") -> Any:
        os.environ["TRIMTAB_FAST"] = fast
        out = correct(case.rule, **tensors)
        return out, [out.metrics[name] for name in wanted]

    def theirs() -> Any:
        return case.peer(**tensors, **case.settings)

    agree(ours()[0], theirs())
    runs: list[Callable[[], Any]] = [
        theirs,
        ours,
        lambda: ours(every),
        lambda: ours(()),
        lambda: ours(fast="0"),
        lambda: ours(case.metrics, fast="0"),
    ]
    turns = [[timed(run) for run in runs] for _ in range(repeats + 2)][2:]
    columns = [sorted(column) for column in zip(*turns, strict=True)]
    peer, mine = columns[0], columns[1]
    with Census() as left:
        theirs()
    tracemalloc.start()  # the pass makes its tensors of arrays, which no operator allocates
    with Census() as right:
        ours()
    right.bytes += tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    tokens, middle = data["mask"].numel(), statistics.median
    ratio = middle(peer) / middle(mine)
    return [
        case.name,
        *(f"{column[0] * 1e3:.1f} / {middle(column) * 1e3:.1f}" for column in columns),
        f"{ratio:.1f}× ({peer[0] / mine[0]:.1f}×)",
        f"{case.target:.0f}× {'met' if ratio >= case.target else 'missed'}",
        f"{left.ops} / {right.ops}",
        f"{left.syncs} / {right.syncs}",
        f"{left.bytes / tokens:.0f} / {right.bytes / tokens:.0f}",
    ]


def agree(mine: Any, peer: tuple[Tensor | None, Tensor, Any]) -> None:
    """The comparison is only worth something if both sides decide alike."""
    weight, kept, _ = peer
    torch.testing.assert_close(mine.kept, kept.bool(), msg="the two sides keep different tokens")
    if weight is not None:
        torch.testing.assert_close(mine.weight, torch.where(kept.bool(), weight.float(), 0.0), rtol=1e-4, atol=1e-5)


def batch(rows: int, width: int, packed: bool) -> dict[str, Tensor]:
    """Responses of uneven length with a mild mismatch; a few sequences drift, so that every gate has work."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(width // 2, width + 1, (rows,), generator=generator)
    behavior = -2 * torch.rand(rows, width, generator=generator)
    drift = 0.02 * torch.randn(rows, 1, generator=generator)
    proximal = behavior + drift + 0.05 * torch.randn(rows, width, generator=generator)
    there = torch.arange(width)[None] < lengths[:, None]
    if packed:
        proximal, behavior, there = proximal[there], behavior[there], there[there]
    bounds = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    return {"proximal": proximal, "behavior": behavior, "mask": there, "cu_seqlens": bounds}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--rows", type=int, default=256)
    options.add_argument("--width", type=int, default=4096)
    options.add_argument("--repeats", type=int, default=15)
    chosen = options.parse_args()
    if heap() is None:
        return in_both_heaps()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    names = (
        "case",
        "peer",
        "ours",
        "+ quantiles",
        "bare",
        "plain",
        "plain, their metrics",
        "faster",
        "target",
        "ops",
        "syncs",
        "bytes/token",
    )
    table = Table(*names)
    table.title = (
        f"{chosen.rows} × {chosen.width} tokens, one thread, torch {torch.__version__}, {heap()}; ms, peer / ours"
    )
    for case in cases():
        table.add_row(*compared(case, batch(chosen.rows, chosen.width, case.packed), chosen.repeats))
    Console(width=200).print(table)
    return None


if __name__ == "__main__":
    main()
