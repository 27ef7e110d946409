"""`python -m tests.train.far_cases`: engine, learner, checkpoint, weights and records on a stand-in device, beside the CPU; JSON to stdout.

In a process of its own: inference mode knows no tensors of Python's, so it is `no_grad` from before the first import.
"""

from __future__ import annotations

import copy
import json
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch

torch.inference_mode = torch.no_grad  # type: ignore[misc,assignment]

import numpy as np  # noqa: E402

from tests.train.batches import batch, policy  # noqa: E402
from tests.train.far import FAR, READS, far_device  # noqa: E402
from trimtab.config.training import Train  # noqa: E402
from trimtab.train.engines.hf.engine import HfEngine  # noqa: E402
from trimtab.train.learner.learner import Learner  # noqa: E402
from trimtab.train.learner.ranks import LearnerRanks  # noqa: E402
from trimtab.train.messages import Job, Sampling  # noqa: E402
from trimtab.train.weights.files import FileWeights  # noqa: E402

BASE: dict[str, Any] = {"minibatches": 2, "warmup": 1, "lr": 1e-3}


def sampled(model: Any, sampling: Sampling) -> tuple[list[Any], float]:
    """What the engine samples, and how often a decode step waits for the device."""
    engine = HfEngine(model, stop=(1,), slots=6)
    rng = np.random.default_rng(0)
    jobs = [Job(n, rng.integers(3, 14, 4).astype(np.int32), 3, n, 9, sampling) for n in range(4)]
    engine.submit(jobs)
    done, steps = [], 0
    READS.clear()
    while engine.pending:
        done += engine.step()
        steps += 1
    reads = sum(READS.values()) / steps
    return [
        sample.tokens.tolist() for group in sorted(done, key=lambda g: g.job.group) for sample in group.samples
    ], reads


def engines(found: dict[str, Any]) -> None:
    model = policy().model
    far = copy.deepcopy(model).to(FAR)
    for name, sampling in {"plain": Sampling(), "cut": Sampling(0.8, 8, 0.9), "greedy": Sampling(0.0)}.items():
        here, _ = sampled(copy.deepcopy(model), sampling)
        there, reads = sampled(far, sampling)
        found[f"engine {name}"] = {"same": here == there, "reads": reads}


def learners(found: dict[str, Any], folder: Path) -> None:
    rows = [batch(policy(), groups=6, seed=seed) for seed in range(3)]
    for name, changes in {
        "fast": {},
        "transformers' trunk": {"gradient_checkpointing": True},
        "several micro-batches": {"micro_tokens": 24},
    }.items():
        config = Train.from_settings({"correction": "geo-rs+token-mis", "learner": BASE | changes})
        here, there = (
            Learner(config, policy().model),
            Learner(config, policy().model, None, LearnerRanks(FAR)),
        )
        reads: list[int] = []
        for each in rows:
            here.learn(each)
            moved = each.to(FAR)
            READS.clear()
            made = there.learn(moved)
            reads.append(sum(READS.values()))
            made.message({})
        weights = [dict(learner.weights()) for learner in (here, there)]
        off = max(float((weights[0][key] - weights[1][key].cpu()).abs().max()) for key in weights[0])
        found[f"learner {name}"] = {"off": off, "device": str(there.model.device), "reads": max(reads)}
        place = folder / name.replace("'", "").replace(" ", "-")
        place.mkdir()
        there.save(place)
        again = Learner(config, policy(1).model)
        again.load(place)
        kept = all(torch.equal(value.cpu(), dict(again.weights())[key]) for key, value in weights[1].items())
        back = Learner(config, policy(1).model, None, LearnerRanks(FAR))
        back.load(place)
        kept &= all(torch.equal(value.cpu(), dict(back.weights())[key].cpu()) for key, value in weights[1].items())
        found[f"checkpoint {name}"] = {"same": kept}
        files = FileWeights(place / "published")
        files.publish(there.weights(), 0)
        read = files.reader().newest().weights
        engine = HfEngine(copy.deepcopy(policy(1).model).to(FAR), stop=(1,), slots=2)
        engine.load(read, 1)
        found[f"weights {name}"] = {
            "same": all(torch.equal(read[key], value.cpu()) for key, value in weights[1].items())
        }


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    found: dict[str, Any] = {}
    with far_device(), tempfile.TemporaryDirectory() as folder:
        a, b = torch.ones(3), torch.ones(3, device=FAR)
        try:
            a + b
            found["control"] = {"refused": False}
        except RuntimeError:
            found["control"] = {"refused": True}
        engines(found)
        learners(found, Path(folder))
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
