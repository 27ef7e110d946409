"""The local back-end with a real model: one sampler and no staleness give the bits of one process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.train.backends.samplers import HfFactory, bits, gathered, tiny
from trimtab.train.backends.local import LocalBackend
from trimtab.train.messages import Group, Job

hf = pytest.importorskip("trimtab.train.engines.hf.engine")
transformers = pytest.importorskip("transformers")


def test_one_sampler_and_one_process_agree_to_the_bit(tmp_path: Path) -> None:
    model = tiny(0)
    backend = LocalBackend(HfFactory(), hold=4, directory=tmp_path)
    alone = HfFactory()()
    try:
        backend.begin(model.state_dict().items(), 0)
        for version in range(3):
            jobs = [
                Job(version * 4 + number, np.arange(2, 5 + number, dtype=np.int32), 4, seed=number, max_tokens=12)
                for number in range(4)
            ]
            backend.give(jobs)
            theirs = gathered(backend, lambda news: len(news.groups) == 4)
            alone.load(model.state_dict(), version)
            alone.submit(jobs)
            ours: list[Group] = []
            while alone.pending:
                ours += alone.step()
            assert bits(theirs.groups) == bits(tuple(ours))
            assert {group.oldest for group in ours} == {version}
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.add_(0.3 * torch.randn_like(parameter))
            backend.publish(model.state_dict().items(), version + 1)
    finally:
        backend.close()
