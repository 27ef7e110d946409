"""Made-up runs of every fate: curves and rollouts that look like real ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from trimtab.config.training import Rollout, Train
from trimtab.report import Run

Curve = Callable[[int], float]


def settings(**changes: Any) -> dict[str, Any]:
    given = {
        "steps": 300,
        "correction": {"preset": "k2-rs", "upper": 0.02},
        "rollout": Rollout(max_staleness=4),
    } | changes
    return Train(**given).model_dump(mode="json")


def lines(steps: int, curves: Mapping[str, Curve], every: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """One mapping per step; a metric of `every` only each so many steps and at the last."""
    sparse = every or {}
    found: list[dict[str, Any]] = []
    for step in range(steps):
        here = [name for name in curves if step % sparse.get(name, 1) == 0 or step == steps - 1]
        found.append({"step": step, "time": 0.2 * (step + 1), **{name: float(curves[name](step)) for name in here}})
    return found


def rising(start: float, best: float, pace: float) -> Curve:
    return lambda step: best - (best - start) * float(np.exp(-step / pace))


def falling_at(curve: Curve, step: int, to: float, pace: float = 4.0) -> Curve:
    return lambda at: curve(at) if at < step else to + (curve(step) - to) * float(np.exp(-(at - step) / pace))


def noisy(curve: Curve, spread: float, rng: np.random.Generator, *, log: bool = False) -> Curve:
    if log:
        return lambda step: curve(step) * float(np.exp(spread * rng.standard_normal()))
    return lambda step: curve(step) + spread * float(rng.standard_normal())


def curves(rng: np.random.Generator, steps: int, fate: str) -> dict[str, Curve]:
    """All metrics of a run of that fate: healthy, collapsed or starved."""
    accuracy = {
        "healthy": rising(0.31, 0.95, 50),
        "collapsed": falling_at(rising(0.31, 0.97, 40), steps - 40, 0.05),
        "starved": lambda step: 0.31,
    }[fate]
    burst = steps - 52
    kl: Curve = lambda step: 0.004 * (1 + 0.3 * np.sin(step / 20)) * min(1.0, 0.05 + step / 20)  # noqa: E731
    if fate == "collapsed":
        calm = kl
        kl = lambda step: calm(step) if step < burst else min(1.2, calm(burst) * float(np.exp((step - burst) / 2.0)))  # noqa: E731
    if fate == "starved":
        kl = lambda step: 0.8  # noqa: E731
    kept: Curve = {
        "healthy": lambda s: 0.88,
        "collapsed": lambda s: 0.88 if s < burst + 8 else 0.35,
        "starved": lambda s: 0.01,
    }[fate]
    share = lambda curve, spread=0.02: lambda step: float(np.clip(noisy(curve, spread, rng)(step), 0, 1))  # noqa: E731
    gate = "gate/0-k2-sequence"
    made: dict[str, Curve] = {
        "eval/accuracy": share(accuracy, 0.012),
        "rollout/accuracy": share(accuracy, 0.04),
        "rollout/reward": share(accuracy, 0.04),
        "rollout/length": noisy(lambda s: 25 if fate != "collapsed" or s < steps - 40 else 22, 0.2, rng),
        "rollout/truncated": share(lambda s: 0.01 if s < steps - 38 or fate != "collapsed" else 0.12, 0.005),
        "rollout/failed": lambda s: 0.0,
        "train/loss": noisy(lambda s: -0.01, 0.01, rng),
        "train/grad_norm": noisy(lambda s: 0.6 if s < steps - 40 or fate != "collapsed" else 2.5, 0.4, rng, log=True),
        "train/lr": lambda s: 3e-4 * min(1.0, (s + 1) / 10),
        "train/updates": lambda s: 4.0,
        "train/skipped": lambda s: 0.0,
        "kept_fraction": share(kept, 0.03 if fate != "starved" else 0.005),
        "missing_fraction": lambda s: 0.0,
        "drift/k3": noisy(kl, 0.25, rng, log=True),
        "policy/k3": noisy(lambda s: 0.3 * kl(s), 0.4, rng, log=True),
        "policy/entropy": noisy(lambda s: 0.05 + 0.45 * float(np.exp(-s / 60)), 0.1, rng, log=True),
        "policy/clip_high": share(lambda s: 0.02, 0.005),
        "policy/clip_low": share(lambda s: 0.03, 0.005),
        "ratio/min": noisy(lambda s: max(1e-4, 0.3 - 8 * kl(s)), 0.3, rng, log=True),
        "ratio/p01": noisy(lambda s: float(np.exp(-4 * kl(s) ** 0.5)), 0.05, rng, log=True),
        "ratio/p50": lambda s: 1.0,
        "ratio/p99": noisy(lambda s: float(np.exp(3 * kl(s) ** 0.5)), 0.05, rng, log=True),
        "ratio/max": noisy(lambda s: 2.5 + 40 * kl(s), 0.3, rng, log=True),
        "weight/ess": share(lambda s: 0.97 * kept(s), 0.02),
        "selection/kept_given_positive": share(
            lambda s: kept(s) - (0.25 if fate == "collapsed" and s >= burst + 8 else 0.0), 0.02
        ),
        "selection/kept_given_negative": share(lambda s: kept(s), 0.02),
        "selection/net_advantage": noisy(lambda s: -0.3 if fate == "collapsed" and s >= burst + 8 else 0.0, 0.04, rng),
        "selection/mean_advantage": noisy(lambda s: 0.0, 0.02, rng),
        f"{gate}/rejected_tokens": share(lambda s: 1 - kept(s), 0.02),
        f"{gate}/p01": noisy(lambda s: 0.05 * kl(s), 0.3, rng, log=True),
        f"{gate}/p50": noisy(lambda s: 0.8 * kl(s), 0.2, rng, log=True),
        f"{gate}/mean": noisy(kl, 0.2, rng, log=True),
        f"{gate}/p99": noisy(lambda s: 7 * kl(s), 0.3, rng, log=True),
        "staleness/oldest_mean": noisy(lambda s: min(s, 3.4), 0.1, rng),
        "staleness/oldest_max": lambda s: float(min(s, 4)),
        "staleness/token_mean": noisy(lambda s: min(s, 2.9), 0.1, rng),
        "staleness/coverage": lambda s: 1.0,
        "staleness/dropped": lambda s: 0.0,
        "staleness/in_flight": noisy(lambda s: 30, 3, rng),
        "staleness/in_queue": noisy(lambda s: 20, 4, rng),
        "advantage/groups": lambda s: 16.0,
        "advantage/zero_variance_groups": noisy(lambda s: 16 * accuracy(s) ** 4, 0.8, rng),
        "time/step": noisy(lambda s: 0.2, 0.01, rng),
        "time/evaluate": noisy(lambda s: 0.05, 0.005, rng),
        "time/proximal": noisy(lambda s: 0.03, 0.002, rng),
        "time/train": noisy(lambda s: 0.09, 0.006, rng),
        "time/wait": lambda s: 0.01,
        "throughput/samples": noisy(lambda s: 640, 30, rng),
        "throughput/tokens": noisy(lambda s: 16000, 700, rng),
    }
    return made


def rollouts(
    rng: np.random.Generator,
    steps: int,
    *,
    per_step: int = 8,
    length: int = 25,
    every: int = 1,
    kl: Curve | None = None,
    text: Callable[[int], tuple[str, str]] | None = None,
) -> pa.Table:
    """A rollout table of character tokens; `text` gives a prompt and a response per row where given."""
    spread = kl or (lambda step: 0.004)
    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    row = 0
    for step in range(0, steps, every):
        for sample in range(per_step):
            digits = "".join(map(str, rng.integers(0, 10, length - 1)))
            prompt, response = text(row) if text else (digits + "=", digits[::-1])
            finish = "stop"
            count = len(response) + 1
            staleness = int(min(step, rng.integers(0, 5)))
            split = int(rng.integers(0, count))
            versions = np.where(np.arange(count) < split, step - staleness, max(step - staleness, step - 1))
            behavior = -np.abs(rng.exponential(0.15, count)) * (1 + 4 * (rng.random(count) < 0.1))
            age = step - versions
            log_r = (
                rng.normal(0, (2 * spread(step)) ** 0.5, count) * (0.3 + 0.5 * age) * (0.5 + 2 * (1 - np.exp(behavior)))
            )
            kept = bool((log_r**2 / 2).mean() <= 0.02)
            correct = bool(rng.random() < 0.6)
            values: dict[str, Any] = {
                "step": step, "version": step, "group": step * 16 + sample // 8, "sample": sample % 8,
                "problem": f"chain-{row}", "prompt": prompt, "response": response,
                "prompt_tokens": list(range(5)), "tokens": rng.integers(0, 16, count).tolist(),
                "behavior": behavior, "raw": behavior, "proximal": behavior + log_r, "current": behavior + 1.1 * log_r,
                "mask": [True] * count, "versions": versions, "kept": [kept] * count,
                "weight": np.exp(log_r) * kept, "advantage": [1.0 if correct else -0.8] * count,
                "reward": float(correct), "parts": [("exact", float(correct))], "correct": correct, "finish": finish,
                "staleness": staleness, "failed": None,
            }  # fmt: skip
            for name, value in values.items():
                columns[name].append(value)
            row += 1
    return pa.table({name: pa.array(columns[name], kind) for name, kind in COLUMNS.items()})


_INTS, _FLOATS, _BOOLS = pa.list_(pa.int32()), pa.list_(pa.float32()), pa.list_(pa.bool_())
COLUMNS: dict[str, pa.DataType] = {
    **dict.fromkeys(("step", "version", "group", "sample"), pa.int64()),
    **dict.fromkeys(("problem", "prompt", "response"), pa.string()),
    **dict.fromkeys(("prompt_tokens", "tokens"), _INTS),
    **dict.fromkeys(("behavior", "raw", "proximal", "current"), _FLOATS),
    "mask": _BOOLS, "versions": _INTS, "kept": _BOOLS, "weight": _FLOATS, "advantage": _FLOATS,
    "reward": pa.float64(), "parts": pa.map_(pa.string(), pa.float64()), "correct": pa.bool_(), "finish": pa.string(),
    "staleness": pa.int64(), "failed": pa.string(),
}  # fmt: skip


def run(fate: str = "collapsed", steps: int = 300, seed: int = 0, **parts: Any) -> Run:
    """A whole run of that fate."""
    rng = np.random.default_rng(seed)
    made = curves(rng, steps, fate)
    burst = steps - 52
    wild: Curve = lambda step: 0.5 if fate == "collapsed" and step >= burst + 8 else 0.004  # noqa: E731
    events = (
        {"kind": "start", "message": "run started", "step": 0, "time": 0.0},
        {"kind": "sampler", "message": "sampler 0 restarted: exit code 1", "step": steps // 3, "time": 20.0},
        {"kind": "checkpoint", "message": "saved", "step": steps // 2, "time": 30.0},
    )
    whole: dict[str, Any] = {
        "settings": settings(steps=steps),
        "metrics": lines(steps, made, {"eval/accuracy": 20}),
        "events": events,
        "rollouts": rollouts(rng, steps, kl=wild, every=5),
        "name": f"chain-{fate}",
    }
    return Run(**(whole | parts))
