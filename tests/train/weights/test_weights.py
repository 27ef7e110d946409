from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.train.batches import policy
from tests.waiting import LIMIT
from trimtab.config.training import Train
from trimtab.errors import RunError
from trimtab.records.scratch import clear_scratch
from trimtab.train.learner.learner import Learner
from trimtab.train.weights import files
from trimtab.train.weights.files import FileReader, FileWeights
from trimtab.train.weights.protocol import Publisher, WeightsReader


class Several(nn.Module):
    """Tensors of many kinds: types of different width, one number, none at all, a view into a larger one."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.body = nn.Linear(3, 3, dtype=torch.bfloat16)
        self.embed = nn.Embedding(5, 3, dtype=dtype)
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("flags", torch.tensor([True, False, True]))
        self.register_buffer("nothing", torch.zeros(0, 4))
        self.register_buffer("turned", torch.arange(6.0).view(2, 3).t())


def named(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return iter(model.state_dict().items())


def constant(model: nn.Module, value: float) -> nn.Module:
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.fill_(value)
    return model


@pytest.fixture
def shared() -> Iterator[FileWeights]:
    made = FileWeights()
    yield made
    made.close()


def bits(tensor: Tensor) -> list[int]:
    return tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


def test_what_is_published_is_read_bit_for_bit_with_its_type_also_by_safetensors(shared: FileWeights) -> None:
    model = Several()
    with torch.no_grad():
        model.embed.weight[0, 0] = torch.nan
    shared.publish(named(model), 4)
    reader = pickle.loads(pickle.dumps(shared.reader()))
    assert isinstance(shared, Publisher)
    assert isinstance(reader, WeightsReader)
    found = reader.newest()
    assert found.version == reader.version == shared.version == 4
    for read in (found.weights, load_file(shared.path)):
        assert set(read) == set(model.state_dict())
        for name, tensor in read.items():
            ours = model.state_dict()[name]
            assert (tensor.dtype, tensor.shape) == (ours.dtype, ours.shape)
            assert bits(tensor) == bits(ours)


def test_a_snapshot_stays_as_it_is(shared: FileWeights) -> None:
    model = constant(Several(), 1)
    shared.publish(named(model), 0)
    reader = shared.reader()
    first = reader.newest()
    for version in (1, 2, 3):
        shared.publish(named(constant(model, version + 1)), version)
    assert (first.version, first.weights["embed.weight"].unique().tolist()) == (0, [1])
    assert (reader.version, reader.newest().weights["body.weight"].unique().tolist()) == (3, [4])
    first.weights["embed.weight"].fill_(9)  # its own pages: nobody else sees it
    assert reader.newest().weights["embed.weight"].unique().tolist() == [4]


def test_versions_only_rise(shared: FileWeights) -> None:
    model = Several()
    shared.publish(named(model), 3)
    for version in (2, 3):
        with pytest.raises(RunError, match=f"above 3, got {version}"):
            shared.publish(named(model), version)


def test_nothing_is_read_before_something_is_published(shared: FileWeights, tmp_path: Path) -> None:
    assert shared.version == -1
    with pytest.raises(RunError, match="published before they are read"):
        shared.reader()
    reader = FileReader(tmp_path / "weights.safetensors")
    assert reader.version == -1
    with pytest.raises(RunError, match="published before they are read"):
        reader.newest()


def test_another_model_is_refused_and_the_one_before_stays(shared: FileWeights) -> None:
    shared.publish(named(Several()), 0)
    for other in (Several(torch.float64), nn.Linear(2, 2)):
        with pytest.raises(RunError, match="names, shapes and types"):
            shared.publish(named(other), 1)
    with pytest.raises(RunError, match="got none for"):
        shared.publish(list(named(Several()))[1:], 1)
    assert shared.reader().newest().version == shared.version == 0


def test_a_folder_that_is_given_stays_and_one_of_its_own_goes(tmp_path: Path) -> None:
    own, given = FileWeights(), FileWeights(tmp_path / "weights")
    for each in (own, given):
        each.publish(named(Several()), 0)
    places = [each.path for each in (own, given)]
    for each in (own, given):
        each.close()
        each.close()
    assert [place.exists() for place in places] == [False, True]
    assert not places[0].parent.exists()


def test_where_shared_memory_is_too_small_the_file_lies_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "SPARE", 1e18)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = FileWeights()
    made.publish(named(Several()), 0)
    assert tmp_path in made.path.parents
    made.close()


def test_what_a_killed_publisher_leaves_is_cleared_and_what_a_living_one_has_is_not(tmp_path: Path) -> None:
    (tmp_path / "shm").mkdir()
    child = os.fork()
    if not child:
        files.SHARED_MEMORY = tmp_path / "shm"
        FileWeights().publish(named(Several()), 0)
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "SHARED_MEMORY", tmp_path / "shm")
        assert len(list((tmp_path / "shm").iterdir())) == 1
        living = FileWeights()
        living.publish(named(Several()), 0)
        clear_scratch(tmp_path / "shm")
        assert [place.name for place in (tmp_path / "shm").iterdir()] == [living.path.parent.name]
        living.close()


def test_a_learner_gives_tied_weights_once() -> None:
    made = policy()
    made.model.lm_head.weight = made.model.get_input_embeddings().weight
    learner = Learner(Train(), made.model)
    names = [name for name, _ in learner.weights()]
    assert "lm_head.weight" not in names
    assert len(names) == len(list(made.model.parameters()))


def read_on(reader: FileReader, line: Any) -> None:
    """Reads as fast as it can; reports anything that is not one version throughout."""
    torch.set_num_threads(1)
    reads, last, faults = 0, -1, []
    line.send("reading")
    while not line.poll(0):
        known = reader.version
        found = reader.newest()
        values = {float(edge) for tensor in found.weights.values() for edge in (tensor.min(), tensor.max())}
        if values != {float(found.version)} or not last <= known <= found.version:
            faults.append((found.version, known, last, values))
        reads, last = reads + 1, found.version
    line.send((reads, last, faults))


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="writer and reader take turns on one core")
def test_a_reader_never_sees_two_versions_at_once(shared: FileWeights) -> None:
    context = get_context("spawn")
    model = nn.ModuleList([nn.Linear(128, 128, bias=False) for _ in range(6)])
    shared.publish(named(constant(model, 0)), 0)
    ours, theirs = context.Pipe()
    process = context.Process(target=read_on, args=(shared.reader(), theirs), daemon=True)
    process.start()
    assert ours.poll(LIMIT)
    assert ours.recv() == "reading"
    for version in range(1, 1001):
        shared.publish(named(constant(model, version)), version)
    ours.send("stop")
    assert ours.poll(LIMIT)
    reads, last, faults = ours.recv()
    process.join(LIMIT)
    assert process.exitcode == 0
    assert faults == []
    assert last > 0
    assert reads > 100
