from __future__ import annotations

import os
from multiprocessing import get_context
from typing import Any

import pytest
import torch
from torch import nn

from tests.waiting import LIMIT
from trimtab.errors import RunError
from trimtab.train.weights.shared import SharedWeights


class Tied(nn.Module):
    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3, dtype=dtype)
        self.body = nn.Linear(3, 3, dtype=torch.bfloat16)
        self.head = nn.Linear(3, 5, bias=False, dtype=dtype)
        self.head.weight = self.embed.weight
        self.register_buffer("steps", torch.tensor(7))


def constant(model: nn.Module, value: float) -> nn.Module:
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.fill_(value)
    return model


def test_what_is_written_is_read_bit_for_bit_with_its_type_and_tied_weights_once() -> None:
    model = Tied()
    with torch.no_grad():
        model.embed.weight[0, 0] = torch.nan
    shared = SharedWeights.create(model)
    shared.write(model, 4)
    weights, version = shared.read()
    assert version == shared.version == 4
    assert set(weights) == {"embed.weight", "steps", "body.weight", "body.bias"}
    for name, tensor in weights.items():
        ours = model.state_dict()[name]
        assert tensor.dtype == ours.dtype
        assert tensor.shape == ours.shape
        assert torch.equal(tensor.reshape(-1).view(torch.uint8), ours.reshape(-1).view(torch.uint8))


def test_a_copy_that_was_read_stays_as_it_is() -> None:
    model = constant(Tied(), 1)
    shared = SharedWeights.create(model)
    shared.write(model, 0)
    weights, _ = shared.read()
    for version in (1, 2, 3):
        shared.write(constant(model, version + 1), version)
    assert weights["embed.weight"].unique().tolist() == [1]
    assert shared.read()[0]["body.weight"].unique().tolist() == [4]


def test_versions_only_rise() -> None:
    model = Tied()
    shared = SharedWeights.create(model)
    shared.write(model, 3)
    for version in (2, 3):
        with pytest.raises(RunError, match=f"above 3, got {version}"):
            shared.write(model, version)


def test_nothing_is_read_before_something_is_written() -> None:
    shared = SharedWeights.create(Tied())
    assert shared.version == -1
    with pytest.raises(RunError, match="written before they are read"):
        shared.read()


def test_another_model_is_refused() -> None:
    shared = SharedWeights.create(Tied())
    with pytest.raises(RunError, match="names, shapes and types"):
        shared.write(Tied(torch.float64), 0)


def test_a_slot_left_half_written_is_not_read() -> None:
    """The writer came round and died, or is not done: the reader gives up with a message rather than hang or lie."""
    model = Tied()
    shared = SharedWeights.create(model)
    shared.write(model, 0)
    shared._cells[2:4] = -1
    with pytest.raises(RunError, match="stand still"):
        shared.read(patience=0.01)


def reader(shared: SharedWeights, line: Any) -> None:
    """Reads as fast as it can; reports anything that is not one version throughout."""
    torch.set_num_threads(1)
    reads, last, faults = 0, -1, []
    line.send("reading")
    while not line.poll(0):
        weights, version = shared.read()
        values = {float(tensor.min()) for tensor in weights.values()} | {float(t.max()) for t in weights.values()}
        if values != {float(version)} or version < last:
            faults.append((version, last, values))
        reads, last = reads + 1, version
    line.send((reads, last, faults))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="writer and reader take turns on one core")
def test_a_reader_never_sees_two_versions_at_once() -> None:
    context = get_context("spawn")
    model = nn.ModuleList([nn.Linear(128, 128, bias=False) for _ in range(6)])
    shared = SharedWeights.create(model)
    shared.write(constant(model, 0), 0)
    ours, theirs = context.Pipe()
    process = context.Process(target=reader, args=(shared, theirs), daemon=True)
    process.start()
    assert ours.poll(LIMIT)
    assert ours.recv() == "reading"
    for version in range(1, 1001):
        shared.write(constant(model, version), version)
    ours.send("stop")
    assert ours.poll(LIMIT)
    reads, last, faults = ours.recv()
    process.join(LIMIT)
    assert process.exitcode == 0
    assert faults == []
    assert last > 0
    assert reads > 100
