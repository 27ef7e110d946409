"""The small batch as frameworks write it that pickle objects of their own: SkyRL, verl, ROLL."""

from __future__ import annotations

import io
import pickle
import sys
import types
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.records.dumps.made import (
    BEHAVIOR,
    MASKS,
    PROMPT,
    PROXIMAL,
    RESPONSES,
    REWARDS,
    SMALL,
    Change,
    Rollouts,
    padded,
    same,
)


class Foreign:
    """Modules that a pickle names, there while it is written."""

    def __init__(self, module: str, **contents: Any) -> None:
        self.module, self.contents = module, contents

    def __enter__(self) -> None:
        parts = self.module.split(".")
        self.made = [
            ".".join(parts[: end + 1]) for end in range(len(parts)) if ".".join(parts[: end + 1]) not in sys.modules
        ]
        for name in self.made:
            sys.modules[name] = types.ModuleType(name)
        for name, thing in self.contents.items():
            thing.__module__, thing.__qualname__ = self.module, name
            setattr(sys.modules[self.module], name, thing)

    def __exit__(self, *_: object) -> None:
        for name in self.made:
            del sys.modules[name]


def skyrl(folder: Path, change: Change = same, of: Rollouts = SMALL) -> Path:
    """training_batch.py and preprocess.py: rows padded in front, response columns under the last tokens, bytes of numpy."""
    wide, most = max(map(len, of.tokens)), max(map(len, of.responses))
    columns = {
        "sequences": np.array(padded(of.tokens, wide, 99, left=True)),
        "attention_mask": np.array(padded([[1] * len(row) for row in of.tokens], wide, left=True)),
        "loss_mask": np.array(padded(of.masks, most, 0, left=True), np.float32),
        "response_mask": np.array(padded([[1] * len(row) for row in of.responses], most, left=True)),
        "action_log_probs": np.array(
            padded(of.proximal, most, -7.0, left=True), np.float32
        ),  # of the prompt's last token
        "rollout_logprobs": np.array(padded([change(row) for row in of.behavior], most, 0.0, left=True), np.float32),
        "advantages": np.array([[a] * most for a in of.advantages], np.float32),
        "values": None,
    }
    columns = {key: None if value is None else np.concatenate([value, value[:1]]) for key, value in columns.items()}
    columns["loss_mask"][-1] = 0  # pad_training_input_batch copies row 0 and masks it
    held: dict[str, Any] = {
        key: None if v is None else {"format": "numpy", "data": v.tobytes(), "shape": v.shape, "dtype": str(v.dtype)}
        for key, v in columns.items()
    }
    buffer = io.BytesIO()
    torch.save(torch.from_numpy(columns["advantages"]).bfloat16(), buffer)
    held["advantages"] = {"format": "torch", "data": buffer.getvalue()}
    word = StrEnum("TensorFormat", {"NUMPY": "numpy", "TORCH": "torch"})  # since 0.4.0
    for key in ("sequences", "advantages"):
        held[key]["format"] = word(held[key]["format"])
    state = {"batch_dict": held, "batch_size": 1 + len(of.rows), "device": None}
    state["metadata"] = {"response_length": most, "pad_size": 1}

    class TrainingInputBatch(dict[str, Any]):
        pass

    def _rebuild_tensor_batch(kind: Any, state: Any) -> Any:
        raise AssertionError("it ran")

    class Shim:
        def __reduce__(self) -> Any:
            return _rebuild_tensor_batch, (TrainingInputBatch, state)

    path = folder / "dumped_data" / "global_step_7_training_input.pkl"
    path.parent.mkdir()
    names = {"TrainingInputBatch": TrainingInputBatch, "_rebuild_tensor_batch": _rebuild_tensor_batch}
    names |= {"TensorFormat": word}
    with Foreign("skyrl.backends.skyrl_train.training_batch", **names):
        path.write_bytes(pickle.dumps(Shim()))
    return path


