"""Time of one policy loss, forward and backward: trimtab against the functions that AReaL and verl ship.

PPO clip with geometric rejection of sequences and weighted tokens, 256 × 4096 tokens, one thread, token-mean, the same
tensors, one process, turns taken. Each side does what its own trainer calls: verl its rejection (with its metrics), its
vanilla loss and aggregation; AReaL its ppo_actor_loss_fn (its statistics stay per token). trimtab is timed bare, with every
mean, extreme and fraction it can report, and with the quantiles as well, which neither of the others has; `plain` is the plain form,
bare. In both heaps, in processor time.

    python benchmarks/loss.py
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import torch
from heaps import heap, in_both_heaps
from torch import Tensor

import trimtab
from trimtab.config.losses import Clip
from trimtab.losses.policy import policy_loss

ROWS, WIDTH, TURNS = 256, 4096, 15
LOWER, UPPER = 0.999, 1.001
QUANTILES = ("p01", "p50", "p99")

Step = Callable[[], Tensor]


def batch() -> dict[str, Tensor]:
    """Log-probs of three policies a little apart, rows of different length."""
    draw = torch.Generator().manual_seed(0)

    def noise(scale: float) -> Tensor:
        return torch.randn(ROWS, WIDTH, generator=draw) * scale

    behavior = torch.rand(ROWS, WIDTH, generator=draw) * -3
    proximal = behavior + noise(0.02)
    lengths = torch.randint(WIDTH // 4, WIDTH, (ROWS,), generator=draw)
    return {
        "behavior": behavior,
        "proximal": proximal,
        "current": (proximal + noise(0.1)).requires_grad_(),
        "mask": torch.arange(WIDTH) < lengths[:, None],
        "advantages": torch.randn(ROWS, 1, generator=draw).expand(ROWS, WIDTH).contiguous(),
    }


def ours(data: dict[str, Tensor], wanted: Callable[[str], bool], fast: str = "1") -> Step:
    """trimtab's loss, and the metrics that are wanted."""
    rule, clip = trimtab.preset("geo-rs+token-mis", lower=LOWER, upper=UPPER), Clip()
    names = tuple(filter(wanted, policy_loss(clip, correction=rule, **data).metrics))

    def step() -> Tensor:
        os.environ["TRIMTAB_FAST"] = fast
        found = policy_loss(clip, correction=rule, **data)
        for name in names:
            found.metrics[name]
        return found.loss

    return step


def peers(data: dict[str, Tensor]) -> dict[str, Step]:
    """The functions of the frameworks, at the setting nearest to ours."""
    from peers import areal, areal_loss, verl, verl_correction, verl_loss

    areal(), verl()
    current, proximal, behavior, advantages, mask = (
        data[name] for name in ("current", "proximal", "behavior", "advantages", "mask")
    )
    geometric = {
        "level": "sequence",
        "action": "mask",
        "metric": "ratio",
        "agg": "mean",
        "lower": LOWER,
        "upper": UPPER,
    }
    truncated = {"rollout_is": "token", "rollout_is_threshold": 2.0}
    rejected = {"rollout_rs": "seq_mean_k1", "rollout_rs_threshold": f"{LOWER}_{UPPER}"}

    def verl_step() -> Tensor:
        weight, kept, _ = verl_correction(proximal, behavior, mask, **truncated, **rejected)
        return verl_loss("vanilla", current, proximal, advantages, kept, weight, loss_agg_mode="token-mean")[0]

    def areal_step() -> Tensor:
        return areal_loss(current, proximal, advantages, mask, behavior, rejection_sampling=geometric)[0]

    return {"AReaL": areal_step, "verl": verl_step}


def times(steps: dict[str, Step], current: Tensor) -> dict[str, list[float]]:
    """Seconds of each step, forward and backward, the steps taking turns."""
    found: dict[str, list[float]] = {name: [] for name in steps}
    for turn in range(TURNS + 2):
        for name, step in steps.items():
            current.grad = None
            start = time.process_time()
            step().backward()
            if turn > 1:
                found[name].append(time.process_time() - start)
    return found


def main() -> None:
    """Print the times and the ratios."""
    if heap() is None:
        return in_both_heaps()
    torch.set_num_threads(1)
    data = batch()
    steps = {
        "trimtab": ours(data, lambda name: False),
        "+ metrics": ours(data, lambda name: not name.endswith(QUANTILES)),
        "+ quantiles": ours(data, lambda name: True),
        "plain": ours(data, lambda name: False, fast="0"),
    }
    try:
        steps |= peers(data)
    except ImportError as missing:
        print(f"Peers are not installed ({missing}); run `make parity-env` for the comparison.")
    found = times(steps, data["current"])
    print(f"{ROWS} x {WIDTH} tokens, forward + backward, one thread, {TURNS} turns, {heap()}")
    for name, seconds in found.items():
        low, middle = min(seconds), statistics.median(seconds)
        line = f"{name:12} min {low * 1e3:7.1f} ms   median {middle * 1e3:7.1f} ms"
        if name in ("AReaL", "verl"):
            base = found["trimtab"]
            line += (
                f"   trimtab is {low / min(base):.1f}x (min), {middle / statistics.median(base):.1f}x (median) faster"
            )
        print(line)
    return None


if __name__ == "__main__":
    main()
