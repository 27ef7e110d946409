"""Made-up batches for the learner: a random tiny policy and responses it never sampled."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch

from trimtab.config.training import Tiny
from trimtab.train.learner.rows import Rows, batch_rows
from trimtab.train.learner.scoring import Scorer
from trimtab.train.messages import Answer, Sample, Score
from trimtab.train.policy.model import Pretrained
from trimtab.train.policy.tiny import tiny_policy


def policy(seed: int = 0) -> Pretrained:
    return tiny_policy(Tiny(width=16, heads=2, mlp=24), "0123456789=", 64, seed)


def batch(
    made: Pretrained,
    groups: int = 4,
    samples: int = 4,
    *,
    seed: int = 0,
    drift: float = 0.05,
    failed: Collection[int] = (),
) -> Rows:
    """Ragged prompts and responses; behavior is the policy's own opinion, moved by `drift`; no verifier scored the `failed` rows."""
    rng = np.random.default_rng(seed)
    answers = []
    for group in range(groups):
        prompt = rng.integers(3, 14, size=rng.integers(2, 6)).astype(np.int32)
        for _ in range(samples):
            length = int(rng.integers(1, 7))
            zeros = np.zeros(length, dtype=np.float32)
            tokens = rng.integers(3, 14, size=length).astype(np.int32)
            versions = np.zeros(length, dtype=np.int32)
            answers.append(
                Answer(
                    group,
                    len(answers) % samples,
                    prompt,
                    Sample(tokens, zeros, zeros, versions, "stop"),
                    _score(float(rng.random() < 0.5), len(answers) in failed),
                )
            )
    rows = batch_rows(answers)
    opinion = Scorer.of(made.model, 1.0).all(rows, 10_000).log_probs
    noise = torch.from_numpy(rng.normal(size=tuple(opinion.shape)).astype(np.float32)) * drift
    return Rows(**(vars(rows) | {"behavior": torch.where(rows.mask, opinion + noise, 0.0)}))


def _score(reward: float, failed: bool) -> Score:
    return Score(0.0, False, failed="timeout") if failed else Score(reward, True)