def verl_queue(folder: Path, change: Change = same) -> Path:
    """rollout_skip.py: jagged tensors of each field, keys `{uid}_{session}_{i}`, tags with the oldest and newest version."""

    def nested(rows: list[list[Any]]) -> torch.Tensor:
        return torch.nested.as_nested_tensor([torch.tensor(row) for row in rows], layout=torch.jagged)

    fields = {
        "prompts": nested([PROMPT, PROMPT]),
        "responses": nested(RESPONSES),
        "response_mask": nested(MASKS),
        "rollout_log_probs": nested([change(row) for row in BEHAVIOR]),
        "rm_scores": nested([[0.0] * (len(row) - 1) + [REWARDS[i]] for i, row in enumerate(RESPONSES)]),
    }
    path = folder / "7" / "0" / "tq_batch.pt"
    path.parent.mkdir(parents=True)
    tags = [{"min_global_steps": 5, "max_global_steps": 5}, {"min_global_steps": 5, "max_global_steps": 6}]
    torch.save({"tensordict": fields, "tags": tags, "keys": ["u_0_0", "u_1_0"], "global_steps": 7}, path)
    return path


def verl_proto(folder: Path, change: Change = same) -> Path:
    """protocol.py: DataProto's state is (bytes of torch.save, arrays of objects, facts). Prompts padded in front, responses behind."""
    batch = {
        "input_ids": torch.tensor([[99, *PROMPT, *row] for row in padded(RESPONSES, 3, 99)]),
        "responses": torch.tensor(padded(RESPONSES, 3, 99)),
        "attention_mask": torch.tensor([[0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 0]]),
        "response_mask": torch.tensor(padded(MASKS, 3)),
        "rollout_log_probs": torch.tensor(padded([change(row) for row in BEHAVIOR], 3, -1.0)),
        "old_log_probs": torch.tensor(padded(PROXIMAL, 3, 0.0)),
        "token_level_scores": torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]),
        "advantages": torch.tensor([[0.5] * 3, [-0.5] * 3]),
    }
    buffer = io.BytesIO()
    torch.save(batch, buffer)
    state = buffer.getvalue(), {"uid": np.array(["u", "u"], dtype=object)}, {"temperature": 1.0}

    class DataProto:
        def __getstate__(self) -> Any:
            return state

    path = folder / "7" / "gen_batch.dp"
    path.parent.mkdir()
    with Foreign("verl.protocol", DataProto=DataProto):
        path.write_bytes(pickle.dumps(DataProto()))
    return path


def roll(folder: Path, change: Change = same, of: Rollouts = SMALL) -> Path:
    """protocol.py and rollout_mock_mixin.py: tensors in a pickled stream, rows padded on both sides, log-probs from the second token on."""
    wide = 2 + max(map(len, of.tokens))  # a place in front, one behind
    behavior = of.behind_prompts([change(row) for row in of.behavior], 0.0)
    proximal = of.behind_prompts(of.proximal, 0.0)  # multiplied by the response's mask

    def placed(rows: list[list[Any]], fill: Any) -> torch.Tensor:
        return torch.tensor([[fill, *row] + [fill] * (wide - 1 - len(row)) for row in rows])

    batch = {
        "input_ids": placed(of.tokens, 99),
        "attention_mask": placed([[1] * len(row) for row in of.tokens], 0),
        "response_mask": placed(of.behind_prompts(of.masks), 0),
        "infer_logprobs": placed(behavior, 0.0)[:, 1:],
        "old_log_probs": placed(proximal, 0.0)[:, 1:],
        "advantages": torch.tensor(of.advantages)[:, None].repeat(1, wide - 1),
        "scores": placed([[0.0] * (len(row) - 1) + [of.rewards[i]] for i, row in enumerate(of.tokens)], 0.0),
    }
    buffer = io.BytesIO()
    torch.save(batch, buffer)
    groups = np.array([f"g{group}" for group in of.groups], dtype=object)
    state = buffer, {"group_ids": groups}, None, {"metrics": {"env/reward": 1.0}}

    class DataProto:
        def __getstate__(self) -> Any:
            return state

    path = folder / "train" / "step_000007.pkl"
    path.parent.mkdir()
    with Foreign("roll.distributed.scheduler.protocol", DataProto=DataProto):
        path.write_bytes(pickle.dumps(DataProto(), protocol=pickle.HIGHEST_PROTOCOL))
    return path
