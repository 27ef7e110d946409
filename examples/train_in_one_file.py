"""The whole method on one page: sample with stale weights, correct, estimate advantages, take the loss, step.

    weights of STALE steps ago ──► generate ──► tokens, behavior log-probs ──► rewards ──► advantages ─┐
                                                  │                                                    ▼
    weights of now ──► proximal log-probs ────► correct ──► weight, kept ───────────────────────► policy_loss
         ▲                                                                                             │
         └───────────────────────────────── optimiser step ◄── backward ◄──────────────────────────────┘

The task: write three digits in reverse. The policy is a small transformer that begins knowing nothing. Everything that makes
a real trainer long (processes, engines, checkpoints, verifiers) is left out; `trimtab train` has it. Takes half a minute: without
a correction the accuracy swings, with one it stays at 1.
"""

from __future__ import annotations

import copy
from collections import deque

import torch
from torch import Tensor, nn

import trimtab

DIGITS, LENGTH, START = 10, 3, 10  # the token START stands between prompt and answer
PROMPTS, SAMPLES, STEPS, STALE = 16, 8, 200, 8
LEARNING_RATE, MINIBATCHES = 2e-3, 2


class Policy(nn.Module):
    """Token ids in, the logits of the next token at every place out."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.tokens = nn.Embedding(DIGITS + 1, width)
        self.places = nn.Embedding(2 * LENGTH + 1, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.head = nn.Linear(width, DIGITS)

    def forward(self, ids: Tensor) -> Tensor:
        """Logits `[rows, width of ids, DIGITS]`."""
        hidden = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        unseen = nn.Transformer.generate_square_subsequent_mask(ids.shape[1])
        for block in self.blocks:
            hidden = block(hidden, src_mask=unseen, is_causal=True)
        return self.head(hidden)


def problems(number: int, draw: torch.Generator) -> Tensor:
    """Prompts `[number, LENGTH + 1]`: digits, then START."""
    digits = torch.randint(DIGITS, (number, LENGTH), generator=draw)
    return torch.cat([digits, torch.full((number, 1), START)], dim=1)


def rewards_of(ids: Tensor) -> Tensor:
    """The share of digits in the right place, one number per answer."""
    return (ids[:, LENGTH + 1 :] == ids[:, :LENGTH].flip(1)).float().mean(1)


@torch.no_grad()
def generated(policy: Policy, prompts: Tensor, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """Prompts with their answers, and the log-prob of each answer's token when it was drawn: the behavior policy."""
    ids, behavior = prompts, []
    for _ in range(LENGTH):
        log_probs = policy(ids)[:, -1].log_softmax(-1)
        token = torch.multinomial(log_probs.exp(), 1, generator=draw)
        ids, behavior = torch.cat([ids, token], dim=1), [*behavior, log_probs.gather(1, token)]
    return ids, torch.cat(behavior, dim=1)


def log_probs_under(policy: Policy, ids: Tensor) -> Tensor:
    """Log-probs of the answers' tokens. The logits of a place predict the token after it."""
    return trimtab.log_probs_of(policy(ids[:, :-1])[:, LENGTH:], ids[:, LENGTH + 1 :]).log_probs


def step(
    policy: Policy, optimiser: torch.optim.Optimizer, ids: Tensor, behavior: Tensor, rule: trimtab.Correction
) -> dict[str, float]:
    """One learner step on a batch that an older policy sampled."""
    mask = torch.ones_like(behavior, dtype=torch.bool)  # every answer has LENGTH tokens; real ones end at EOS
    with torch.no_grad():
        proximal = log_probs_under(policy, ids)
    corrected = trimtab.correct(rule, proximal=proximal, behavior=behavior, mask=mask)
    group = torch.arange(len(ids)) // SAMPLES
    advantages = trimtab.advantages(
        trimtab.Grpo(), rewards=rewards_of(ids), mask=mask, group=group, kept=corrected.kept
    ).advantages
    for rows in torch.arange(len(ids)).chunk(MINIBATCHES):
        found = trimtab.policy_loss(
            trimtab.Clip(low=0.2, high=0.28),
            current=log_probs_under(policy, ids[rows]),
            proximal=proximal[rows],
            behavior=behavior[rows],
            mask=mask[rows],
            advantages=advantages[rows],
            correction=corrected.part(rows),
        )
        optimiser.zero_grad()
        found.loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimiser.step()
    seen = corrected.metrics
    return {name: float(seen[name]) for name in ("drift/kl", "weight/ess", "kept_fraction")}


def train(rule: trimtab.Correction, seed: int = 0) -> float:
    """The accuracy reached: digits in the right place, over the last ten batches sampled."""
    torch.manual_seed(seed)
    draw = torch.Generator().manual_seed(seed)
    policy = Policy()
    optimiser = torch.optim.Adam(policy.parameters(), lr=LEARNING_RATE)
    versions = deque([copy.deepcopy(policy)], maxlen=STALE + 1)  # the oldest one samples, as in a busy cluster
    scores: deque[float] = deque(maxlen=10)
    for number in range(STEPS):
        prompts = problems(PROMPTS, draw).repeat_interleave(SAMPLES, dim=0)
        ids, behavior = generated(versions[0], prompts, draw)
        scores.append(float(rewards_of(ids).mean()))
        seen = step(policy, optimiser, ids, behavior, rule)
        versions.append(copy.deepcopy(policy))
        if (number + 1) % 50 == 0:
            shown = "  ".join(f"{name} {value:.3f}" for name, value in seen.items())
            print(f"  step {number + 1:3d}  accuracy {sum(scores) / len(scores):.2f}  {shown}")
    return sum(scores) / len(scores)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for name in ("off", "seq-tis"):
        print(f"correction {name}, samples {STALE} versions old:")
        train(trimtab.preset(name))
