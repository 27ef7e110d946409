"""In the place of vLLM: a model whose weights are rounded to few bits, and the log-probs under which it really sampled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.plugins.tiny import EOS

BITS = 4
"""Of a weight's mantissa: far enough from the trainer's weights for a gate to fire, near enough for most rows to stay."""


class RoundedEngine:
    """Samples from the trainer's weights, rounded. The same weights and prompts give the same answers in any order of requests."""

    def __init__(self, path: str | Path) -> None:
        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager", dtype=torch.float32).eval()
        self.version = 0
        self._asked: Counter[tuple[int, ...]] = Counter()
        self.load(self.model.state_dict().items(), 0)

    def load(self, weights: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Take new weights, as an engine of lower precision does."""
        self.model.load_state_dict({name: rounded(each.detach().float().cpu()) for name, each in weights})
        self.version = version
        self._asked.clear()

    @torch.no_grad()
    def sample(self, prompt: list[int], length: int) -> tuple[list[int], list[float]]:
        """Tokens up to the end of the sequence, and the log-prob of each under the distribution it was drawn from."""
        self._asked[tuple(prompt)] += 1
        make = torch.Generator().manual_seed(hash((self.version, *prompt, self._asked[tuple(prompt)])) % 2**31)
        tokens, log_probs = list(prompt), []
        while len(log_probs) < length:
            distribution = self.model(input_ids=torch.tensor([tokens])).logits[0, -1].log_softmax(-1)
            token = int(torch.multinomial(distribution.exp(), 1, generator=make))
            tokens.append(token)
            log_probs.append(float(distribution[token]))
            if token == EOS:
                break
        return tokens[len(prompt) :], log_probs


def rounded(weight: Tensor) -> Tensor:
    """The nearest number with so many bits of mantissa."""
    fraction, exponent = torch.frexp(weight)
    return torch.ldexp((fraction * 2**BITS).round() / 2**BITS, exponent)
