"""Recorded inputs and outputs of the frameworks, as tensors."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trimtab.dialects import DIALECTS

FOLDER = Path(__file__).parent.parent / "parity" / "vectors"
SPOKEN = {"areal-pr1218": "areal", "verl-pr6800": "verl"}
"""Recorded from a proposal; read as the framework it was proposed to."""
DECOUPLED = {"use_decoupled_loss": True}
"""AReaL's loss was recorded with log-probs of three policies, which a run hands to it only so; the loss itself does not look."""

HANDED_ON = {"algorithm": {"rollout_correction": {"bypass_mode": True}}}
"""verl's loss bypass_mode was recorded alone and with the sampler's log-probs, which this switch of the trainer hands it."""


@dataclass(frozen=True)
class Case:
    id: str
    framework: str
    version: str
    section: str
    config: dict[str, Any]
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    metrics: dict[str, float] = field(default_factory=dict)
    runtime: dict[str, Any] = field(default_factory=dict)

    @property
    def release(self) -> str:
        """The release that it was recorded from, where several can be read."""
        return self.version if self.version in DIALECTS[self.framework].releases else ""


@cache
def cases(family: str) -> list[Case]:
    found: list[Case] = []
    for manifest in sorted(FOLDER.glob(f"*-{family}.jsonl")):
        with np.load(manifest.with_suffix(".npz")) as arrays:
            stored = {key: torch.from_numpy(arrays[key]) for key in arrays.files}
        for line in manifest.read_text().splitlines():
            row = json.loads(line)
            found.append(
                Case(
                    id=row["id"],
                    framework=SPOKEN.get(row["framework"], row["framework"]),
                    version=row["version"],
                    section=row["section"],
                    config=row["config"]
                    | (HANDED_ON if "'bypass_mode'" in str(row["config"].get("policy_loss")) else {})
                    | (DECOUPLED if "use_decoupled_loss" in row["config"] else {}),
                    inputs={name: stored[key] for name, key in row["inputs"].items()},
                    outputs={name: stored[key] for name, key in row["outputs"].items()},
                    metrics=row.get("metrics") or {},
                    runtime=row.get("runtime") or {},
                )
            )
    return found
