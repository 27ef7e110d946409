"""The one protocol behind every task, and the rule that keeps held-out problems out of training."""

from __future__ import annotations

import hashlib
import random
from typing import Protocol, runtime_checkable

from trimtab.train.messages import Problem, Score

HELD_OUT_SHARE = 4
"""One problem in so many of a generated task is held out, by its text alone: the same ones for every seed and run."""


@runtime_checkable
class Source(Protocol):
    """Problems without end, some that are never trained on, and the verifier of them."""

    characters: str | None
    """Every character of prompts and right answers, for a tokenizer made on the spot; None: any text."""
    max_tokens: int | None
    """What a right response needs: its characters, a stop token for each turn and the replies between them; None: not known."""

    def problem(self, index: int) -> Problem:
        """Training problem number `index`, from 0; it depends on the seed and the index only."""
        ...

    def held_out(self, count: int) -> list[Problem]:
        """Up to `count` problems that `problem` never gives; fewer where the task has no more. The same for every seed."""
        ...

    def demonstration(self, problem: Problem, slips: float, rng: random.Random) -> str:
        """A worked response, with a chance of `slips` at each step of going wrong; ConfigError for tasks without.

        Where the environment replies, one line for each turn of the policy.
        """
        ...

    def score(self, problem: Problem, response: str) -> Score:
        """What the task's own verifier says; the response comes without its stop token.

        Of a response in turns, the policy's own come, a line for each: what the environment wrote earns nothing.
        """
        ...


def is_held_out(text: str) -> bool:
    """Whether a generated problem belongs to the held-out ones."""
    return (
        hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=2, person=b"held out").digest()[0]
        % HELD_OUT_SHARE
        == 0
    )


def stream(*key: object) -> random.Random:
    """Randomness that depends on `key` alone, the same in every process and version of Python."""
    return random.Random("/".join(str(part) for part in key))


def binary(name: str, right: bool) -> Score:
    """Reward 1 for a right response, 0 for a wrong one."""
    return Score(reward=float(right), correct=right, parts={name: float(right)})


def framed(template: str | None, prompt: str) -> str:
    """The prompt in its template; other braces of the template are text."""
    return prompt if template is None else template.replace("{prompt}", prompt)
