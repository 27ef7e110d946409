"""One asynchronous batch under several corrections: what each keeps, what it weighs, and what is left to learn from.

The batch is made up and the same every time: 64 answers to 8 prompts, sampled by a quantised engine with weights 0 to 3
steps behind the trainer. One answer's log-probs are shifted by a token, one log-prob never arrived.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

import trimtab

PROMPTS, ANSWERS, WIDTH = 8, 8, 384
PRESETS = (
    ("off", {}),
    ("token-tis", {"upper": 2.0}),
    ("icepop", {}),
    ("kpop", {"phi": 0.1}),
    ("seq-tis", {"upper": 2.0}),
    ("seq-mis", {"upper": 2.0}),
    ("veto", {"lower": 1e-3, "upper": 20.0}),
    ("geo-rs", {}),
    ("geo-rs", {"lower": 0.97, "upper": 1.03}),
    ("geo-rs+token-mis", {"lower": 0.97, "upper": 1.03}),
    ("opsm", {"delta": 0.01}),
)


@dataclass(frozen=True)
class AsyncBatch:
    """Log-probs of the same tokens under three policies, where they are trained, and the advantage of each answer."""

    behavior: Tensor
    proximal: Tensor
    current: Tensor
    mask: Tensor
    advantages: Tensor


def asynchronous_batch(seed: int = 0) -> AsyncBatch:
    """What a trainer holds at the start of a step."""
    draw = torch.Generator().manual_seed(seed)
    rows = PROMPTS * ANSWERS

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draw)

    lengths = torch.randint(WIDTH // 4, WIDTH + 1, (rows, 1), generator=draw)
    mask = torch.arange(WIDTH) < lengths
    rewards = (torch.rand(PROMPTS, ANSWERS, generator=draw) < 0.4).float()
    advantages = (rewards - rewards.mean(1, keepdim=True)).flatten()

    # Most tokens are nearly certain, a few are real choices; engines disagree on the choices.
    proximal = torch.rand(rows, WIDTH, generator=draw).pow(6).mul(0.995).neg().log1p()
    doubt = 1 - proximal.exp()
    age = torch.randint(0, 4, (rows, 1), generator=draw)
    quantised = 0.25 * doubt * normal(rows, WIDTH)
    learned = 0.05 * age * doubt * (advantages.sign()[:, None] + normal(rows, WIDTH))
    behavior = (proximal - quantised - learned).clamp(max=0.0)
    current = (proximal + 0.02 * doubt * normal(rows, WIDTH)).clamp(max=0.0)

    behavior[5] = behavior[5].roll(1)  # the engine's log-probs are off by one token
    behavior[9, 17] = torch.nan  # one never arrived
    return AsyncBatch(behavior, proximal, current, mask, advantages)


def line(name: str, parameters: dict[str, float], batch: AsyncBatch) -> list[str]:
    """What one correction makes of the batch."""
    rule = trimtab.preset(name, **parameters)
    out = trimtab.correct(
        rule,
        behavior=batch.behavior,
        proximal=batch.proximal,
        current=batch.current,
        mask=batch.mask,
        advantages=batch.advantages,
    )
    found = {key: out.metrics[key].item() for key in SHOWN}
    drift = -out.log_r[out.kept].mean().item()
    return [
        " ".join([name, *(f"{key}={value:g}" for key, value in parameters.items())]),
        f"{found['kept_fraction']:.1%}",
        f"{found['kept_sequence_fraction']:.0%}",
        f"{found['weight/min'] + 0.0:.2g} … {found['weight/max']:.3g}",
        f"{found['weight/ess']:.2f}",
        f"{drift:+.4f}",
        f"{found['selection/kept_given_positive']:.0%} / {found['selection/kept_given_negative']:.0%}",
        f"{found['selection/net_advantage']:+.3f}",
    ]


SHOWN = (
    "kept_fraction",
    "kept_sequence_fraction",
    "weight/min",
    "weight/max",
    "weight/ess",
    "selection/kept_given_positive",
    "selection/kept_given_negative",
    "selection/net_advantage",
)

READING = (
    "\nHow to read it. ESS is the share of the trained tokens that the weighted batch is still worth: near 1 the weights hardly "
    "vary, near 0 a few answers carry the whole step. KL kept is what is left between sampler and trainer on the tokens that stay. "
    "A rule that keeps right and wrong answers unequally moves the net advantage away from that of the whole batch; where it "
    "falls far below, the step mostly pushes probabilities down. `trimtab explain NAME` says what each rule does to a token."
)


def main() -> None:
    """Print the batch and the table."""
    torch.set_num_threads(1)
    batch = asynchronous_batch()
    console = Console(highlight=False, width=None if Console().is_terminal else 132)
    out = trimtab.correct(
        trimtab.preset("off"),
        behavior=batch.behavior,
        proximal=batch.proximal,
        mask=batch.mask,
        advantages=batch.advantages,
    )
    seen = out.metrics
    console.print(
        f"{seen['sequences']:.0f} answers, {seen['tokens']:.0f} trained tokens ({seen['missing_fraction']:.3%} without log-probs). "
        f"KL {seen['drift/kl']:.4f}, k3 {seen['drift/k3']:.4f}, median |log_r| {seen['drift/abs_log_r_p50']:.4f}, "
        f"ratios {seen['ratio/min']:.2g} … {seen['ratio/max']:.3g}, mean advantage {seen['selection/mean_advantage']:+.3f}.\n"
    )
    table = Table(box=None, pad_edge=False, header_style="bold cyan")
    for column in (
        "correction",
        "tokens",
        "answers",
        "weight",
        "ESS",
        "KL kept",
        "kept right / wrong",
        "net advantage",
    ):
        table.add_column(column, justify="left" if column == "correction" else "right", no_wrap=True)
    for name, parameters in PRESETS:
        table.add_row(*line(name, parameters, batch))
    console.print(table)
    console.print(READING)


if __name__ == "__main__":
    main()
