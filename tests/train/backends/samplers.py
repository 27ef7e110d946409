"""What the tests of a back-end ask of samplers and of what they bring."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers

from tests.waiting import LIMIT
from trimtab.train.backends.protocol import Arrived, Backend
from trimtab.train.engines.hf.engine import HfEngine
from trimtab.train.messages import Group, Job


def job_of(number: int, samples: int = 2, tokens: int = 3) -> Job:
    return Job(number, np.array([1], np.int32), samples, seed=number, max_tokens=tokens)


def gathered(backend: Backend, until: Callable[[Arrived], bool]) -> Arrived:
    """All news up to the moment that satisfies."""
    news = Arrived()
    deadline = time.monotonic() + LIMIT
    while not until(news):
        assert time.monotonic() < deadline, f"never came: {news}"
        more = backend.arrived(1.0)
        news = Arrived(news.groups + more.groups, news.lost + more.lost, news.notes + more.notes)
    return news


def numbers(groups: tuple[Group, ...]) -> list[int]:
    return sorted(group.job.group for group in groups)


def order(folder: Path, pid: int) -> set[int]:
    """Groups that a process was given."""
    names = [path.name.split()[1] for path in folder.glob(f"order * of {pid}")]
    return {int(number) for name in names for number in name.split("-")}


def tiny(seed: int) -> transformers.Qwen2ForCausalLM:
    torch.manual_seed(seed)
    config = transformers.Qwen2Config(
        vocab_size=16, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True, pad_token_id=0,
    )  # fmt: skip
    return transformers.Qwen2ForCausalLM(config).eval()


@dataclass(frozen=True)
class HfFactory:
    """Builds an engine of other weights than the learner's, so that only loading can make them equal."""

    def __call__(self) -> HfEngine:
        return HfEngine(tiny(1), stop=[1], slots=8)


def bits(groups: tuple[Group, ...]) -> list[tuple[object, ...]]:
    return [
        (group.job.group, sample.tokens.tobytes(), sample.behavior.tobytes(), sample.raw.tobytes(), sample.versions.tobytes())
        for group in groups
        for sample in group.samples
    ]  # fmt: skip
