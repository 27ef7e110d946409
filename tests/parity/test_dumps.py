"""Dumps made by the frameworks' own writing code, read by ours: the small batch of tests/records/dumps/made.py."""

from __future__ import annotations

import inspect
import sys
import types
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import typing_extensions

from tests.records.dumps import made
from trimtab.records.dumps import load
from trimtab.records.saved import SavedBatch

NAN = float("nan")
TOKENS = [11, 12, 21, 22, 23, 11, 12, 31, 32]
BEHAVIOR = np.array([NAN, NAN, -0.5, NAN, -1.5, NAN, NAN, -0.25, -2.0], np.float32)
PROXIMAL = [-0.625, -1.25, -0.375, -1.75]


def check(batch: SavedBatch, framework: str) -> None:
    assert batch.origin.framework == framework
    assert batch.tokens is not None
    assert batch.tokens.tolist() == TOKENS
    assert batch.trained.tolist() == [False, False, True, False, True, False, False, True, True]
    assert batch.behavior is not None
    assert np.array_equal(batch.behavior, BEHAVIOR, equal_nan=True)
    if batch.proximal is not None:
        assert batch.proximal[batch.trained].tolist() == PROXIMAL


@pytest.mark.parametrize("change", [made.same, made.shifted])
def test_skyrl_s_own_batch(change: made.Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(typing, "TypedDict", typing_extensions.TypedDict)  # what pydantic asks of Python 3.11
    from skyrl.backends.skyrl_train.training_batch import TrainingInputBatch, pad_training_input_batch
    from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors

    first = next(iter(inspect.signature(convert_prompts_responses_to_batch_tensors).parameters))
    padding: dict[str, Any] = {"tokenizer": types.SimpleNamespace(pad_token_id=0), "pad_token_id": 0}  # 0.3.0, 0.4.0
    sequences, attention, response, rewards, masks, log_probs, *_ = convert_prompts_responses_to_batch_tensors(
        padding[first],
        [made.PROMPT, made.PROMPT],
        made.RESPONSES,
        [[0.0] * len(row) for row in made.RESPONSES],
        made.MASKS,
        [change(row) for row in made.BEHAVIOR],
    )
    proximal = torch.tensor(
        made.padded(made.PROXIMAL, 3, -7.0, left=True)
    )  # the forward pass gives the last three places
    columns = {"sequences": sequences, "attention_mask": attention, "loss_mask": masks, "response_mask": response}
    columns |= {"action_log_probs": proximal, "rollout_logprobs": log_probs, "advantages": rewards.bfloat16()}
    batch = TrainingInputBatch(columns)
    batch.metadata = {"response_length": 3}
    path = tmp_path / "global_step_7_training_input.pkl"
    pad_training_input_batch(batch, 2).save(str(path))
    found = load([path])
    assert len(found) == 2
    if change is made.same:
        check(found, "skyrl")
    else:
        with pytest.raises(AssertionError):
            check(found, "skyrl")


def nested(rows: list[list[Any]]) -> torch.Tensor:
    return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)


@pytest.mark.parametrize("change", [made.same, made.shifted])
def test_verl_s_own_queue_of_trajectories(change: made.Change, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from tensordict import NonTensorStack, TensorDict
    from verl.utils.skip.rollout_skip import RolloutTqSkip

    fields = {
        "prompts": nested([made.PROMPT, made.PROMPT]),
        "responses": nested(made.RESPONSES),
        "response_mask": nested(made.MASKS),
        "rollout_log_probs": nested([change(row) for row in made.BEHAVIOR]),
        "uid": NonTensorStack("u", "u"),
    }
    queue = types.ModuleType("transfer_queue")
    queue.kv_batch_get = lambda **_: TensorDict(fields, batch_size=[2])  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "transfer_queue", queue)
    skip = object.__new__(RolloutTqSkip)
    monkeypatch.setattr(skip, "_find_first_missing_inner", lambda step: 0, raising=False)
    monkeypatch.setattr(skip, "_get_v1_inner_dir", lambda step, index: tmp_path / str(step) / str(index), raising=False)
    tags = [{"min_global_steps": 5, "max_global_steps": 5}, {"min_global_steps": 5, "max_global_steps": 6}]
    keys = types.SimpleNamespace(keys=["u_0_0", "u_1_0"], partition_id="train", tags=tags)
    skip.prepare_data(7, keys, 7)
    found = load([tmp_path])
    assert found.versions is not None
    assert found.versions.tolist() == [-1, -1, 5, 5, 5, -1, -1, -1, -1]
    if change is made.same:
        check(found, "verl")
    else:
        with pytest.raises(AssertionError):
            check(found, "verl")


@pytest.mark.parametrize("way", ["torch", "numpy"])
def test_verl_s_own_data_proto(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from verl.protocol import DataProto

    if way == "numpy":
        monkeypatch.setenv("VERL_DATAPROTO_SERIALIZATION_METHOD", "numpy")
    batch = {
        "input_ids": torch.tensor([[99, *made.PROMPT, *row] for row in made.padded(made.RESPONSES, 3, 99)]),
        "responses": torch.tensor(made.padded(made.RESPONSES, 3, 99)),
        "attention_mask": torch.tensor([[0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0]]),
        "response_mask": torch.tensor(made.padded(made.MASKS, 3)),
        "rollout_log_probs": torch.tensor(made.padded(made.BEHAVIOR, 3, -1.0)),
        "old_log_probs": torch.tensor(made.padded(made.PROXIMAL, 3, 0.0)),
    }
    proto = DataProto.from_dict(tensors=batch, non_tensors={"uid": np.array(["u", "u"], dtype=object)})
    (tmp_path / "7").mkdir()
    proto.save_to_disk(str(tmp_path / "7" / "gen_batch.dp"))
    found = load([tmp_path])
    check(found, "verl")
    assert found.group is not None
    assert found.group.tolist() == [0, 0]
    assert found.step is not None
    assert found.step.tolist() == [7, 7]


@pytest.mark.filterwarnings("ignore")  # of engines that are not installed
def test_verl_s_own_text(tmp_path: Path):
    try:
        from verl.trainer.ppo.ray_trainer import RayPPOTrainer
    except ImportError as error:
        pytest.skip(f"verl's trainer needs {error}")
    RayPPOTrainer._write_generations(["1+1="], ["2"], ["2"], [1.0], {"acc": [True]}, str(tmp_path), 7)
    found = load([tmp_path])
    assert found.origin.framework == "verl"
    assert found.text == ("1+1=2",)
    assert "calculate_log_probs" in found.origin.absent["behavior"]
