"""When a sampler counts as hung."""

from __future__ import annotations


class Silence:
    """For how long a counter has stood still, as far as somebody was looking.

    A long gap between two looks counts for `most` only: then it was the looker that was away (busy, or stopped together
    with the sampler), and the counter deserves a second look.
    """

    def __init__(self, most: float) -> None:
        self._most = most
        self._pulse = -1
        self._looked: float | None = None
        self.seconds = 0.0

    def look(self, pulse: int, now: float) -> float:
        """The counter at this time; returns the silence so far."""
        gap = 0.0 if self._looked is None else min(now - self._looked, self._most)
        self.seconds = self.seconds + gap if pulse == self._pulse else 0.0
        self._pulse, self._looked = pulse, now
        return self.seconds
