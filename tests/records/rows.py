"""Rows to be recorded, made up."""

from typing import Any

import numpy as np

from trimtab.records import RolloutRow

ARRAYS = (
    *("prompt_tokens", "tokens", "behavior", "raw", "proximal", "current", "reference"),
    *("mask", "versions", "kept", "weight", "advantage"),
)


def row(step: int = 0, group: int = 0, **changes: Any) -> RolloutRow:
    fields: dict[str, Any] = {
        "step": step,
        "version": step,
        "group": group,
        "sample": 1,
        "problem": "p-7",
        "prompt": "1+1=",
        "response": "2.",
        "prompt_tokens": np.array([1, 2, 3], np.int32),
        "tokens": np.array([4, 5], np.int32),
        "behavior": np.array([-0.5, -1.5], np.float32),
        "mask": np.array([True, False]),
        "versions": np.array([0, 1], np.int32),
        "kept": np.array([True, False]),
        "weight": np.array([1.0, 0.5], np.float32),
        "advantage": np.array([0.25, -0.25], np.float32),
        "reward": 1.0,
        "parts": {"exact": 1.0},
        "correct": True,
        "finish": "stop",
        "staleness": 1,
    }
    return RolloutRow(**(fields | changes))
