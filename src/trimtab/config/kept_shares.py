"""Shares of kept tokens that say how a gate fares: the same while a run goes on, in its report, and in the lab."""

from __future__ import annotations

IDLE = 0.99
"""A gate that keeps more does nothing."""
STARVING = 0.3
"""A gate that keeps less throws most of the batch away and leaves little to learn from."""
STARVED = 0.05
"""Under this share a step has next to nothing to learn from."""
