"""The lines of docs/plugins.md for TRL: `GRPOTrainer(…, trimtab=…)` and `trainer.train()`, with TRL's own arguments.

Only the sampler is stood in for: TRL's `VLLMGeneration`, which hands prompts to vLLM and weights to its engine.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
import trl
from datasets import Dataset
from torch import Tensor
from transformers import PrinterCallback, TrainerCallback
from trl.trainer import grpo_trainer

import trimtab
from tests.plugins.commands.engine import RoundedEngine
from tests.plugins.commands.figures import judge
from tests.plugins.commands.made import prompts, save
from trimtab.plugins.trl import GRPOTrainer

IS = "vllm_importance_sampling_"
OWN = {f"{IS}mode": "sequence_mask", f"{IS}clip_max": 1.2, f"{IS}clip_min": None}
WIDTH = 12


class RoundedGeneration:
    """As TRL calls `VLLMGeneration`: weights before a step, tokens and their log-probs for prompts."""

    def __init__(self, model: Any, **_: Any) -> None:
        self.model, self.engine, self.step = model, RoundedEngine(model.name_or_path), 0

    def sync_weights(self) -> None:
        self.step += 1
        self.engine.load(self.model.state_dict().items(), self.step)

    def generate(self, prompts: list[list[int]], **_: Any) -> tuple[Any, list[list[int]], list[Any], Any]:
        found = [self.engine.sample(list(prompt), WIDTH) for prompt in prompts]
        return None, [tokens for tokens, _ in found], [[[each] for each in row] for _, row in found], None


class Kept(TrainerCallback):
    """The weights before the first step and after each."""

    def __init__(self) -> None:
        self.weights: list[Tensor] = []

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.weights.append(flat(model))

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.weights.append(flat(model))


def flat(model: Any) -> Tensor:
    return torch.cat([each.detach().flatten().clone() for each in model.parameters()])


def reward(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text) * 7 % 5) for text in completions]


def run(folder: Path, kind: type, plan: Any = None, **settings: Any) -> tuple[list[Tensor], list[dict[str, Any]]]:
    """The lines of the page, with what makes them small; the weights step by step, and what was logged."""
    small: dict[str, Any] = {
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "save_strategy": "no",
        "logging_steps": 1,
        "disable_tqdm": True,
    }
    plain = {
        "optim": "sgd",
        "learning_rate": 3.0,  # steps far above the rounding of a weight, or that is all there is to see
        "max_grad_norm": 1e9,
        "lr_scheduler_type": "constant",
        "max_steps": 2,
        "seed": 3,
    }
    shape = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 4,
        "num_generations": 4,
        "max_completion_length": WIDTH,
    }
    seen = Kept()
    trainer = kind(
        model=str(folder / "model"),
        reward_funcs=reward,
        train_dataset=Dataset.from_dict({"prompt": prompts()}),
        args=trl.GRPOConfig(
            str(folder / "out"), use_vllm=True, vllm_mode="colocate", **small, **plain, **shape, **settings
        ),
        callbacks=[seen],
        **({} if plan is None else {"trimtab": plan}),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return seen.weights, [each for each in trainer.state.log_history if "loss" in each]


def main() -> int:
    grpo_trainer.VLLMGeneration = RoundedGeneration
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save(folder / "model")
        weights, logged = run(folder, GRPOTrainer, "geo-rs+token-tis")
        kept = [each["trimtab/kept_fraction"] for each in logged]
        print(f"TRL: the documented lines: {len(weights) - 1} steps, kept {kept}")
        if not all(0 < each < 1 for each in kept):
            return 1
        theirs, _ = run(folder, trl.GRPOTrainer, **OWN)
        off, _ = run(folder, trl.GRPOTrainer, **OWN | {f"{IS}correction": False})
        read = trimtab.dialects.read("trl", {"use_vllm": True, "max_completion_length": WIDTH, **OWN}).correction
        ours, logged = run(folder, GRPOTrainer, read, **OWN)
        print(f"TRL: kept {[each['trimtab/kept_fraction'] for each in logged]} under {OWN}")
        return judge("TRL", theirs, ours, off)


if __name__ == "__main__":
    sys.exit(main())
