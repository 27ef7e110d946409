"""Eight prompts of unequal length, in words of the tiny tokenizer."""

from __future__ import annotations


def prompts(rows: int = 8) -> list[str]:
    return [" ".join(f"w{(7 * row + place) % 30 + 2}" for place in range(3 + row % 3)) for row in range(rows)]
