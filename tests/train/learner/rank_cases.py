"""`python -m tests.train.learner.rank_cases RANK SIZE FOLDER`: three steps on ranks and alone, for each correction and loss.

All cases run in one pair of processes; rank 0 writes `results.json`: for each case the relative difference of the weights
to those of a process alone, and how far these moved from their beginning.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from tests.train.batches import batch, policy
from trimtab.config.losses import LOSSES
from trimtab.config.presets import PRESETS
from trimtab.config.training import Train
from trimtab.train.learner.learner import Learner
from trimtab.train.learner.ranks import LearnerRanks
from trimtab.train.learner.update import Update

STEPS = 3
ONLY = os.environ.get("TRIMTAB_CASES", "")
"""Cases with this in their name."""
BASE: dict[str, Any] = {"minibatches": 2, "warmup": 1, "lr": 1e-3}
SMALL_BATCHES = {"micro_tokens": 24}
"""Tokens per micro-batch of most cases: ranks have several, and not all as many."""


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each correction with the default loss, each loss with the default correction, and settings of the learner."""
    for name in (name for name, each in PRESETS.items() if each().centering is None):
        yield f"correction {name}", {"correction": name}
    for name in ("token-tis", "geo-rs", "icepop"):
        yield f"correction bypass-{name}", {"correction": f"bypass-{name}"}
    for kind, loss in LOSSES.items():
        changes: dict[str, Any] = {"loss": {"kind": kind}}
        if loss.looks_at_call:  # of all ranks together: as one process with as many tokens in a micro-batch
            fraction = {"fraction": 0.2} if kind.endswith("-cov") else {}
            more = fraction | ({"lower": -1.0} if kind == "clip-cov" else {})
            # |log ρ| of KL-Cov has a kink at 0, where current and proximal differ by rounding alone
            changes = {"loss": {"kind": kind} | more, "learner": {"micro_tokens": 100_000, "proximal": "loglinear"}}
        yield f"loss {kind}", changes
    yield "loss clip-cov with entropy", changes_with_entropy()
    for mode in ("seq-mean-token-mean", "seq-mean-token-sum", "prompt-mean"):
        yield f"reduction {mode}", {"reduction": mode}
    yield "kl", {"kl": 0.1}
    for student in ("proximal", "current"):
        yield f"teacher, {student}", {"teacher": {}, "advantage": {"kind": "distillation", "student": student}}
    yield "entropy", {"entropy_bonus": 0.01}
    yield "loglinear", {"learner": {"proximal": "loglinear"}}
    yield "groups", {"learner": {"minibatch_of": "groups"}}
    yield "one row at a time", {"learner": {"micro_tokens": 1}}
    yield "one batch", {"learner": {"micro_tokens": 100_000, "minibatches": 1}}
    yield "gradient checkpointing", {"learner": {"gradient_checkpointing": True}}
    yield "not clipped", {"learner": {"clip_norm": None}}


def changes_with_entropy() -> dict[str, Any]:
    loss = {"kind": "clip-cov", "fraction": 0.2, "lower": -1.0}
    return {"loss": loss, "entropy_bonus": 0.01, "learner": {"micro_tokens": 100_000, "minibatches": 5}}


def settings(changes: dict[str, Any], shard: str) -> Train:
    learner = BASE | SMALL_BATCHES | changes.get("learner", {}) | {"shard": shard}
    return Train.from_settings(changes | {"learner": learner})


def trained(config: Train, ranks: LearnerRanks | None, rows: list[Any], **kind: bool) -> dict[str, Tensor]:
    """The weights after the steps, in float64 so that what differs is the method and not AdamW's division by little."""
    made = policy()
    if kind.get("tied"):
        made.model.lm_head.weight = made.model.get_input_embeddings().weight
    model = made.model if kind.get("single") else made.model.double()
    reference = copy.deepcopy(policy(1).model.double()) if config.kl is not None else None
    teacher = None if config.teacher is None else copy.deepcopy(policy(2).model.double())
    learner = Learner(config, model, reference, ranks, teacher=teacher)
    for each in rows:
        learner.learn(each)
    return {name: tensor.clone() for name, tensor in learner.weights()}


def difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    """The length of the difference of all weights, as a part of their own."""
    assert one.keys() <= other.keys()
    both = [(one[name], other[name]) for name in one]
    off, whole = (
        sum(float(each.square().sum()) for each in some) ** 0.5
        for some in zip(*[(a - b, b) for a, b in both], strict=True)
    )
    return off / whole


def compare(ranks: LearnerRanks, results: dict[str, dict[str, float]]) -> None:
    begun = dict(policy().model.double().state_dict())
    rows = [batch(policy(), groups=5, samples=4, seed=seed, drift=0.05) for seed in range(STEPS)]
    for name, changes in cases():
        if ONLY not in name:
            continue
        alone = _alone(ranks, changes, rows)
        for shard in ("ddp", "fsdp"):
            config = settings(changes, shard)
            ranks.place(config.learner)
            _write_down(results, f"{shard}: {name}", trained(config, ranks, rows), alone, begun)
    for kind in ("tied", "single"):
        alone = _alone(ranks, {}, rows, **{kind: True})
        for shard in ("ddp", "fsdp"):
            config = settings({}, shard)
            ranks.place(config.learner)
            _write_down(results, f"{shard}: {kind}", trained(config, ranks, rows, **{kind: True}), alone, begun)
    _control(ranks, rows, results, begun)


Weights = dict[str, Tensor]


def _alone(ranks: LearnerRanks, changes: dict[str, Any], rows: list[Any], **kind: bool) -> Weights | None:
    """The weights of a process alone; the rank that writes the results needs them, the others wait."""
    return trained(settings(changes, "none"), None, rows, **kind) if ranks.rank == 0 else None


def _write_down(
    results: dict[str, dict[str, float]], name: str, found: Weights, alone: Weights | None, begun: Weights
) -> None:
    if alone is not None:
        results[name] = {"off": difference(found, alone), "moved": difference(alone, begun)}


def _control(ranks: LearnerRanks, rows: list[Any], results: dict[str, dict[str, float]], begun: Weights) -> None:
    """The last rank's gradient is left out: the comparison has to see it."""
    alone, own = _alone(ranks, {}, rows), Update._loss
    for shard in ("ddp", "fsdp"):
        config = settings({}, shard)
        ranks.place(config.learner)
        learner = Learner(config, policy().model.double(), None, ranks)
        if ranks.rank == ranks.size - 1:
            Update._loss = lambda *given: own(*given) * 0.0
        for each in rows:
            learner.learn(each)
        Update._loss = own
        _write_down(results, f"control: {shard}", dict(learner.weights()), alone, begun)


def main(rank: int, size: int, folder: Path) -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    store = dist.FileStore(str(folder / "store"), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    ranks, results = LearnerRanks.joined(), dict[str, dict[str, float]]()
    compare(ranks, results)
    if rank == 0:
        (folder / "results.json").write_text(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
