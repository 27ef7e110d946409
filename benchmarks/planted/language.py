"""A language of letters with tokens of one or two of them, so that the same text can be cut into tokens in several ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BOS, EOS, TOOL, PAD = 0, 1, 2, 3
SPECIAL = 4


@dataclass(frozen=True, eq=False)
class Language:
    """Letters that follow each other by a Markov chain of second order, and the pairs that are tokens of their own."""

    chain: np.ndarray
    """P(next | last two), [letters, letters, letters]."""
    pairs: dict[tuple[int, int], int]

    @property
    def letters(self) -> int:
        return self.chain.shape[-1]

    @property
    def vocabulary(self) -> int:
        return SPECIAL + self.letters + len(self.pairs)

    def write(self, rng: np.random.Generator, rows: int, length: int) -> np.ndarray:
        """Letters [rows, length]."""
        found = np.empty((rows, length), np.int64)
        found[:, :2] = rng.integers(self.letters, size=(rows, 2))
        sums = self.chain.cumsum(-1)
        for place in range(2, length):
            found[:, place] = (sums[found[:, place - 2], found[:, place - 1]] < rng.random((rows, 1))).sum(-1)
        return np.minimum(found, self.letters - 1)

    def cut(self, letters: list[int], rng: np.random.Generator | None = None, dropout: float = 0.0) -> list[int]:
        """Tokens of a text, the longest first; with `dropout` a pair is sometimes left as its two letters."""
        found: list[int] = []
        place = 0
        while place < len(letters):
            pair = tuple(letters[place : place + 2])
            if pair in self.pairs and (rng is None or rng.random() >= dropout):
                found.append(self.pairs[pair])
                place += 2
            else:
                found.append(SPECIAL + letters[place])
                place += 1
        return found

    def spell(self, token: int) -> tuple[int, ...]:
        """The letters of a token; none for a special one."""
        if token < SPECIAL:
            return ()
        return self._spelling[token]

    @property
    def _spelling(self) -> dict[int, tuple[int, ...]]:
        single = {SPECIAL + letter: (letter,) for letter in range(self.letters)}
        return single | {token: pair for pair, token in self.pairs.items()}


def make_language(seed: int) -> Language:
    """A language of its own for each seed: more or fewer letters, sharper or blunter chains."""
    rng = np.random.default_rng(seed)
    letters = int(rng.integers(14, 23))
    # Mostly by the last letter, which is learned in seconds; sharp after some letters and blunt after others, as text is.
    sharpness = rng.choice([0.001, 0.01, 0.12], size=letters, p=[0.45, 0.3, 0.25])
    last = np.stack([rng.dirichlet(np.full(letters, each)) for each in sharpness])
    last[np.arange(letters), np.arange(letters)] *= 0.01  # a text that repeats one letter for ever is none
    last = (last + 1e-6) / (last + 1e-6).sum(-1, keepdims=True)
    both = rng.dirichlet(np.full(letters, 0.05), size=(letters, letters))
    chain = 0.975 * last[None] + 0.02 * both + 0.005 / letters
    common = chain.mean(0)  # P(second | first), about
    likely = np.argsort(-common, axis=None)[: int(rng.integers(40, 70))]
    pairs = {
        (int(each) // letters, int(each) % letters): SPECIAL + letters + place for place, each in enumerate(likely)
    }
    return Language(chain, pairs)
