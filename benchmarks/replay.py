"""Runs with top-p sampling, without and with replay of what the cut left: ratios, and held-out accuracy.

    python benchmarks/replay.py                    # top_p 0.8, 3 seeds of 120 steps each way: about 40 minutes on a busy core
    python benchmarks/replay.py --steps 8 --seeds 1

Both ways have the same settings, seeds and problems: `rollout.head` none (the learner's log-probs are over the whole vocabulary) or
mask (over the ids that the sampler could draw). Ratios are proximal / behavior of every trained token of the run, from its rollout files.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

import numpy as np

from trimtab.config.training import Train
from trimtab.records.rollouts import Rollouts
from trimtab.records.run import RunDirectory
from trimtab.train.loop import train


def settings(head: str, seed: int, steps: int, top_p: float, evaluated: float | None) -> Train:
    """One run."""
    return Train.from_settings(
        {
            "steps": steps,
            "seed": seed,
            "backend": "lockstep",
            "rollout": {"top_p": top_p, "head": head, "max_staleness": 2},
            "correction": "token-tis",
            "evaluate": {"every": steps, "problems": 512, "top_p": evaluated},
            "checkpoint": {"every": 10_000},
        }
    )


def measured(config: Train, folder: Path) -> dict[str, float]:
    """What one run shows."""
    train(config, folder)
    table = Rollouts(folder / "rollouts").table(columns=["behavior", "proximal", "mask"])
    columns = {
        name: np.concatenate([np.asarray(row) for row in table.column(name).to_pylist()]) for name in table.column_names
    }
    ratio = np.exp((columns["proximal"] - columns["behavior"])[columns["mask"].astype(bool)])
    lines = RunDirectory.read(folder).metrics()
    scores = [line["eval/accuracy"] for line in lines if "eval/accuracy" in line]
    mass = [line["head/kept_mass"] for line in lines if "head/kept_mass" in line]
    return {
        "mean ratio": float(ratio.mean()),
        "outside [0.9, 1.1]": float(((ratio < 0.9) | (ratio > 1.1)).mean()),
        "accuracy": scores[-1],
        "kept mass": statistics.fmean(mass) if mass else float("nan"),
    }


def main() -> None:
    """Print a table."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--steps", type=int, default=120)
    asked.add_argument("--seeds", type=int, default=3)
    asked.add_argument("--top-p", type=float, default=0.8)
    asked.add_argument(
        "--evaluate-top-p", type=float, default=None, help="top_p of held-out samples; not set: the whole vocabulary"
    )
    args = asked.parse_args()
    print(
        f"top_p {args.top_p:g}, {args.steps} steps\n\n| replay | seed | mean ratio | outside [0.9, 1.1] | kept mass | held-out accuracy |"
    )
    print("|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as room:
        for seed in range(args.seeds):
            for head in ("none", "mask"):
                found = measured(
                    settings(head, seed, args.steps, args.top_p, args.evaluate_top_p), Path(room) / f"{head}-{seed}"
                )
                cells = [f"{found[name]:.3f}" for name in ("mean ratio", "outside [0.9, 1.1]", "kept mass", "accuracy")]
                print(f"| {'with' if head == 'mask' else 'without'} | {seed} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
